// The runs at the side: a box to show each, its colour, its state and how far it is.
import { byId, fill, make } from "./dom.js";
import { duration, moment } from "./format.js";
import { colourIndex, listedRuns } from "./shown.js";
import { announce, on, state } from "./state.js";
import { colourOf } from "./theme.js";

const meaning = {
    running: "its process is there",
    died: "its process is gone, but it never ended",
    silent: "it is on another host, and has written nothing for five minutes",
    finished: "all its epochs are done",
    stopped: "it ended before its last epoch: stopped early, interrupted or failed",
    ended: "nobody writes here",
};

export function badge(run) {
    return make("span", { class: `badge ${run.state}`, title: meaning[run.state] }, run.state);
}

function progress(run) {
    const epochs = run.num_epochs ? `${run.epochs} of ${run.num_epochs} epochs` : `${run.epochs} epochs`;
    return run.epochs || run.num_epochs ? epochs : "";
}

export function span(run) {
    return run.started ? run.last - run.started : NaN;
}

function item(run) {
    const box = make("input", { type: "checkbox", id: `run-${run.id}` });
    box.checked = !state.hidden.has(run.id);
    box.addEventListener("change", () => {
        if (box.checked) state.hidden.delete(run.id);
        else state.hidden.add(run.id);
        announce("shown");
    });
    const swatch = make("span", { class: "swatch", "aria-hidden": "true" });
    swatch.style.backgroundColor = colourOf(colourIndex(run));
    const facts = [progress(run), run.started ? duration(span(run)) : ""].filter(Boolean).join(" · ");
    const element = make("li", {},
        make("label", { for: `run-${run.id}`, title: `${run.folder}\nlast written: ${moment(run.updated)}` },
            box, swatch, make("span", { class: "name" }, run.name)),
        make("p", { class: "facts" }, badge(run), facts),
        run.notes.map((note) => make("p", { class: "note" }, note)));
    const highlight = (id) => () => {
        state.highlighted = id;
        announce("highlight");
    };
    element.addEventListener("pointerenter", highlight(run.id));
    element.addEventListener("pointerleave", highlight(0));
    return element;
}

function draw() {
    const runs = listedRuns();
    const focused = document.activeElement?.id;
    byId("run-count").textContent = runs.length === state.runs.size ? `${runs.length}` : `${runs.length} of ${state.runs.size}`;
    fill(byId("runs"), runs.map(item));
    if (focused?.startsWith("run-")) byId(focused)?.focus();
}

export function startRunList() {
    const filter = byId("filter");
    filter.addEventListener("input", () => {
        state.filter = filter.value;
        announce("shown");
    });
    byId("show-all").addEventListener("click", () => {
        for (const run of listedRuns()) state.hidden.delete(run.id);
        announce("shown");
    });
    byId("show-none").addEventListener("click", () => {
        for (const run of listedRuns()) state.hidden.add(run.id);
        announce("shown");
    });
    if (matchMedia("(max-width: 760px)").matches) byId("side").open = false;
    on("runs shown theme", draw);
}
