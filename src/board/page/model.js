// The model of a run: its layers as a table, and how they follow one another as a drawing, with shapes.
import { askJson } from "./api.js";
import { byId, fill, make } from "./dom.js";
import { listedRuns } from "./shown.js";
import { on, state } from "./state.js";

const boxWidth = 172, boxHeight = 46, gapX = 24, gapY = 34, mostBoxes = 400, niceBoxes = 60;
const known = new Map(); // "id started" → model.json, or null
let drawn = "";

function svg(tag, attributes = {}, ...children) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
    element.append(...children.flat());
    return element;
}

const shapeText = (shape) => (Array.isArray(shape) ? shape.join(" × ") || "scalar" : "–");
const count = (parameters) => Number(parameters ?? 0).toLocaleString("en");
const isSound = (model) => Array.isArray(model?.layers) && Array.isArray(model?.nodes);

async function modelOf(run) {
    const key = `${run.id} ${run.started}`;
    if (!known.has(key)) {
        const model = await askJson("model", { run: run.id }).catch(() => null);
        if (!isSound(model)) return null; // it may come yet
        known.set(key, model);
    }
    return known.get(key);
}

// ---- Boxes: a layer down to some depth, or a single op ----

const depthOf = (path) => (path ? path.split(".").length : 0);

function boxesOf(model, depth) {
    const boxes = new Map(), boxOf = new Map(), layers = new Map(model.layers.map((layer) => [layer.path, layer]));
    for (const node of model.nodes) {
        const isGroup = depthOf(node.layer) >= depth && depth > 0;
        const path = isGroup ? node.layer.split(".").slice(0, depth).join(".") : node.layer;
        const key = isGroup ? `layer ${path}` : `op ${node.name}`, layer = isGroup ? layers.get(path) : null;
        if (!boxes.has(key)) boxes.set(key, { key, title: isGroup ? `${path} ${layer?.type ?? ""}` : node.op, parameters: layer?.parameters ?? 0, isInput: node.op === "input", from: new Set(), at: boxes.size });
        const box = boxes.get(key);
        box.shape = layer?.shape ?? node.shape;
        boxOf.set(node.name, key);
        for (const input of node.inputs) if (boxOf.has(input) && boxOf.get(input) !== key) box.from.add(boxOf.get(input));
    }
    return [...boxes.values()];
}

// Down by the longest way from an input; what flows back to an earlier box counts for nothing there. Across, next to
// what a box reads.
function place(boxes) {
    const byKey = new Map(boxes.map((box) => [box.key, box])), rows = [];
    for (const box of boxes) {
        const before = [...box.from].map((key) => byKey.get(key)).filter((one) => one.at < box.at);
        box.row = before.length ? 1 + Math.max(...before.map((one) => one.row)) : 0;
        (rows[box.row] ??= []).push(box);
    }
    const widest = Math.max(...rows.map((row) => row.length));
    for (const row of rows) {
        const wish = (box) => {
            const xs = [...box.from].map((key) => byKey.get(key).x).filter((x) => x !== undefined);
            return xs.length ? xs.reduce((sum, x) => sum + x, 0) / xs.length : 0;
        };
        const sorted = row.map((box) => [wish(box), box]).sort((a, b) => a[0] - b[0]);
        const begin = (widest - row.length) / 2;
        sorted.forEach(([, box], at) => {
            box.x = 10 + (begin + at) * (boxWidth + gapX);
            box.y = 10 + box.row * (boxHeight + gapY);
        });
    }
    return { byKey, width: widest * (boxWidth + gapX) + 20, height: rows.length * (boxHeight + gapY) + 20 };
}

function edge(from, to) {
    const x1 = from.x + boxWidth / 2, y1 = from.y + boxHeight, x2 = to.x + boxWidth / 2, y2 = to.y;
    // A longer way goes round the boxes between.
    const far = Math.abs(to.row - from.row) > 1 && Math.abs(x1 - x2) < boxWidth / 2 ? boxWidth * 0.75 : 0;
    const bend = Math.max(18, Math.abs(y2 - y1) / 3);
    return svg("path", { d: `M${x1},${y1} C${x1 + far},${y1 + bend} ${x2 + far},${y2 - bend} ${x2},${y2}`, class: "edge", "marker-end": "url(#arrow)" });
}

function boxElement(box) {
    const text = (y, content, name) => svg("text", { x: box.x + boxWidth / 2, y: box.y + y, "text-anchor": "middle", class: name }, content);
    const title = box.title.length > 24 ? `${box.title.slice(0, 23)}…` : box.title;
    const group = svg("g", { class: box.isInput ? "box input" : box.parameters ? "box trained" : "box" },
        svg("rect", { x: box.x, y: box.y, width: boxWidth, height: boxHeight, rx: 7 }), text(19, title, "title"), text(36, shapeText(box.shape), "shape"));
    group.append(svg("title", {}, `${box.title}: ${shapeText(box.shape)}${box.parameters ? `, ${count(box.parameters)} parameters` : ""}`));
    return group;
}

function picture(model, depth, name) {
    const boxes = boxesOf(model, depth);
    if (boxes.length > mostBoxes) return make("p", { class: "empty" }, `${boxes.length} boxes are too many for a drawing: show fewer levels.`);
    const { byKey, width, height } = place(boxes);
    const arrow = svg("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, svg("path", { d: "M0,0 L8,4 L0,8 z", class: "arrow" }));
    return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Graph of the model of ${name}: ${boxes.length} boxes` },
        svg("defs", {}, arrow), boxes.flatMap((box) => [...box.from].map((key) => edge(byKey.get(key), box))), boxes.map(boxElement));
}

function layerTable(model, name) {
    const rows = model.layers.map((layer) => {
        const head = make("th", { scope: "row" }, layer.path || "model");
        head.style.paddingLeft = `${12 + 14 * depthOf(layer.path)}px`;
        return make("tr", {}, head, make("td", {}, layer.type), make("td", { class: "number" }, shapeText(layer.shape)), make("td", { class: "number" }, count(layer.parameters)));
    });
    return make("table", {}, make("caption", {}, `${name}: ${count(model.layers[0]?.parameters)} trainable parameters`),
        make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "layer"), make("th", { scope: "col" }, "type"), make("th", { scope: "col", class: "number" }, "output"), make("th", { scope: "col", class: "number" }, "parameters"))),
        make("tbody", {}, rows));
}

// ---- The tab ----

// The deepest level that still is a drawing to look at.
function chooseDepth(model) {
    const select = byId("model-depth"), deepest = Math.max(...model.nodes.map((node) => depthOf(node.layer)), 0);
    const options = [...Array.from({ length: deepest }, (_, at) => make("option", { value: at + 1 }, at === 0 ? "1 level" : `${at + 1} levels`)), make("option", { value: 0 }, "single ops")];
    const kept = select.dataset.kept ?? "";
    fill(select, options);
    let depth = deepest;
    while (depth > 1 && boxesOf(model, depth).length > niceBoxes) depth--;
    const wanted = options.some((option) => option.value === kept) ? kept : String(depth);
    select.value = wanted;
    return Number(wanted);
}

async function draw() {
    if (state.tab !== "model") return;
    const select = byId("model-run"), runs = listedRuns(), chosen = select.value;
    fill(select, runs.map((run) => make("option", { value: run.id }, run.name)));
    if (runs.some((run) => String(run.id) === chosen)) select.value = chosen;
    const run = runs.find((one) => String(one.id) === select.value);
    const model = run ? await modelOf(run) : null;
    const wish = JSON.stringify([run?.id, run?.started, model !== null, byId("model-depth").dataset.kept]);
    if (state.tab !== "model" || wish === drawn) return;
    drawn = wish;
    byId("model-layers").hidden = byId("model-graph").hidden = !model;
    byId("no-model").hidden = model !== null;
    byId("no-model").textContent = run ? "This run has no model.json: its model takes more than one input, or another program wrote the run." : "There is no run.";
    if (!model) return;
    fill(byId("model-layers"), layerTable(model, run.name));
    fill(byId("model-graph"), picture(model, chooseDepth(model), run.name));
}

export function startModel() {
    byId("model-run").addEventListener("change", draw);
    byId("model-depth").addEventListener("change", (event) => { event.target.dataset.kept = event.target.value; draw(); });
    on("runs shown tab", draw);
}
