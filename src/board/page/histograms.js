// Histograms over the epochs: each step is a ridge, the oldest at the back. Heights are square roots, so that the few
// numbers far from the others are seen beside the many.
import { askJson } from "./api.js";
import { byId, fill, later, make } from "./dom.js";
import { number } from "./format.js";
import { colourIndex, shownRuns } from "./shown.js";
import { on, state } from "./state.js";
import { colourOf, cssColour } from "./theme.js";

const mostRuns = 4, mostTags = 40, mostRidges = 24;
const width = 440, height = 230, left = 10, right = 46, bottom = 22, ridgeHeight = 60;
const known = new Map(); // id → {at, list}: what the server said when the run had last changed then
let drawn = "";

async function listOf(run) {
    const at = `${run.updated} ${run.last}`;
    if (known.get(run.id)?.at !== at) {
        const list = await askJson("histograms", { run: run.id }).catch(() => []);
        known.set(run.id, { at, list });
    }
    return known.get(run.id).list;
}

// As many as fit, the newest among them.
function thin(items) {
    const step = Math.ceil(items.length / mostRidges);
    return items.filter((item, at) => (items.length - 1 - at) % step === 0);
}

// The root of how many numbers there are per unit of the axis, so that buckets of other widths compare.
function densities(item) {
    return item.counts.map((count, at) => {
        const span = item.limits[at] - (at ? item.limits[at - 1] : item.min);
        return span > 0 ? Math.sqrt(count / span) : 0;
    });
}

function paintRidge(context, item, density, xOf, base, scale, colour) {
    context.beginPath();
    context.moveTo(xOf(item.min), base);
    item.limits.forEach((limit, at) => {
        const from = at ? item.limits[at - 1] : item.min;
        context.lineTo(xOf((from + limit) / 2), base - density[at] * scale);
    });
    context.lineTo(xOf(item.limits.at(-1)), base);
    context.closePath();
    context.fillStyle = colour;
    context.globalAlpha = 0.75;
    context.fill();
    context.globalAlpha = 1;
    context.strokeStyle = cssColour("--card");
    context.lineWidth = 1;
    context.stroke();
}

function paint(canvas, items, colour) {
    const ratio = devicePixelRatio || 1, context = canvas.getContext("2d");
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    context.scale(ratio, ratio);
    const low = Math.min(...items.map((item) => item.min)), high = Math.max(...items.map((item) => item.limits.at(-1)));
    const xOf = (value) => left + (high > low ? (value - low) / (high - low) : 0.5) * (width - left - right);
    const all = items.map(densities), top = Math.max(...all.flat(), 1e-300);
    const baseOf = (at) => (items.length < 2 ? height - bottom : ridgeHeight + (height - bottom - ridgeHeight) * at / (items.length - 1));
    context.font = "11px system-ui, sans-serif";
    items.forEach((item, at) => {
        paintRidge(context, item, all[at], xOf, baseOf(at), ridgeHeight / top, colour);
        const isTold = at === 0 || at === items.length - 1 || at % Math.ceil(items.length / 6) === 0 && items.length - 1 - at > items.length / 9;
        context.fillStyle = cssColour("--muted");
        if (isTold) context.fillText(number(item.step), width - right + 6, baseOf(at) + 4);
    });
    context.textAlign = "center";
    for (const share of [0, 0.5, 1]) {
        const value = low + share * (high - low);
        context.textAlign = share === 0 ? "left" : share === 1 ? "right" : "center";
        context.fillText(number(Number(value.toPrecision(3))), xOf(value), height - 6);
    }
}

function figure(run, series) {
    const items = thin(series.items.filter((item) => item.limits.length > 0 && item.limits.every((one) => typeof one === "number")));
    if (items.length === 0) return null;
    const last = items.at(-1), name = series.loader && series.loader !== "train" ? `${series.loader} ${series.tag}` : series.tag;
    const label = `${name} of ${run.name}: ${items.length} ${items.length === 1 ? "histogram" : "histograms"}; the last one, of step ${number(last.step)}, goes from ${number(last.min)} to ${number(last.limits.at(-1))}`;
    const canvas = make("canvas", { class: "ridges", role: "img", "aria-label": label });
    paint(canvas, items, colourOf(colourIndex(run)));
    return make("figure", { class: "card" }, make("figcaption", {}, `${run.name}: ${name}`), canvas);
}

async function draw() {
    if (state.tab !== "histograms") return;
    const runs = shownRuns(), looked = runs.slice(0, mostRuns), lists = await Promise.all(looked.map(listOf));
    const wanted = byId("histogram-filter").value.toLowerCase();
    const wish = JSON.stringify([wanted, cssColour("--card"), looked.map((run) => [run.id, known.get(run.id)?.at])]);
    if (state.tab !== "histograms" || wish === drawn) return;
    drawn = wish;
    const tags = [...new Set(lists.flat().map((series) => series.tag))].filter((tag) => tag.toLowerCase().includes(wanted))
        .sort((a, b) => a.localeCompare(b, undefined, { numeric: true }));
    const figures = tags.slice(0, mostTags).flatMap((tag) => looked.flatMap((run, at) => lists[at].filter((series) => series.tag === tag).map((series) => figure(run, series)))).filter(Boolean);
    const notes = [runs.length > mostRuns ? `The first ${mostRuns} of ${runs.length} shown runs.` : "", tags.length > mostTags ? `The first ${mostTags} of ${tags.length} names.` : ""].filter(Boolean);
    fill(byId("histograms"), notes.length ? make("p", { class: "hint" }, notes.join(" ")) : null, figures.length ? make("div", { class: "grid" }, figures)
        : make("p", { class: "empty" }, wanted ? "No histogram has this name." : "The shown runs have no histograms: the callback Histogram makes them."));
}

export function startHistograms() {
    byId("histogram-filter").addEventListener("input", later(150, draw));
    on("runs shown tab theme", draw);
}
