// The page begins here.
import { startCharts } from "./charts.js";
import { startConfig } from "./config.js";
import { startLog } from "./log.js";
import { startPictures } from "./pictures.js";
import { startPolling } from "./poll.js";
import { startRunList } from "./run-list.js";
import { recall } from "./state.js";
import { startTable } from "./table.js";
import { startTabs } from "./tabs.js";
import { startTheme } from "./theme.js";

recall();
startTheme();
startRunList();
startCharts();
startTable();
startConfig();
startPictures();
startLog();
startTabs();
startPolling();
