// The language of the filter: words of the name, and comparisons of settings and metrics, all of which must
// hold: "digits lr>0.01 state=running valid/loss<0.4".
import { best, shortName } from "./metrics.js";

function valueOf(run, key) {
    if (key === "state" || key === "name" || key === "epochs") return run[key];
    if (Object.hasOwn(run.hparams, key)) return run.hparams[key];
    const series = run.series.find((one) => shortName(one) === key);
    return series ? best(run, series).value : undefined;
}

function compares(value, operator, wanted) {
    if (value === undefined) return operator === "!=";
    const number = Number(wanted);
    const both = typeof value === "number" && !Number.isNaN(number);
    const left = both ? value : String(value).toLowerCase(), right = both ? number : wanted.toLowerCase();
    switch (operator) {
    case "=": return left === right;
    case "!=": return left !== right;
    case "<": return left < right;
    case ">": return left > right;
    case "<=": return left <= right;
    default: return left >= right;
    }
}

function holds(run, word) {
    const parts = word.match(/^(.+?)(<=|>=|!=|=|<|>)(.+)$/);
    if (parts) return compares(valueOf(run, parts[1]), parts[2], parts[3]);
    return run.name.toLowerCase().includes(word.toLowerCase());
}

export function matches(run, filter) {
    return filter.split(/\s+/).every((word) => word === "" || holds(run, word));
}
