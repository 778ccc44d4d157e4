// Numbers and times as people read them.

export function number(value) {
    if (value === null || value === undefined) return "–";
    if (typeof value === "object") return JSON.stringify(value);
    if (typeof value !== "number") return String(value); // "NaN", "Infinity", a setting
    if (Number.isInteger(value) && Math.abs(value) < 1e7) return String(value);
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(3).replace(/\.?0+e/, "e").replace("e+", "e");
    return String(Number(value.toPrecision(5)));
}

export function duration(seconds) {
    if (!(seconds >= 0)) return "–";
    if (seconds < 60) return `${Math.round(seconds)} s`;
    if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
    if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
    return `${Math.floor(seconds / 86400)} d ${Math.round((seconds % 86400) / 3600)} h`;
}

export function moment(seconds) {
    if (!seconds) return "–";
    return new Date(seconds * 1000).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
}

export function xValue(value, x) {
    if (value === null || value === undefined) return "";
    if (x === "relative") return duration(value);
    if (x === "time") return new Date(value * 1000).toLocaleTimeString();
    return number(value);
}
