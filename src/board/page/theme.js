// Dark and light: the system's choice, until the switch is used.
import { announce } from "./state.js";

const wantsDark = matchMedia("(prefers-color-scheme: dark)");

export function isDark() {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : wantsDark.matches;
}

function label(button) {
    button.textContent = isDark() ? "Light theme" : "Dark theme";
}

export function startTheme() {
    const button = document.getElementById("theme");
    label(button);
    button.addEventListener("click", () => {
        const theme = isDark() ? "light" : "dark";
        document.documentElement.dataset.theme = theme;
        try {
            localStorage.setItem("lockstep-theme", theme);
        } catch {
            // It holds until the page is closed.
        }
        label(button);
        announce("theme");
    });
    wantsDark.addEventListener("change", () => {
        label(button);
        announce("theme");
    });
}

// The colour of a run, and its dashes: runs beyond the tenth share colours, but not the pattern.
const colours = {
    light: ["#1f5fd1", "#c4410c", "#0f7a4d", "#8a35c9", "#b3124b", "#0b7285", "#8a5a00", "#4d4fc9", "#5b7500", "#6b4a3a"],
    dark: ["#7aa7ff", "#ff9257", "#4fd19b", "#c795ff", "#ff7aa6", "#56c9dc", "#e8b84a", "#a3a5ff", "#b4d455", "#d1a78f"],
};
const dashes = [[], [8, 4], [2, 3], [10, 3, 2, 3]];

export function colourOf(index) {
    const palette = isDark() ? colours.dark : colours.light;
    return palette[index % palette.length];
}

export function dashOf(index) {
    return dashes[Math.floor(index / colours.light.length) % dashes.length];
}

// A colour of style.css.
export function cssColour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
