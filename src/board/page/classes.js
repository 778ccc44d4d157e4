// What the shown runs make of each class: the confusion matrix of an epoch, and the metrics of single classes.
import { askJson, askText } from "./api.js";
import { byId, fill, make } from "./dom.js";
import { number } from "./format.js";
import { shownRuns } from "./shown.js";
import { on, state } from "./state.js";

const mostRuns = 6, mostClasses = 60; // of a matrix that is drawn cell by cell
let drawn = "";

// ---- The confusion matrix ----

export function cellsOf(text) {
    return text.trim().split("\n").map((line) => line.split(",").map((cell) => cell.replace(/^"|"$/g, "")));
}

// A row per true class, coloured by the share of its row: a table, which a screen reader can walk through.
export function confusionTable(text, caption) {
    const [head, ...rows] = cellsOf(text);
    const counts = rows.map((row) => row.slice(1).map(Number));
    const cell = (value, sum, isRight) => {
        const share = sum > 0 ? value / sum : 0;
        const element = make("td", { class: isRight ? "number right" : "number", title: `${(100 * share).toFixed(1)}% of the true class` }, number(value));
        element.style.setProperty("--share", `${Math.round(85 * Math.sqrt(share))}%`);
        return element;
    };
    return make("table", { class: "confusion" }, make("caption", {}, caption),
        make("thead", {}, make("tr", {}, head.map((name, at) => make("th", { scope: "col" }, at === 0 ? "true \\ predicted" : name)))),
        make("tbody", {}, rows.map((row, at) => {
            const sum = counts[at].reduce((all, one) => all + one, 0);
            return make("tr", {}, make("th", { scope: "row" }, row[0]), counts[at].map((value, to) => cell(value, sum, to === at)));
        })));
}

function rightShare(text) {
    const counts = cellsOf(text).slice(1).map((row) => row.slice(1).map(Number));
    const all = counts.flat().reduce((sum, one) => sum + one, 0), right = counts.reduce((sum, row, at) => sum + row[at], 0);
    return all > 0 && counts.flat().every(Number.isInteger) ? `, ${(100 * right / all).toFixed(2)}% right` : "";
}

// {"confusion_matrix/valid": ["…_0001.csv", …]}
function matrices(files) {
    const found = new Map();
    for (const path of files.filter((one) => one.endsWith(".csv"))) {
        const name = path.replace(/[_-]?\d*\.csv$/, "");
        if (!found.has(name)) found.set(name, []);
        found.get(name).push(path);
    }
    return found;
}

function matrixFigure(run, name, paths) {
    const place = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${name} of ${run.name}` });
    const slider = make("input", { type: "range", min: 0, max: paths.length - 1, value: paths.length - 1, hidden: paths.length < 2, "aria-label": `Epoch of ${name} of ${run.name}` });
    const show = async () => {
        const path = paths[Number(slider.value)], epoch = Number(path.match(/(\d+)\.csv$/)?.[1]);
        const text = await askText("confusion", { run: run.id, path }).catch(() => "");
        if (paths[Number(slider.value)] !== path) return; // the slider has moved on
        const title = `${run.name}: ${name}${epoch ? `, epoch ${epoch}` : ""}${rightShare(text)}`;
        if (!text) fill(place, make("p", { class: "empty" }, "The file cannot be read."));
        else if (cellsOf(text).length > mostClasses) fill(place, make("p", { class: "empty" }, `${title}: ${cellsOf(text).length - 1} classes are too many for a table; see Pictures.`));
        else fill(place, confusionTable(text, title));
    };
    slider.addEventListener("input", show);
    show();
    return make("figure", { class: "card" }, slider, place);
}

// ---- The metrics of single classes ----

// {loader: {classes: ["class_00", …], metrics: ["f1", …], value: (metric, class)}}
function classMetrics(run) {
    const loaders = new Map();
    for (const series of run.series) {
        const found = series.axis === "epoch" && series.metric.match(/^([^_][^/]*)\/([^_/][^/]*)$/);
        if (!found || ["mean", "std"].includes(found[2])) continue; // "f1/class_03", not "f1/_macro" and "loss/std"
        const [, metric, name] = found;
        if (!loaders.has(series.loader)) loaders.set(series.loader, { classes: new Set(), metrics: new Map() });
        const loader = loaders.get(series.loader);
        loader.classes.add(name);
        if (!loader.metrics.has(metric)) loader.metrics.set(metric, new Map());
        loader.metrics.get(metric).set(name, series.last);
    }
    return loaders;
}

function classTable(run, loaderName, loader) {
    const metrics = [...loader.metrics.keys()].sort(), classes = [...loader.classes].sort((a, b) => a.localeCompare(b, undefined, { numeric: true }));
    const cell = (metric, name) => {
        const value = loader.metrics.get(metric).get(name);
        const element = make("td", { class: "number" }, number(value));
        if (typeof value === "number" && value >= 0 && value <= 1) element.style.setProperty("--share", `${Math.round(60 * value)}%`);
        return element;
    };
    return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Classes of ${run.name}, ${loaderName}` }, make("table", { class: "bars" },
        make("caption", {}, `${run.name}: ${loaderName}, last epoch`),
        make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "class"), metrics.map((name) => make("th", { scope: "col", class: "number" }, name)))),
        make("tbody", {}, classes.map((name) => make("tr", {}, make("th", { scope: "row" }, name), metrics.map((metric) => cell(metric, name)))))));
}

// ---- All of it ----

async function draw() {
    if (state.tab !== "classes") return;
    const runs = shownRuns().slice(0, mostRuns);
    const lists = await Promise.all(runs.map((run) => askJson("files", { run: run.id }).catch(() => ({ files: [] }))));
    const tables = runs.map(classMetrics);
    const wish = JSON.stringify([runs.map((run) => run.id), lists, tables.map((one) => [...one].map(([name, loader]) => [name, [...loader.metrics].map(([metric, values]) => [metric, [...values]])]))]);
    if (state.tab !== "classes" || wish === drawn) return;
    drawn = wish;
    const figures = runs.flatMap((run, at) => [...matrices(lists[at].files)].map(([name, paths]) => matrixFigure(run, name, paths)));
    const rows = runs.flatMap((run, at) => [...tables[at]].map(([name, loader]) => classTable(run, name, loader)));
    const sections = [figures.length ? make("section", {}, make("h3", {}, "Confusion matrices"), make("div", { class: "grid wide" }, figures)) : null,
        rows.length ? make("section", {}, make("h3", {}, "Metrics of single classes"), make("div", { class: "grid wide" }, rows)) : null];
    fill(byId("classes"), figures.length + rows.length ? sections
        : make("p", { class: "empty" }, "The shown runs have no confusion matrix and no metric of single classes: ConfusionMatrixCallback and compute_per_class_metrics make them."));
}

export function startClasses() {
    on("runs shown tab", draw);
}
