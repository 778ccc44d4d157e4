// Where each rank's time goes, below the charts of the system: what the run last said of it.
import { byId, fill, make } from "./dom.js";
import { number } from "./format.js";
import { isSystem } from "./metrics.js";
import { shownRuns } from "./shown.js";
import { on, state } from "./state.js";

const most = 8; // runs
const parts = [["compute_ms", "computing"], ["communication_ms", "communication"], ["loader_ms", "waiting for data"]];

// [{rank, compute_ms, …}], by rank
function ranksOf(run) {
    const ranks = new Map();
    for (const series of run.series) {
        const found = isSystem(series) && series.metric.match(/^rank(\d+)\/(.+)$/);
        if (!found || typeof series.last !== "number") continue;
        const rank = Number(found[1]);
        if (!ranks.has(rank)) ranks.set(rank, { rank });
        ranks.get(rank)[found[2]] = series.last;
    }
    return [...ranks.values()].sort((a, b) => a.rank - b.rank);
}

const sum = (one) => parts.reduce((all, [key]) => all + (one[key] ?? 0), 0);

function bar(one, longest) {
    const pieces = parts.map(([key, name]) => {
        const piece = make("span", { class: `part ${key}`, title: `${name}: ${number(one[key])} ms` });
        piece.style.width = `${100 * (one[key] ?? 0) / longest}%`;
        return piece;
    });
    return make("div", { class: "bar", "aria-hidden": "true" }, pieces);
}

function row(one, longest, columns) {
    const share = (key) => (one[key] === undefined ? "–" : `${number(one[key])} (${Math.round(100 * one[key] / sum(one))}%)`);
    return make("tr", {}, make("th", { scope: "row" }, one.rank), make("td", { class: "wide" }, bar(one, longest)),
        parts.map(([key]) => make("td", { class: "number" }, share(key))),
        columns.map((key) => make("td", { class: "number" }, number(one[key]))));
}

function table(run) {
    const ranks = ranksOf(run), longest = Math.max(...ranks.map(sum));
    if (ranks.length === 0 || !(longest > 0)) return null;
    const memory = [["memory_mb", "memory, MiB"], ["gpu_memory_mb", "GPU memory, MiB"]].filter(([key]) => ranks.some((one) => key in one));
    const heads = ["rank", "a step", ...parts.map(([, name]) => `${name}, ms`), ...memory.map(([, name]) => name)];
    return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Ranks of ${run.name}` }, make("table", { class: "ranks" },
        make("caption", {}, `${run.name}: a step on each rank`),
        make("thead", {}, make("tr", {}, heads.map((name, at) => make("th", { scope: "col", class: at > 1 ? "number" : null }, name)))),
        make("tbody", {}, ranks.map((one) => row(one, longest, memory.map(([key]) => key))))));
}

function draw() {
    if (state.tab !== "charts") return;
    fill(byId("ranks"), shownRuns().slice(0, most).map(table));
}

export function startSystem() {
    on("runs shown tab", draw);
}
