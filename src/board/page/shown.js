// Which runs are shown, and in which order and colour.
import { matches } from "./filter.js";
import { state } from "./state.js";

const most = 10; // runs that are shown without being asked for

const order = []; // ids, as they came: the place is the colour

export function noteRuns() {
    const fresh = [...state.runs.values()].filter((run) => !order.includes(run.id));
    const isFirst = order.length === 0;
    for (const run of fresh) order.push(run.id);
    if (!isFirst || fresh.length <= most) return;
    const newest = fresh.toSorted((a, b) => b.updated - a.updated).slice(0, most);
    for (const run of fresh) if (!newest.includes(run)) state.hidden.add(run.id);
}

export function colourIndex(run) {
    return Math.max(order.indexOf(run.id), 0);
}

// Those that pass the filter, by name.
export function listedRuns() {
    const byName = (a, b) => a.name.localeCompare(b.name, undefined, { numeric: true });
    return [...state.runs.values()].filter((run) => matches(run, state.filter)).sort(byName);
}

export function shownRuns() {
    return listedRuns().filter((run) => !state.hidden.has(run.id));
}
