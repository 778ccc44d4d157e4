// All charts: one per metric, made when the metric first appears and drawn while it is in sight.
import { Chart } from "./chart.js";
import { byId, fill, later } from "./dom.js";
import { allMetrics, isMain, isRankTime, isSystem, keyOf, shortName } from "./metrics.js";
import { shownRuns } from "./shown.js";
import { announce, on, remember, state } from "./state.js";

const charts = new Map();

const inSight = new IntersectionObserver((entries) => {
    for (const entry of entries) {
        const chart = [...charts.values()].find((one) => one.element === entry.target);
        if (!chart) continue;
        chart.isVisible = entry.isIntersecting;
        if (chart.isVisible && chart.isStale) chart.load();
    }
}, { rootMargin: "200px" });

const resized = new ResizeObserver((entries) => {
    for (const entry of entries) for (const chart of charts.values()) if (chart.box === entry.target) chart.resize();
});

function chartOf(series) {
    const key = keyOf(series);
    if (!charts.has(key)) {
        const chart = new Chart(series);
        charts.set(key, chart);
        inSight.observe(chart.element);
        resized.observe(chart.box);
    }
    return charts.get(key);
}

// The elements of a grid are only moved if they are others than before: a chart under the pointer stays.
function place(grid, wanted) {
    const elements = wanted.map((chart) => chart.element);
    const isSame = grid.children.length === elements.length && elements.every((element, at) => grid.children[at] === element);
    if (!isSame) fill(grid, elements);
}

function sayNone(runs, count) {
    const none = byId("no-charts");
    none.hidden = count > 0;
    none.textContent = state.runs.size === 0 ? "No run yet. A run appears here as soon as it writes to its logdir."
        : runs.length === 0 ? "No run is shown. Tick one at the side, or change the filter."
        : state.metricFilter ? "No metric has this name." : "Nothing is logged yet. The first point comes with the first epoch.";
}

function draw() {
    const runs = shownRuns();
    const wanted = allMetrics(runs).filter((series) => shortName(series).toLowerCase().includes(state.metricFilter.toLowerCase()));
    const main = wanted.filter(isMain).map(chartOf), more = wanted.filter((series) => !isMain(series) && !isSystem(series)).map(chartOf);
    const system = wanted.filter((series) => isSystem(series) && !isRankTime(series)).map(chartOf);
    place(byId("charts"), main);
    place(byId("more-charts"), more);
    place(byId("system-charts"), system);
    byId("system").hidden = system.length === 0;
    byId("more").hidden = more.length === 0;
    byId("more-count").textContent = more.length;
    sayNone(runs, wanted.length);
    for (const chart of charts.values()) chart.load();
}

function redraw() {
    for (const chart of charts.values()) {
        chart.drawn = "";
        chart.load();
    }
}

function startControls() {
    const smooth = byId("smooth"), x = byId("x-axis"), log = byId("log-scale"), filter = byId("metric-filter");
    const say = () => { byId("smooth-value").textContent = Number(smooth.value).toFixed(2); };
    const smoothed = later(60, () => announce("view"));
    smooth.value = state.smooth;
    x.value = state.x;
    log.checked = state.logScale;
    say();
    smooth.addEventListener("input", () => { state.smooth = Number(smooth.value); say(); remember(); smoothed(); });
    x.addEventListener("change", () => {
        state.x = x.value;
        for (const chart of charts.values()) chart.zoom = null;
        remember();
        announce("view");
    });
    log.addEventListener("change", () => { state.logScale = log.checked; remember(); announce("view"); });
    filter.addEventListener("input", () => { state.metricFilter = filter.value; draw(); });
    byId("reset-zoom").addEventListener("click", () => { for (const chart of charts.values()) chart.zoomTo(null); });
}

export function startCharts() {
    startControls();
    on("runs shown tab", draw);
    on("view theme", redraw);
    on("highlight", () => { for (const chart of charts.values()) if (chart.isVisible) chart.highlight(); });
}
