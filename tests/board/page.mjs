// The page in a real browser, during a live run on two ranks: node tests/board/page.mjs LOCKSTEP FOLDER MODULES
//
// LOCKSTEP is the command, FOLDER an empty folder for logs and pictures of the page, MODULES the node_modules that
// have playwright-core and axe-core. Prints a line per check; exits 1 at the first that fails, and 77 if Chromium does
// not start here.
import { spawn } from "node:child_process";
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

const [, script, lockstep, folder, modules] = process.argv;
const require = createRequire(path.join(path.resolve(modules), "anchor.js"));
const { chromium } = require("playwright-core");
const axeSource = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const config = path.resolve(path.dirname(script), "../../examples/mnist.yml");
const flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync"];
const patience = 120000; // ms, for a machine that does much else
const children = [];
const complaints = [];

function check(holds, what) {
    if (!holds) throw new Error(what);
    console.log(`ok: ${what}`);
}

function start(words) {
    const child = spawn(lockstep, words, { cwd: folder, stdio: ["ignore", "pipe", "ignore"] });
    child.ended = new Promise((done) => child.on("exit", done));
    children.push(child);
    return child;
}

const train = (logdir, ...words) => start(["run", "-C", config, "--device", "cpu", "--logdir", logdir, ...words]);

function board(...folders) {
    const child = start(["board", ...folders]);
    return new Promise((done, fail) => {
        let said = "";
        child.stdout.on("data", (bytes) => {
            said += bytes;
            const link = said.match(/http:\/\/127\.0\.0\.1:\d+\/[0-9a-f]+\/\n/);
            if (link) done(link[0].trim());
        });
        child.ended.then(() => fail(new Error("lockstep board has ended")));
    });
}

// ---- Logs ----

// Ten runs of 100,000 points, with a peak in one of them.
function writeLargeRuns(root) {
    for (let run = 0; run < 10; run++) {
        const logs = path.join(root, `run-${run}`, "csv_logger");
        fs.mkdirSync(logs, { recursive: true });
        const lines = ["step,accuracy01,loss,lr,time"];
        for (let i = 1; i <= 100000; i++) {
            const noise = Math.sin(i * 12.9898 + run * 78.233) * 0.05;
            const loss = i === 54321 && run === 3 ? 9 : (2 + run / 10) * Math.exp(-i / 20000) + 0.1 + noise;
            lines.push(`${i},${(1 - loss / 3).toFixed(6)},${loss.toFixed(6)},${(0.1 * (1 - i / 100000)).toFixed(6)},${1.79e9 + i / 2}`);
        }
        fs.writeFileSync(path.join(logs, "train.csv"), `${lines.join("\n")}\n`);
    }
}

// One grey pixel.
const picture = Buffer.from("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNoAAAAggCBd81ytgAAAABJRU5ErkJggg==", "base64");

// ---- The page ----

async function open(browser, link, options = {}) {
    const context = await browser.newContext({ viewport: { width: 1400, height: 900 }, colorScheme: "light", ...options });
    context.setDefaultTimeout(patience);
    const page = await context.newPage();
    page.on("console", (message) => ["error", "warning"].includes(message.type()) && complaints.push(message.text()));
    page.on("pageerror", (error) => complaints.push(String(error)));
    await page.goto(link);
    // A chart asks for its curves when it comes into view, and a phone does not show all of them.
    await page.locator('[data-metric="train/loss"]').scrollIntoViewIfNeeded();
    await page.waitForSelector('[data-metric="train/loss"] canvas');
    return page;
}

const pointsOf = (page, metric) => page.evaluate(async (name) => {
    const news = await (await fetch("api/runs")).json();
    return Math.max(0, ...news.runs.flatMap((run) => run.series).filter((one) => `${one.loader}/${one.metric}` === name).map((one) => one.n));
}, metric);

// What is painted of a chart, as a text; null if it has no curves yet.
const pictureOf = (page, metric) => page.evaluate((name) => document.querySelector(`[data-metric="${name}"] canvas`)?.toDataURL() ?? null, metric);

async function until(what, holds) {
    for (const end = Date.now() + patience; Date.now() < end;) {
        if (await holds()) return check(true, what);
        await new Promise((done) => setTimeout(done, 100));
    }
    return check(false, what);
}

// The same, once it no longer changes.
async function settled(page, metric) {
    const end = Date.now() + patience;
    for (let last = null, same = 0; Date.now() < end;) {
        const now = await pictureOf(page, metric);
        same = now && now === last ? same + 1 : 0;
        if (same === 3) return now;
        last = now;
        await page.waitForTimeout(150);
    }
    throw new Error(`the chart of ${metric} does not come to rest`);
}

async function checkAccess(page, what) {
    await page.evaluate(axeSource.replace(/\/\/# sourceMappingURL.*/, ""));
    const found = await page.evaluate(async () => (await window.axe.run()).violations.map((one) => `${one.id}: ${one.nodes[0].html} ${one.nodes[0].failureSummary}`));
    check(found.length === 0, `axe finds nothing (${what})${found.length ? `, but: ${found.join("; ")}` : ""}`);
}

const tab = (page, name) => page.click(`#tab-${name}`);
const shot = (page, name) => page.screenshot({ path: path.join(folder, `${name}.png`) });

// ---- What must hold ----

async function watchLiveRun(browser) {
    const logs = path.join(folder, "logs");
    await train("logs/lr-0.01", "-e", "6", "--optimizer/lr=0.01", "--run/0/callbacks/1/compute_per_class_metrics=y", "--run/0/callbacks/2=Histogram").ended;
    await train("logs/lr-0.03", "-e", "6", "--optimizer/lr=0.03").ended;
    fs.mkdirSync(path.join(logs, "lr-0.01/confusion_matrix"));
    fs.writeFileSync(path.join(logs, "lr-0.01/confusion_matrix/valid_0001.png"), picture);
    fs.writeFileSync(path.join(logs, "lr-0.01/confusion_matrix/valid_0002.png"), picture);
    fs.writeFileSync(path.join(logs, "lr-0.01/confusion_matrix/valid_0002.csv"), "true \\ predicted,a,b\na,5,1\nb,2,7\n");
    fs.mkdirSync(path.join(logs, "<img src=x onerror=alert(1)>/csv_logger"), { recursive: true });
    fs.writeFileSync(path.join(logs, "<img src=x onerror=alert(1)>/csv_logger/train.csv"), "step,loss\n1,0.7\n2,0.6\n3,nan\n");
    const live = train("logs/live", "--nproc", "2", "-e", "1000000");
    const link = await board(logs);
    const page = await open(browser, link);

    await until("the live run is shown as running", () => page.locator("#runs .badge.running").count());
    const before = await pointsOf(page, "train/loss"), painted = await pictureOf(page, "train/loss");
    await until("the time of both ranks is shown", async () => (await page.locator("#ranks tbody tr").count()) >= 4);
    check(await page.locator('[data-metric="system/communication_share"]').count(), "the share of communication is a chart");
    await until("its curve grows", async () => (await pointsOf(page, "train/loss")) > before + 2 && (await pictureOf(page, "train/loss")) !== painted);
    check((await page.locator("#runs li").count()) === 4, "all four runs are listed");
    check((await page.locator("img[src=x]").count()) === 0, "a run's name stays text");
    await shot(page, "desktop-light");
    await checkAccess(page, "charts, light");

    live.kill("SIGKILL");
    await until("a killed run is shown as dead", () => page.locator("#runs .badge.died").count());

    const shown = await settled(page, "valid/loss");
    await page.getByRole("checkbox", { name: "lr-0.03" }).uncheck();
    await until("a run that is hidden leaves the chart", async () => (await pictureOf(page, "valid/loss")) !== shown);
    await page.getByRole("checkbox", { name: "lr-0.03" }).check();
    await page.fill("#filter", "lr=0.01 state=finished");
    await until("the filter compares settings", async () => (await page.locator("#runs li").count()) === 1);
    await page.fill("#filter", "valid/loss<1000 LR-");
    await until("the filter compares metrics and names", async () => (await page.locator("#runs li").count()) === 2);
    return page;
}

async function turnControls(page) {
    const plain = await settled(page, "valid/loss");
    await page.fill("#smooth", "0.8");
    await until("smoothing changes the curve", async () => (await pictureOf(page, "valid/loss")) !== plain);
    await page.fill("#smooth", "0");
    await until("and back", async () => (await pictureOf(page, "valid/loss")) === plain);
    await page.check("#log-scale");
    await until("the scale is logarithmic", async () => (await pictureOf(page, "valid/loss")) !== plain);
    await page.uncheck("#log-scale");
    await page.selectOption("#x-axis", "relative");
    await until("the axis is time", async () => (await pictureOf(page, "valid/loss")) !== plain);
    await page.selectOption("#x-axis", "step");
    await until("and epochs again", async () => (await pictureOf(page, "valid/loss")) === plain);

    const over = page.locator('[data-metric="valid/loss"] .u-over'), box = await over.boundingBox();
    await page.mouse.move(box.x + box.width * 0.3, box.y + 50);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * 0.6, box.y + 60, { steps: 5 });
    check(await page.locator('[data-metric="valid/loss"] .tip').isVisible(), "values are shown under the pointer");
    await page.mouse.up();
    await until("dragging zooms", () => page.locator('[data-metric="valid/loss"].zoomed').count());
    await over.dblclick();
    await until("a double click resets", async () => (await page.locator(".zoomed").count()) === 0);
    await page.locator('[data-metric="train/loss"] .plot').focus();
    await page.keyboard.press("+");
    await until("the keyboard zooms", () => page.locator('[data-metric="train/loss"].zoomed').count());
    await page.keyboard.press("0");
    await until("and resets", async () => (await page.locator(".zoomed").count()) === 0);
}

async function walkTabs(page) {
    const names = () => page.locator("#table tbody th").allTextContents();
    await page.fill("#filter", "");
    await tab(page, "table");
    await page.click('[data-sort="valid/loss"]');
    const up = await names();
    await page.click('[data-sort="valid/loss"]');
    const down = await names();
    const rated = (list) => list.filter((name) => !name.startsWith("<")); // a run without the metric comes last
    check(rated(up).length === 3 && rated(up).join() === rated(down).reverse().join() && up.at(-1) === down.at(-1), "the table sorts by a metric");
    check((await page.locator('th[aria-sort="descending"]').count()) === 1, "and says so");
    await checkAccess(page, "table");
    await shot(page, "desktop-table");
    await tab(page, "parallel");
    await until("there is a line per run", async () => (await page.locator("#parallel polyline").count()) === 4);
    const axis = await page.locator("#parallel .grip").first().boundingBox();
    await page.mouse.move(axis.x + axis.width / 2, axis.y + axis.height * 0.7);
    await page.mouse.down();
    await page.mouse.move(axis.x + axis.width / 2, axis.y + axis.height - 1, { steps: 4 });
    await page.mouse.up();
    await until("dragging along an axis keeps some of them", () => page.locator("#parallel polyline.away").count());
    await shot(page, "desktop-parallel");
    await page.click("#parallel-reset");
    await until("and all again", async () => (await page.locator("#parallel polyline.away").count()) === 0);
    await checkAccess(page, "parallel coordinates");
    await tab(page, "config");
    await page.waitForSelector("#config tr.differs");
    check((await page.locator("#config").textContent()).includes("optimizer/lr"), "the difference of the configs is shown");
    await checkAccess(page, "config");
    await tab(page, "classes");
    await page.waitForSelector("#classes .confusion td");
    check((await page.locator("#classes .confusion td").allTextContents()).join() === "5,1,2,7", "a confusion matrix is a table");
    await page.waitForSelector("#classes .bars");
    check((await page.locator("#classes .bars tbody tr").count()) >= 10, "classes are rows of a table");
    await shot(page, "desktop-classes");
    await checkAccess(page, "classes");
    await tab(page, "histograms");
    await until("histograms of the weights are drawn", async () => (await page.locator("#histograms canvas").count()) === 2);
    check(await page.evaluate(() => [...document.querySelectorAll("#histograms canvas")].every((one) => one.getContext("2d").getImageData(0, 0, one.width, one.height).data.some(Boolean))), "and something is in them");
    await checkAccess(page, "histograms");
    await tab(page, "model");
    await page.selectOption("#model-run", { label: "lr-0.01" });
    await until("the model has its boxes", async () => (await page.locator("#model-graph .box").count()) === 3);
    check((await page.locator("#model-graph").textContent()).includes("32 × 784"), "with their shapes");
    check((await page.locator("#model-layers").textContent()).includes("7,850"), "and its layers their parameters");
    await page.selectOption("#model-depth", { label: "single ops" });
    await until("ops are boxes, too", async () => (await page.locator("#model-graph").textContent()).includes("linear"));
    await shot(page, "desktop-model");
    await checkAccess(page, "model");
    await tab(page, "pictures");
    await page.waitForSelector("#pictures img");
    await until("a picture is shown", () => page.evaluate(() => document.querySelector("#pictures img").naturalWidth === 1));
    await page.click("#pictures summary");
    await page.waitForSelector("#pictures .confusion");
    await checkAccess(page, "pictures");
    await tab(page, "log");
    await page.selectOption("#log-run", { label: "lr-0.01" });
    await until("the log is shown", async () => (await page.locator("#log").textContent()).includes("Epoch (6/6)"));
    await checkAccess(page, "log");
    await page.locator("#tab-log").press("ArrowRight");
    check((await page.locator("#tab-charts").getAttribute("aria-selected")) === "true", "arrow keys change the tab");
    await page.click("#theme");
    check((await page.evaluate(() => getComputedStyle(document.body).backgroundColor)) === "rgb(15, 19, 27)", "the theme is dark");
    await until("charts are there", () => page.locator(".card canvas").count());
    await checkAccess(page, "charts, dark");
    await shot(page, "desktop-dark");
}

async function useOnPhone(browser, link) {
    const page = await open(browser, link, { viewport: { width: 390, height: 844 }, hasTouch: true, colorScheme: "dark" });
    check(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "nothing is wider than a phone");
    await page.click("#side summary");
    check(await page.locator("#filter").isVisible(), "the runs fold out");
    await page.locator('[data-metric="train/loss"]').getByRole("button", { name: "Zoom in" }).tap();
    await until("a finger zooms", () => page.locator('[data-metric="train/loss"].zoomed').count());
    await page.tap("#reset-zoom");
    await checkAccess(page, "phone");
    await page.click("#side summary");
    await shot(page, "phone-dark");
    await page.context().close();
}

async function showLargeRuns(browser) {
    const logs = path.join(folder, "large");
    writeLargeRuns(logs);
    const page = await open(browser, await board(logs));
    await until("ten runs of 100,000 points are drawn", () => page.evaluate(() => document.querySelectorAll("#runs li").length === 10 && document.querySelectorAll(".card canvas").length === 3));
    // On a machine that does nothing else it takes a quarter of a second.
    const paint = await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0].startTime);
    console.log(`first paint after ${Math.round(paint)} ms`);
    const peak = await page.evaluate(async () => (await (await fetch("api/curves?axis=epoch&loader=train&metric=loss&runs=4&buckets=300")).json()).curves[0]);
    check(peak.x.length <= 602 && peak.y.includes(9), "a peak survives the thinning");
    const frames = await page.evaluate(() => new Promise((done) => {
        const box = document.querySelector('[data-metric="train/loss"] .plot'), times = [];
        const step = (now) => {
            times.push(now);
            if (times.length < 60) {
                box.dispatchEvent(new KeyboardEvent("keydown", { key: times.length % 20 < 10 ? "+" : "-" }));
                requestAnimationFrame(step);
            } else {
                done(59000 / (times.at(-1) - times[0]));
            }
        };
        requestAnimationFrame(step);
    }));
    console.log(`${frames.toFixed(0)} frames a second while zooming`);
    await page.fill("#smooth", "0.99");
    await page.keyboard.press("Tab");
    await page.waitForTimeout(1000);
    await shot(page, "large");
    fs.rmSync(logs, { recursive: true });
    await until("the page says that the folder is gone", () => page.locator("#troubles").isVisible());
    check((await page.locator("#runs li").count()) === 0, "and goes on");
}

let browser, failed = false;
try {
    browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: flags, timeout: patience });
} catch (error) {
    console.log(error.message);
    process.exit(77);
}
try {
    const page = await watchLiveRun(browser);
    await turnControls(page);
    await walkTabs(page);
    await useOnPhone(browser, page.url());
    await showLargeRuns(browser);
    check(complaints.length === 0, `no console error${complaints.length ? `, but: ${complaints.join("; ")}` : ""}`);
} catch (error) {
    console.log(`FAILED: ${error.message}`);
    failed = true;
} finally {
    await browser.close();
    for (const child of children) child.kill("SIGKILL");
}
process.exit(failed ? 1 : 0);
