// The pictures of the shown runs, side by side: those that differ only by a number are one picture over epochs.
import { askJson, askText, pictureAddress } from "./api.js";
import { confusionTable } from "./classes.js";
import { byId, fill, make } from "./dom.js";
import { shownRuns } from "./shown.js";
import { on, state } from "./state.js";

const most = 8; // runs
let drawn = "";

// "confusion_matrix/valid_0003.png" → ["confusion_matrix/valid", "0003"]
function split(path) {
    const parts = path.match(/^(.*?)[_-]?(\d+)\.(png|csv)$/);
    return parts ? [parts[1], parts[2]] : [path.replace(/\.(png|csv)$/, ""), ""];
}

function series(files) {
    const found = new Map();
    for (const path of files) {
        const [name, at] = split(path);
        const kind = path.endsWith(".csv") ? "tables" : "pictures";
        if (!found.has(name)) found.set(name, { pictures: [], tables: [] });
        found.get(name)[kind].push({ path, at });
    }
    return found;
}

function figure(run, name, group) {
    const { pictures, tables } = group;
    const last = pictures.length - 1;
    const image = make("img", { loading: "lazy", alt: `${name} of ${run.name}` });
    const place = make("span", {});
    const numbers = make("details", { hidden: tables.length === 0 }, make("summary", {}, "Numbers"));
    const show = (at) => {
        const one = pictures[at] ?? tables[at];
        if (pictures[at]) image.src = pictureAddress(run.id, one.path);
        place.textContent = one.at ? ` ${Number(one.at)}` : "";
        const table = tables.find((other) => other.at === one.at);
        if (numbers.open && table)
            askText("confusion", { run: run.id, path: table.path }).then((text) => fill(numbers, numbers.firstChild, confusionTable(text, `${name}${place.textContent}`)), () => {});
    };
    const count = Math.max(pictures.length, tables.length);
    const slider = make("input", { type: "range", min: 0, max: count - 1, value: count - 1, "aria-label": `Epoch of ${name} of ${run.name}`, hidden: count < 2 });
    slider.addEventListener("input", () => show(Number(slider.value)));
    numbers.addEventListener("toggle", () => show(Number(slider.value)));
    show(count - 1);
    return make("figure", { class: "card" }, make("figcaption", {}, `${run.name}: ${name}`, place), last >= 0 ? image : null, slider, numbers);
}

async function draw() {
    if (state.tab !== "pictures") return;
    const runs = shownRuns().slice(0, most);
    const lists = await Promise.all(runs.map((run) => askJson("files", { run: run.id }).catch(() => ({ files: [] }))));
    const wish = JSON.stringify([runs.map((run) => run.id), lists]);
    if (state.tab !== "pictures" || wish === drawn) return; // a picture that is looked at stays
    drawn = wish;
    const found = lists.map(({ files }) => series(files));
    const names = [...new Set(found.flatMap((one) => [...one.keys()]))].sort();
    const groups = names.map((name) => make("section", {}, make("h3", {}, name),
        make("div", { class: "grid" }, runs.flatMap((run, at) => (found[at].has(name) ? [figure(run, name, found[at].get(name))] : [])))));
    fill(byId("pictures"), groups.length ? groups : make("p", { class: "empty" }, "The logdirs of the shown runs hold no pictures."));
}

export function startPictures() {
    on("runs shown tab", draw);
}
