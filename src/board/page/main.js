// The page begins here.
import { startCharts } from "./charts.js";
import { startClasses } from "./classes.js";
import { startConfig } from "./config.js";
import { startLog } from "./log.js";
import { startParallel } from "./parallel.js";
import { startPictures } from "./pictures.js";
import { startPolling } from "./poll.js";
import { startRunList } from "./run-list.js";
import { recall } from "./state.js";
import { startSystem } from "./system.js";
import { startTable } from "./table.js";
import { startTabs } from "./tabs.js";
import { startTheme } from "./theme.js";

recall();
startTheme();
startRunList();
startCharts();
startSystem();
startTable();
startParallel();
startConfig();
startClasses();
startPictures();
startLog();
startTabs();
startPolling();
