// The tabs: arrow keys move between them, as the ARIA pattern says.
import { byId } from "./dom.js";
import { announce, remember, state } from "./state.js";

function choose(tabs, tab, takesFocus) {
    state.tab = tab.id.slice("tab-".length);
    for (const one of tabs) {
        const isChosen = one === tab;
        one.setAttribute("aria-selected", String(isChosen));
        one.tabIndex = isChosen ? 0 : -1;
        byId(one.getAttribute("aria-controls")).hidden = !isChosen;
    }
    if (takesFocus) tab.focus();
    remember();
    announce("tab");
}

export function startTabs() {
    const tabs = [...byId("tabs").children];
    const moves = { ArrowRight: 1, ArrowLeft: -1 };
    for (const [at, tab] of tabs.entries()) {
        tab.addEventListener("click", () => choose(tabs, tab, false));
        tab.addEventListener("keydown", (event) => {
            const to = event.key === "Home" ? 0 : event.key === "End" ? tabs.length - 1
                : moves[event.key] ? (at + moves[event.key] + tabs.length) % tabs.length : -1;
            if (to < 0) return;
            event.preventDefault();
            choose(tabs, tabs[to], true);
        });
    }
    choose(tabs, byId(`tab-${state.tab}`) ?? tabs[0], false);
}
