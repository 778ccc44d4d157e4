// The end of a run's log.txt.
import { askText } from "./api.js";
import { byId, fill, make } from "./dom.js";
import { listedRuns } from "./shown.js";
import { on, state } from "./state.js";

async function draw() {
    if (state.tab !== "log") return;
    const select = byId("log-run"), box = byId("log"), runs = listedRuns();
    const chosen = select.value;
    fill(select, runs.map((run) => make("option", { value: run.id }, run.name)));
    if (runs.some((run) => String(run.id) === chosen)) select.value = chosen;
    const isAtEnd = box.scrollTop + box.clientHeight >= box.scrollHeight - 8;
    let text = "There is no run.";
    if (select.value) text = await askText("log", { run: select.value }).catch(() => "") || "This run has no log.txt.";
    if (box.textContent === text) return;
    box.textContent = text;
    if (isAtEnd) box.scrollTop = box.scrollHeight;
}

export function startLog() {
    byId("log-run").addEventListener("change", draw);
    on("runs shown tab", draw);
}
