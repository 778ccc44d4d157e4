// Before the page is drawn: the theme that was chosen last, so that nothing flashes.
(() => {
    try {
        const theme = localStorage.getItem("lockstep-theme");
        if (theme) document.documentElement.dataset.theme = theme;
    } catch {
        // Storage may be switched off: the system's theme is used.
    }
})();
