// Parallel coordinates: an axis per setting that differs between the shown runs, one for a metric at the right, and a
// line per run. Dragging along an axis keeps the runs that pass there; a click on its name forgets that.
import { byId, fill, make } from "./dom.js";
import { number } from "./format.js";
import { allMetrics, best, find, isSmallerBetter, isSystem, keyOf, shortName } from "./metrics.js";
import { shownRuns } from "./shown.js";
import { announce, on, state } from "./state.js";
import { isDark } from "./theme.js";

const height = 380, top = 48, bottom = 24, left = 70, right = 90;
const kept = new Map(); // name of an axis → [low, high] of what is kept, 0 to 1 from the bottom
let drawn = "";

function svg(tag, attributes = {}, ...children) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) if (value !== null) element.setAttribute(name, String(value));
    element.append(...children.flat());
    return element;
}

// ---- Axes ----

// Where a value lies on its axis, 0 to 1 from the bottom; numbers that span more than a decade lie by their logarithm.
function makeAxis(name, runs, value) {
    const values = runs.map(value).filter((one) => one !== undefined && one !== null);
    const isNumeric = values.length > 0 && values.every((one) => typeof one === "number");
    if (!isNumeric) {
        const texts = [...new Set(values.map((one) => number(one)))].sort((a, b) => a.localeCompare(b, undefined, { numeric: true }));
        const place = (run) => (value(run) === undefined || value(run) === null ? null : texts.length < 2 ? 0.5 : texts.indexOf(number(value(run))) / (texts.length - 1));
        const step = Math.ceil(texts.length / 12);
        return { name, place, ticks: texts.map((text, at) => [texts.length < 2 ? 0.5 : at / (texts.length - 1), text]).filter((tick, at) => at % step === 0) };
    }
    const low = Math.min(...values), high = Math.max(...values), isLog = low > 0 && high / low >= 30;
    const scale = isLog ? Math.log10 : (one) => one;
    const at = (one) => (high === low ? 0.5 : (scale(one) - scale(low)) / (scale(high) - scale(low)));
    const ticks = high === low ? [[0.5, number(low)]] : [0, 0.25, 0.5, 0.75, 1].map((share) => {
        const one = scale(low) + share * (scale(high) - scale(low));
        return [share, number(Number((isLog ? 10 ** one : one).toPrecision(3)))];
    });
    const place = (run) => (typeof value(run) === "number" ? at(value(run)) : null);
    return { name: isLog ? `${name} (log)` : name, key: name, place, ticks };
}

function settingAxes(runs) {
    const names = [...new Set(runs.flatMap((run) => Object.keys(run.hparams)))];
    return names.filter((name) => new Set(runs.map((run) => JSON.stringify(run.hparams[name]))).size > 1)
        .map((name) => makeAxis(name, runs, (run) => run.hparams[name]));
}

// ---- The metric ----

function metrics(runs) {
    return allMetrics(runs).filter((series) => !isSystem(series));
}

function chosenMetric(runs) {
    const select = byId("parallel-metric"), all = metrics(runs);
    const decisive = all.find((series) => runs.some((run) => run.valid_loader === series.loader && run.valid_metric === series.metric));
    const chosen = all.find((series) => keyOf(series) === select.value) ?? decisive ?? all[0];
    const options = all.map((series) => make("option", { value: keyOf(series) }, shortName(series)));
    if (select.dataset.names !== options.map((one) => one.value).join("\t")) {
        select.dataset.names = options.map((one) => one.value).join("\t");
        fill(select, options);
    }
    if (chosen) select.value = keyOf(chosen);
    return chosen;
}

// From bad to good: a blue that pales or glows.
function shade(goodness) {
    if (goodness === null) return isDark() ? "#6b7280" : "#9aa3b2";
    const [from, to] = isDark() ? [[76, 58, 110], [255, 209, 92]] : [[176, 190, 222], [196, 52, 10]];
    return `rgb(${from.map((one, i) => Math.round(one + (to[i] - one) * goodness)).join()})`;
}

// ---- Drawing ----

const yOf = (place) => top + (1 - place) * (height - top - bottom);

function axisElement(axis, x, redraw) {
    const range = kept.get(axis.name);
    const name = svg("text", { x, y: 20, "text-anchor": "middle", class: "axis-name" }, axis.name.length > 22 ? `${axis.name.slice(0, 21)}…` : axis.name);
    name.append(svg("title", {}, axis.name));
    const grip = svg("rect", { x: x - 14, y: top - 8, width: 28, height: height - top - bottom + 16, class: "grip" });
    const band = svg("rect", { x: x - 7, width: 14, y: range ? yOf(range[1]) : 0, height: range ? yOf(range[0]) - yOf(range[1]) : 0, class: "band" });
    const ticks = axis.ticks.map(([place, text]) => svg("text", { x: x - 8, y: yOf(place) + 4, "text-anchor": "end", class: "tick" }, text.length > 14 ? `${text.slice(0, 13)}…` : text));
    const placeOf = (event) => {
        const box = grip.ownerSVGElement.getBoundingClientRect();
        return Math.min(1, Math.max(0, 1 - (event.clientY - box.top - top) / (height - top - bottom)));
    };
    grip.addEventListener("pointerdown", (event) => {
        const from = placeOf(event);
        grip.setPointerCapture(event.pointerId);
        const move = (other) => {
            const to = placeOf(other), low = Math.min(from, to), high = Math.max(from, to);
            kept.set(axis.name, [low, high]);
            band.setAttribute("y", yOf(high));
            band.setAttribute("height", yOf(low) - yOf(high));
        };
        grip.addEventListener("pointermove", move);
        grip.addEventListener("pointerup", (other) => {
            grip.removeEventListener("pointermove", move);
            if (Math.abs(placeOf(other) - from) < 0.02) kept.delete(axis.name);
            redraw();
        }, { once: true });
    });
    return svg("g", {}, svg("line", { x1: x, x2: x, y1: top, y2: height - bottom, class: "axis" }), name, ticks, band, grip);
}

function passes(run, axes) {
    return axes.every((axis) => {
        const range = kept.get(axis.name), place = axis.place(run);
        return !range || (place !== null && place >= range[0] - 1e-9 && place <= range[1] + 1e-9);
    });
}

function line(run, axes, xs, colour, isKept) {
    const points = axes.flatMap((axis, at) => (axis.place(run) === null ? [] : [`${xs[at]},${yOf(axis.place(run)).toFixed(1)}`]));
    const element = svg("polyline", { points: points.join(" "), class: isKept ? "run" : "run away", stroke: colour, "data-run": run.id });
    element.append(svg("title", {}, run.name));
    element.addEventListener("pointerenter", () => { state.highlighted = run.id; announce("highlight"); });
    element.addEventListener("pointerleave", () => { state.highlighted = 0; announce("highlight"); });
    return element;
}

function picture(runs, axes, series, redraw) {
    const box = byId("parallel"), width = Math.max(box.clientWidth - 14, left + right + (axes.length - 1) * 110);
    const xs = axes.map((axis, at) => (axes.length < 2 ? width / 2 : left + at * (width - left - right) / (axes.length - 1)));
    const result = axes.at(-1);
    const goodness = (run) => {
        const place = result.place(run);
        return place === null ? null : isSmallerBetter(run, series) ? 1 - place : place;
    };
    const inOrder = [...runs].sort((a, b) => (goodness(a) ?? -1) - (goodness(b) ?? -1)); // the best lie on top
    return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${runs.length} runs over ${axes.map((axis) => axis.name).join(", ")}` },
        inOrder.map((run) => line(run, axes, xs, shade(goodness(run)), passes(run, axes))), axes.map((axis, at) => axisElement(axis, xs[at], redraw)));
}

function draw(isForced) {
    if (state.tab !== "parallel") return;
    const runs = shownRuns(), box = byId("parallel");
    const series = chosenMetric(runs);
    const wish = JSON.stringify([series && keyOf(series), isDark(), box.clientWidth, runs.map((run) => [run.id, run.hparams, series && find(run, keyOf(series))])]);
    if (wish === drawn && isForced !== true) return;
    drawn = wish;
    const settings = settingAxes(runs);
    if (!series || settings.length === 0) {
        fill(box, make("p", { class: "empty" }, runs.length < 2 ? "Two runs or more are needed." : series ? "The settings of the shown runs do not differ." : "The shown runs have no metric yet."));
        return;
    }
    const value = (run) => {
        const found = find(run, keyOf(series));
        return found ? best(run, found).value : undefined;
    };
    const axes = [...settings, makeAxis(`best ${shortName(series)}`, runs, value)];
    fill(box, picture(runs, axes, series, () => draw(true)));
    const count = runs.filter((run) => passes(run, axes)).length;
    byId("parallel-count").textContent = count === runs.length ? `${count} runs` : `${count} of ${runs.length} runs`;
}

function highlight() {
    for (const element of document.querySelectorAll("#parallel .run"))
        element.classList.toggle("near", Number(element.dataset.run) === state.highlighted);
}

export function startParallel() {
    byId("parallel-metric").addEventListener("change", () => draw(true));
    byId("parallel-reset").addEventListener("click", () => { kept.clear(); draw(true); });
    new ResizeObserver(() => draw()).observe(byId("parallel"));
    on("runs shown tab theme", draw);
    on("highlight", highlight);
}
