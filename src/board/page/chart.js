// One chart: a metric of all shown runs, drawn by uPlot. It asks the server for what is visible, thinned to its
// width, and asks again when it is zoomed.
import { askJson } from "./api.js";
import { later, make } from "./dom.js";
import { number, xValue } from "./format.js";
import { best, find, keyOf, shortName, title } from "./metrics.js";
import { colourIndex, shownRuns } from "./shown.js";
import { state } from "./state.js";
import { colourOf, cssColour, dashOf } from "./theme.js";

const height = 220;

// For the logarithmic scale, which has no place for what is not positive.
const drawable = (values) => (state.logScale ? values.map((value) => (value > 0 ? value : null)) : values);

export class Chart {
    constructor(series) {
        this.series = series;
        this.key = keyOf(series);
        this.isVisible = false;
        this.isStale = true;
        this.asked = 0;
        this.zoom = null; // [from, to] of the axis
        this.curves = [];
        this.plot = null;
        this.box = make("div", { class: "plot", tabindex: "0", role: "group", "aria-roledescription": "chart", "aria-describedby": "zoom-help" });
        this.tip = make("div", { class: "tip", "aria-hidden": "true", hidden: true });
        this.summary = make("p", { class: "hidden-text" });
        this.latest = make("p", { class: "latest" });
        this.element = make("article", { class: "card", "data-metric": shortName(series) },
            make("h3", {}, title(series)), this.latest, this.touchButtons(), this.box, this.tip, this.summary);
        this.box.addEventListener("keydown", (event) => this.takeKey(event));
        this.box.addEventListener("dblclick", () => this.zoomTo(null));
        this.refine = later(120, () => this.load());
    }

    runs() {
        return shownRuns().filter((run) => find(run, this.key));
    }

    // What is to be drawn, as one text: if it has not changed, nothing is asked.
    wish() {
        const points = this.runs().map((run) => `${run.id}:${find(run, this.key).n}:${run.updated}`);
        return [state.x, state.smooth, this.zoom ?? "", this.box.clientWidth, ...points].join(" ");
    }

    async load() {
        if (!this.isVisible) {
            this.isStale = true;
            return;
        }
        const wish = this.wish(), asked = ++this.asked;
        this.isStale = false;
        if (wish === this.drawn) return;
        const { axis, loader, metric } = this.series;
        const runs = this.runs();
        // Each run has points at places of its own, and each place is a step of the drawing for all of them.
        const width = Math.min(this.box.clientWidth, 1000) / (runs.length > 4 ? 2 : 1);
        const query = { axis, loader, metric, runs: runs.map((run) => run.id), x: state.x, smooth: state.smooth,
            buckets: Math.max(100, Math.round(width)) };
        if (this.zoom) [query.from, query.to] = this.zoom;
        try {
            const { curves } = await askJson("curves", query);
            if (asked !== this.asked) return; // a later question is under way
            this.curves = curves.filter((curve) => state.runs.has(curve.run));
            this.drawn = wish;
            if (!this.zoom) this.whole = this.extent();
            this.draw();
        } catch {
            this.drawn = ""; // the next news asks again
        }
    }

    // ---- Drawing ----

    lines() {
        const faint = [], lines = [];
        for (const curve of this.curves) {
            const run = state.runs.get(curve.run), { x, y, s } = curve;
            if (s) faint.push({ run, x, y, isFaint: true });
            lines.push({ run, x, y: s ?? y, isFaint: false });
        }
        return [...faint, ...lines]; // what is smooth lies on top
    }

    options(lines) {
        const ink = cssColour("--muted"), grid = cssColour("--grid"), isTime = state.x === "time";
        const axis = { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 }, font: "12px system-ui, sans-serif" };
        const spare = state.x === "relative" ? { values: (u, ticks) => ticks.map((tick) => xValue(tick, "relative")) } : {};
        return {
            width: Math.max(this.box.clientWidth, 120), height, padding: [10, 30, 0, 0],
            legend: { show: false },
            cursor: { drag: { x: true, y: false, setScale: false }, focus: { prox: 24 }, points: { size: 7 }, bind: { dblclick: () => null } },
            focus: { alpha: 0.35 },
            scales: { x: { time: isTime, range: (u, low, high) => this.zoom ?? (low === high ? [low - 0.5, high + 0.5] : [low, high]) },
                y: { distr: state.logScale ? 3 : 1 } },
            axes: [{ ...axis, ...spare, space: 60, size: isTime ? 46 : 30 }, { ...axis, size: 62, values: (u, ticks) => ticks.map((tick) => (tick === null ? "" : number(tick))) }],
            series: [{}, ...lines.map((line) => this.lineOptions(line))],
            hooks: {
                setSelect: [(u) => this.takeSelection(u)],
                setCursor: [(u) => this.showTip(u)],
            },
        };
    }

    lineOptions(line) {
        const index = colourIndex(line.run);
        const isFew = line.x.length <= 60 && !line.isFaint;
        return { stroke: colourOf(index) + (line.isFaint ? "33" : ""), width: line.isFaint ? 1 : 1.75, dash: line.isFaint ? [] : dashOf(index),
            spanGaps: true, points: { show: isFew, size: 5, fill: cssColour("--card") } };
    }

    draw() {
        const lines = this.lines();
        const shape = [cssColour("--muted"), state.x, state.logScale, ...lines.map((line) => [line.run.id, line.isFaint, line.x.length <= 60])].join();
        const tables = lines.map((line) => [line.x, drawable(line.y)]);
        const data = tables.length ? uPlot.join(tables) : [[], ...lines.map(() => [])];
        this.current = lines;
        if (this.plot && shape === this.shape) {
            this.plot.setData(data);
        } else {
            this.plot?.destroy();
            this.plot = new uPlot(this.options(lines), data, this.box);
            this.shape = shape;
        }
        this.describe();
    }

    resize() {
        if (!this.plot || this.box.clientWidth === this.plot.width || !this.box.clientWidth) return;
        this.plot.setSize({ width: this.box.clientWidth, height });
        this.refine();
    }

    highlight() {
        if (!this.plot || !this.current) return;
        for (const [at, line] of this.current.entries()) {
            const isDim = state.highlighted && line.run.id !== state.highlighted;
            this.plot.series[at + 1].alpha = isDim ? 0.15 : 1;
        }
        this.plot.redraw(false);
    }

    // What a screen reader says instead of the drawing, and what stands above it.
    describe() {
        const facts = this.runs().map((run) => {
            const series = find(run, this.key), top = best(run, series);
            const worst = series.last === "NaN" ? "; not a number at last" : "";
            return `${run.name}: last ${number(series.last)}, best ${number(top.value)} at ${series.axis} ${number(top.at)}${worst}`;
        });
        const one = this.runs().length === 1 ? find(this.runs()[0], this.key) : null;
        this.box.setAttribute("aria-label", `${title(this.series)}, ${facts.length} ${facts.length === 1 ? "run" : "runs"}`);
        this.summary.textContent = facts.slice(0, 20).join(". ");
        this.latest.textContent = one ? number(one.last) : "";
    }

    showTip(u) {
        const at = u.cursor.idx;
        if (at === null || at === undefined || u.cursor.left < 0) {
            this.tip.hidden = true;
            return;
        }
        const rows = this.current.flatMap((line, i) => {
            const near = line.isFaint ? null : nearest(u.data[i + 1], at);
            if (near === null) return [];
            const swatch = make("span", { class: "swatch" });
            swatch.style.backgroundColor = colourOf(colourIndex(line.run));
            return [make("p", {}, swatch, make("span", { class: "name" }, line.run.name), make("b", {}, number(u.data[i + 1][near])))];
        });
        this.tip.replaceChildren(make("p", { class: "at" }, `${state.x === "step" ? this.series.axis : "time"} ${xValue(u.data[0][at], state.x)}`), ...rows.slice(0, 12));
        this.tip.hidden = false;
        const left = this.box.offsetLeft + u.over.offsetLeft + u.cursor.left;
        const isRight = u.cursor.left > u.over.clientWidth / 2;
        this.tip.style.top = `${this.box.offsetTop + 8}px`;
        this.tip.style.left = isRight ? "" : `${left + 14}px`;
        this.tip.style.right = isRight ? `${this.element.clientWidth - left + 14}px` : "";
    }

    // ---- Zooming ----

    extent() {
        const xs = this.curves.flatMap((curve) => (curve.x.length ? [curve.x[0], curve.x.at(-1)] : []));
        return [Math.min(...xs), Math.max(...xs)];
    }

    zoomTo(range) {
        const isWhole = range && this.whole && range[0] <= this.whole[0] && range[1] >= this.whole[1];
        this.zoom = range && range[1] > range[0] && !isWhole ? range : null;
        this.element.classList.toggle("zoomed", this.zoom !== null);
        if (this.plot && this.zoom) this.plot.setScale("x", { min: this.zoom[0], max: this.zoom[1] });
        this.refine();
    }

    takeSelection(u) {
        if (u.select.width < 4) return;
        this.zoomTo([u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")]);
        u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    }

    // Moves both ends of what is visible by shares of its width.
    move(left, right) {
        const [from, to] = this.zoom ?? this.extent(), width = to - from;
        if (width > 0) this.zoomTo([from + left * width, to + right * width]);
    }

    takeKey(event) {
        const moves = {
            "+": () => this.move(0.25, -0.25),
            "=": () => this.move(0.25, -0.25), // the same key without shift
            "-": () => this.move(-0.5, 0.5),
            ArrowLeft: () => this.move(-0.125, -0.125),
            ArrowRight: () => this.move(0.125, 0.125),
            0: () => this.zoomTo(null),
        };
        if (!moves[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
        event.preventDefault();
        moves[event.key]();
    }

    // A finger that drags scrolls the page, so it zooms with buttons.
    touchButtons() {
        const button = (text, label, action) => make("button", { type: "button", "aria-label": `${label}: ${title(this.series)}`, onclick: action }, text);
        return make("div", { class: "touch" }, button("−", "Zoom out", () => this.move(-0.5, 0.5)), button("+", "Zoom in", () => this.move(0.25, -0.25)));
    }
}

// The point of a line at an index of the joined axis, or the nearest one beside it; null if it has none.
function nearest(values, at) {
    const most = 200;
    for (let away = 0; away < most; away++) {
        if (typeof values[at - away] === "number") return at - away;
        if (typeof values[at + away] === "number") return at + away;
    }
    return null;
}
