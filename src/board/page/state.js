// What the page knows, and who wants to hear of changes. Runs come from poll.js; choices from the controls.

export const state = {
    version: 0,
    runs: new Map(), // id → run, as the server describes it
    troubles: [],
    hidden: new Set(), // ids
    highlighted: 0, // the run under the pointer
    filter: "",
    metricFilter: "",
    smooth: 0,
    x: "step",
    logScale: false,
    tab: "charts",
};

const listeners = new Map();

// What: "runs" (new data), "shown" (which runs are shown), "view" (how charts are drawn), "theme", "tab",
// "highlight".
export function on(what, listener) {
    for (const one of what.split(" ")) {
        if (!listeners.has(one)) listeners.set(one, []);
        listeners.get(one).push(listener);
    }
}

export function announce(what) {
    for (const listener of listeners.get(what) ?? []) listener(what);
}

const names = ["smooth", "x", "logScale", "tab"];

export function remember() {
    try {
        localStorage.setItem("lockstep-view", JSON.stringify(Object.fromEntries(names.map((name) => [name, state[name]]))));
    } catch {
        // Choices then end with the page.
    }
}

export function recall() {
    try {
        const kept = JSON.parse(localStorage.getItem("lockstep-view") ?? "{}");
        for (const name of names) if (typeof kept[name] === typeof state[name]) state[name] = kept[name];
    } catch {
        // As above.
    }
}
