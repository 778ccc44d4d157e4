// Which metrics there are, how they are called and ordered, and which value of one is the best.

export function keyOf(series) {
    return `${series.axis}\n${series.loader}\n${series.metric}`;
}

const loaderName = (loader) => (loader === "_epoch_" ? "epoch" : loader);

// What a run writes of its machine; its steps are samples.
export function isSystem(series) {
    return series.loader === "system";
}

// "valid/loss", as filters and tables call it.
export function shortName(series) {
    const name = series.loader ? `${loaderName(series.loader)}/${series.metric}` : series.metric;
    return series.axis === "sample" && !isSystem(series) ? `${name} per batch` : name;
}

const systemTitles = {
    samples_per_s: "Samples per second", tokens_per_s: "Tokens per second", step_ms: "A step, ms", communication_share: "Share of communication",
    loader_share: "Share of waiting for data", memory_mb: "Memory of the largest rank, MiB", gpu_memory_mb: "GPU memory in use, MiB",
};

export function title(series) {
    if (isSystem(series)) return systemTitles[series.metric] ?? series.metric;
    const name = series.loader ? `${loaderName(series.loader)} ${series.metric}` : series.metric;
    return series.axis === "sample" ? `${name}, per batch` : name;
}

// Of the charts of the system; times of single ranks are a table.
export function isRankTime(series) {
    return isSystem(series) && series.metric.includes("/");
}

// "loss/std" and "auc/_macro" belong to a metric of a shorter name; a tag of another program is a whole name.
export function isMain(series) {
    if (isSystem(series)) return false;
    return series.axis === "step" || !series.metric.includes("/");
}

const first = ["loss", "accuracy01", "accuracy", "auc", "r2", "iou", "dice"];
const last = ["lr", "momentum"];
const loaders = ["train", "valid"];

const system = ["samples_per_s", "tokens_per_s", "step_ms", "communication_share", "loader_share", "gpu_memory_mb", "memory_mb"];

function rank(series) {
    if (isSystem(series)) return 300 + system.indexOf(series.metric);
    const name = series.metric.split("/")[0];
    const at = first.indexOf(name);
    if (at >= 0) return at;
    return last.includes(name) ? 200 + last.indexOf(name) : 100;
}

export function compare(a, b) {
    const loader = (series) => (loaders.includes(series.loader) ? loaders.indexOf(series.loader) : loaders.length);
    return rank(a) - rank(b) || a.metric.localeCompare(b.metric) || loader(a) - loader(b) || a.loader.localeCompare(b.loader) || a.axis.localeCompare(b.axis);
}

const smaller = /loss|error|(^|[^a-z])(mse|mae|rmse|nll|std|time|lr|perplexity|ms)([^a-z]|$)/i;

// Whether less of a metric is better: the run says it of the metric that it keeps the best epoch by.
export function isSmallerBetter(run, series) {
    if (run.minimize !== null && run.valid_loader === series.loader && run.valid_metric === series.metric) return run.minimize;
    return smaller.test(series.metric);
}

export function best(run, series) {
    const less = isSmallerBetter(run, series);
    return { value: less ? series.min : series.max, at: less ? series.min_at : series.max_at };
}

// All metrics of some runs, each once, in the order of the page.
export function allMetrics(runs) {
    const found = new Map();
    for (const run of runs) for (const series of run.series) found.set(keyOf(series), series);
    return [...found.values()].sort(compare);
}

export function find(run, key) {
    return run.series.find((series) => keyOf(series) === key);
}
