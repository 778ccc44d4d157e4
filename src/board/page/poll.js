// Asks for news: what has changed since the last answer. Rests while nobody looks.
import { askJson } from "./api.js";
import { byId, make, fill } from "./dom.js";
import { noteRuns } from "./shown.js";
import { announce, state } from "./state.js";

const pauseMs = 1500;
let failed = false;

function say() {
    const runs = [...state.runs.values()];
    const running = runs.filter((run) => run.state === "running").length;
    const text = failed ? "The board does not answer. Is lockstep board still running?"
        : `${runs.length} ${runs.length === 1 ? "run" : "runs"}, ${running} running`;
    const status = byId("status");
    if (status.textContent !== text) status.textContent = text;
    status.classList.toggle("bad", failed);
    const troubles = byId("troubles");
    troubles.hidden = state.troubles.length === 0;
    if (troubles.textContent !== state.troubles.join("")) fill(troubles, state.troubles.map((trouble) => make("p", {}, trouble)));
}

function take(news) {
    state.version = news.version;
    if (!news.ids) return false;
    for (const run of news.runs) state.runs.set(run.id, run);
    const ids = new Set(news.ids);
    for (const id of state.runs.keys()) if (!ids.has(id)) state.runs.delete(id);
    state.troubles = news.troubles;
    noteRuns();
    return true;
}

async function look() {
    let isNew = false;
    try {
        isNew = take(await askJson("runs", { have: state.version }));
        failed = false;
    } catch {
        failed = true;
        state.version = 0; // another board may answer next
    }
    say();
    if (isNew) announce("runs");
}

export async function startPolling() {
    for (;;) {
        if (!document.hidden || state.version === 0) await look();
        await new Promise((done) => setTimeout(done, pauseMs));
    }
}
