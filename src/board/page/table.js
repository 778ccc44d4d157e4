// The table of runs: its settings and metrics, sorted by any of them.
import { byId, fill, make } from "./dom.js";
import { duration, moment, number } from "./format.js";
import { allMetrics, best, find, isMain, isRankTime, isSmallerBetter, keyOf, shortName } from "./metrics.js";
import { badge, span } from "./run-list.js";
import { colourIndex, listedRuns } from "./shown.js";
import { on, state } from "./state.js";
import { colourOf } from "./theme.js";

let sortedBy = "name", isDown = false;

function nameCell(run) {
    const swatch = make("span", { class: "swatch", "aria-hidden": "true" });
    swatch.style.backgroundColor = colourOf(colourIndex(run));
    return make("span", { class: "run-name" }, swatch, run.name);
}

const own = [
    { name: "name", value: (run) => run.name, show: nameCell },
    { name: "state", value: (run) => run.state, show: badge },
    { name: "epochs", value: (run) => run.epochs, show: (run) => (run.num_epochs ? `${run.epochs} / ${run.num_epochs}` : run.epochs) },
    { name: "duration", value: span, show: (run) => duration(span(run)) },
];
const written = { name: "last written", value: (run) => run.updated, show: (run) => moment(run.updated) };

// Settings that are the same in all runs which have them say nothing here: the tab Config has them.
function settingColumns(runs) {
    const names = [...new Set(runs.flatMap((run) => Object.keys(run.hparams)))].filter((name) => name !== "num_epochs");
    const differs = (name) => new Set(runs.filter((run) => name in run.hparams).map((run) => JSON.stringify(run.hparams[name]))).size > 1;
    return names.filter(differs).map((name) => ({ name, value: (run) => run.hparams[name], show: (run) => number(run.hparams[name]) }));
}

function metricColumns(runs) {
    const wantsBest = byId("table-value").value === "best", wantsAll = byId("table-more").checked;
    return allMetrics(runs).filter((series) => (wantsAll ? !isRankTime(series) : isMain(series))).map((series) => {
        const key = keyOf(series);
        const value = (run) => {
            const found = find(run, key);
            return found ? (wantsBest ? best(run, found).value : found.last) : undefined;
        };
        const numbers = runs.map(value).filter((one) => typeof one === "number");
        const top = isSmallerBetter(runs[0], series) ? Math.min(...numbers) : Math.max(...numbers);
        const show = (run) => {
            const found = find(run, key), shown = value(run);
            if (!found || shown === undefined) return "–";
            const place = wantsBest ? `at ${found.axis} ${number(best(run, found).at)}` : null;
            const isTop = numbers.length > 1 && shown === top;
            return make("span", { title: place, class: isTop ? "top" : null }, number(shown), isTop ? make("span", { class: "hidden-text" }, " (best)") : null);
        };
        return { name: shortName(series), value, show, isNumber: true };
    });
}

function compareBy(column) {
    const sign = isDown ? -1 : 1;
    return (a, b) => {
        const left = column.value(a), right = column.value(b);
        const isLeft = left !== undefined && left !== null && left === left, isRight = right !== undefined && right !== null && right === right;
        if (!isLeft || !isRight) return Number(isRight) - Number(isLeft); // what has no value comes last
        if (typeof left === "number" && typeof right === "number") return sign * (left - right);
        if (typeof left === "number" || typeof right === "number") return typeof left === "number" ? -1 : 1; // "NaN"
        return sign * String(left).localeCompare(String(right), undefined, { numeric: true });
    };
}

function header(column) {
    const isSorted = column.name === sortedBy;
    const button = make("button", { type: "button", "data-sort": column.name }, column.name, make("span", { "aria-hidden": "true" }, isSorted ? (isDown ? " ↓" : " ↑") : ""));
    button.addEventListener("click", () => {
        isDown = isSorted ? !isDown : false;
        sortedBy = column.name;
        draw();
        document.querySelector(`[data-sort="${CSS.escape(column.name)}"]`)?.focus();
    });
    return make("th", { scope: "col", "aria-sort": isSorted ? (isDown ? "descending" : "ascending") : "none", class: column.isNumber ? "number" : null }, button);
}

function draw() {
    if (state.tab !== "table") return;
    const runs = listedRuns(), box = byId("table");
    if (runs.length === 0) {
        fill(box, make("p", { class: "empty" }, "No run to list."));
        return;
    }
    const columns = [...own, ...metricColumns(runs), ...settingColumns(runs), written];
    const rows = runs.sort(compareBy(columns.find((column) => column.name === sortedBy) ?? own[0]));
    const cells = (run) => columns.map((column, at) => (at === 0 ? make("th", { scope: "row" }, column.show(run))
        : make("td", { class: column.isNumber ? "number" : null }, column.show(run))));
    const focused = document.activeElement?.dataset?.sort;
    fill(box, make("table", {}, make("caption", { class: "hidden-text" }, "Runs, their settings and metrics"),
        make("thead", {}, make("tr", {}, columns.map(header))), make("tbody", {}, rows.map((run) => make("tr", {}, cells(run))))));
    if (focused) document.querySelector(`[data-sort="${CSS.escape(focused)}"]`)?.focus();
}

export function startTable() {
    byId("table-value").addEventListener("change", draw);
    byId("table-more").addEventListener("change", draw);
    on("runs shown tab theme", draw);
}
