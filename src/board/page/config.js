// The settings of the shown runs side by side, and what differs between them.
import { askJson } from "./api.js";
import { byId, fill, make } from "./dom.js";
import { number } from "./format.js";
import { shownRuns } from "./shown.js";
import { on, state } from "./state.js";

const most = 12; // columns
const configs = new Map(); // "id version" → {path: text}

async function configOf(run) {
    const key = `${run.id} ${JSON.stringify(run.hparams)} ${run.started}`;
    if (!configs.has(key)) {
        try {
            configs.set(key, await askJson("config", { run: run.id }));
        } catch {
            return {};
        }
    }
    return configs.get(key);
}

function group(title, runs, values) {
    const onlyDifferent = byId("config-differs").checked && runs.length > 1;
    const wanted = byId("config-filter").value.toLowerCase();
    const keys = [...new Set(values.flatMap((one) => Object.keys(one)))].filter((key) => key.toLowerCase().includes(wanted));
    const rows = keys.flatMap((key) => {
        const texts = values.map((one) => (one[key] === undefined ? "–" : number(one[key])));
        const differs = new Set(texts).size > 1;
        if (onlyDifferent && !differs) return [];
        return [make("tr", { class: differs ? "differs" : null }, make("th", { scope: "row" }, key, differs ? make("span", { class: "hidden-text" }, " (differs)") : null),
            texts.map((text) => make("td", {}, text)))];
    });
    if (rows.length === 0) return make("p", { class: "empty" }, keys.length ? `${title}: no difference.` : `${title}: nothing.`);
    return make("table", {}, make("caption", {}, title),
        make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "key"), runs.map((run) => make("th", { scope: "col" }, run.name)))), make("tbody", {}, rows));
}

async function draw() {
    if (state.tab !== "config") return;
    const all = shownRuns(), runs = all.slice(0, most);
    const files = await Promise.all(runs.map(configOf));
    if (state.tab !== "config") return;
    if (runs.length === 0) {
        fill(byId("config"), make("p", { class: "empty" }, "No run is shown."));
        return;
    }
    fill(byId("config"), all.length > most ? make("p", { class: "hint" }, `The first ${most} of ${all.length} shown runs.`) : null,
        group("The run (hparams.json)", runs, runs.map((run) => run.hparams)), group("The config (config.yml)", runs, files));
}

export function startConfig() {
    byId("config-differs").addEventListener("change", draw);
    byId("config-filter").addEventListener("input", draw);
    on("runs shown tab", draw);
}
