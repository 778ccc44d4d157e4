/* lockstep bench: what a training step costs here, and what it would cost on many ranks. */
#include "cli/bench/bench.h"
#include "cli/commands.h"
#include "cli/load.h"

#include "base/status.h"
#include "base/threads.h"
#include "cli/bench/measure_config.h"
#include "cli/bench/sweep.h"
#include "config/config.h"
#include "config/tree/tree.h"

#include <math.h>
#include <string.h>

typedef struct bench_options {
    lki_config_options config;
    const char *model, *backend, *seconds, *engine, *filter;
    const char *latency_us, *bandwidth_gbit, *overhead_us, *bucket_mb, *compute_ms;
    lki_option_int ranks_per_host, max_ranks, accumulate, nproc;
    bool simulate, measure, compress, split, ops, json;
} bench_options;

#define OFFSET(field) offsetof(bench_options, field)

enum { DEFAULT_MAX_RANKS = 4096, LARGEST_MAX_RANKS = 1 << 20 };

static const lki_option table[] = {
    {"config", 'C', LKI_OPTION_TEXTS, OFFSET(config.files), "FILE", NULL,
     "measure the step of this config; later files are merged over earlier ones", 0},
    {"model", 'm', LKI_OPTION_TEXT, OFFSET(model), NULL, "mnist-linear|mlp|convnet|cnn3d|resnet-50",
     "a known network (all of them)", 0},
    {"simulate", 0, LKI_OPTION_FLAG, OFFSET(simulate), NULL, NULL, "predict the step on many ranks", 0},
    {"measure", 0, LKI_OPTION_FLAG, OFFSET(measure), NULL, NULL,
     "measure the known network on this machine before predicting", 0},
    {"latency-us", 0, LKI_OPTION_TEXT, OFFSET(latency_us), "US", NULL,
     "one-way latency of a small message between hosts (25)", 0},
    {"bandwidth-gbit", 0, LKI_OPTION_TEXT, OFFSET(bandwidth_gbit), "GBIT", NULL,
     "bandwidth of a host's link, in Gbit/s (10)", 0},
    {"overhead-us", 0, LKI_OPTION_TEXT, OFFSET(overhead_us), "US", NULL, "software overhead per message (20)",
     0},
    {"ranks-per-host", 0, LKI_OPTION_INT, OFFSET(ranks_per_host), "N", NULL, "ranks per host (1)", 1},
    {"max-ranks", 0, LKI_OPTION_INT, OFFSET(max_ranks), "N", NULL,
     "largest number of ranks in the table (4096)", 1},
    {"backend", 0, LKI_OPTION_TEXT, OFFSET(backend), NULL, "auto|shm|gloo|mpi",
     "how the ranks communicate (auto)", 0},
    {"bucket-mb", 0, LKI_OPTION_TEXT, OFFSET(bucket_mb), "MB", NULL, "size of a gradient bucket, in MiB (4)",
     0},
    {"accumulate", 0, LKI_OPTION_INT, OFFSET(accumulate), "N", NULL, "batches per update (1)", 1},
    {"compress", 0, LKI_OPTION_FLAG, OFFSET(compress), NULL, NULL, "send gradients as bf16", 0},
    {"compute-ms", 0, LKI_OPTION_TEXT, OFFSET(compute_ms), "MS", NULL,
     "time of a batch on one rank, instead of the known one", 0},
    {"nproc", 0, LKI_OPTION_INT, OFFSET(nproc), "N", NULL, "time all-reduces between N ranks on this host",
     1},
    {"split", 0, LKI_OPTION_FLAG, OFFSET(split), NULL, NULL,
     "find the fastest split of the cores into ranks and threads for the config's global batch", 0},
    {"ops", 0, LKI_OPTION_FLAG, OFFSET(ops), NULL, NULL,
     "compare ops over random shapes and dtypes with this machine's roofline", 0},
    {"engine", 0, LKI_OPTION_TEXT, OFFSET(engine), NULL, "cpu", "the engine of --ops (cpu)", 0},
    {"filter", 0, LKI_OPTION_TEXT, OFFSET(filter), "NAME", NULL,
     "of --ops, only those whose names contain NAME", 0},
    {"seconds", 0, LKI_OPTION_TEXT, OFFSET(seconds), "S", NULL, "seconds to measure each step (1)", 0},
    {"json", 0, LKI_OPTION_FLAG, OFFSET(json), NULL, NULL, "print JSON", 0},
    {0},
};

/* A number above 0, times `unit`; left as it is where the option is not given. */
static lk_status read_number(const char *name, const char *text, double unit, double *out)
{
    double value;
    if (!text) return LK_OK;
    if (!lki_parse_float(text, &value) || !isfinite(value) || value <= 0)
        return lki_fail(LK_ERR_CONFIG, "bench: --%s: expected a number above 0, found \"%.60s\"", name, text);
    *out = value * unit;
    return LK_OK;
}

static lk_status read_cluster(const bench_options *options, lki_cluster *out)
{
    double bucket_nbytes = 0;
    *out = (lki_cluster){.ranks_per_host =
                             options->ranks_per_host.given ? (int)options->ranks_per_host.value : 1,
                         .accumulation = options->accumulate.given ? (int)options->accumulate.value : 1,
                         .compress = options->compress};
    if (options->backend && !strcmp(options->backend, "gloo")) out->backend = LKI_SCALING_GLOO;
    if (options->backend && !strcmp(options->backend, "mpi")) out->backend = LKI_SCALING_MPI;
    LKI_TRY(read_number("latency-us", options->latency_us, 1e-6, &out->network.latency_s));
    LKI_TRY(read_number("bandwidth-gbit", options->bandwidth_gbit, 1e9 / 8, &out->network.bandwidth));
    LKI_TRY(read_number("overhead-us", options->overhead_us, 1e-6, &out->network.overhead_s));
    LKI_TRY(read_number("bucket-mb", options->bucket_mb, 1 << 20, &bucket_nbytes));
    out->bucket_nbytes = (int64_t)fmin(bucket_nbytes, 1e15);
    return LK_OK;
}

/* Options that nothing reads without others. */
static lk_status check_idle(const bench_options *o)
{
    bool measures = !o->simulate || o->measure || o->config.files.count;
    const struct {
        const char *name, *needs;
        bool is_idle;
    } options[] = {
        {"measure", "--simulate", o->measure && !o->simulate},
        {"latency-us", "--simulate", o->latency_us && !o->simulate},
        {"bandwidth-gbit", "--simulate", o->bandwidth_gbit && !o->simulate},
        {"overhead-us", "--simulate", o->overhead_us && !o->simulate},
        {"max-ranks", "--simulate", o->max_ranks.given && !o->simulate},
        {"bucket-mb", "--simulate", o->bucket_mb && !o->simulate},
        {"accumulate", "--simulate", o->accumulate.given && !o->simulate},
        {"compress", "--simulate", o->compress && !o->simulate},
        {"backend", "--simulate or --nproc", o->backend && !o->simulate && !o->nproc.given},
        {"engine", "--ops", o->engine && !o->ops},
        {"filter", "--ops", o->filter && !o->ops},
        {"seconds", "--measure: nothing is timed", o->seconds && !measures},
    };
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (options[i].is_idle)
            return lki_fail(LK_ERR_CONFIG, "bench: --%s needs %s", options[i].name, options[i].needs);
    return LK_OK;
}

static lk_status check_options(const bench_options *options)
{
    bool shm = options->backend && !strcmp(options->backend, "shm");
    const struct {
        const char *name;
        const lki_option_int *value;
    } numbers[] = {{"ranks-per-host", &options->ranks_per_host},
                   {"max-ranks", &options->max_ranks},
                   {"accumulate", &options->accumulate}};
    for (int i = 0; i < 3; i++)
        if (numbers[i].value->given && numbers[i].value->value > LARGEST_MAX_RANKS)
            return lki_fail(LK_ERR_CONFIG, "bench: --%s: expected at most %d, found %lld", numbers[i].name,
                            LARGEST_MAX_RANKS, numbers[i].value->value);
    if (options->config.files.count && options->model)
        return lki_fail(LK_ERR_CONFIG, "bench: -C and --model: choose one");
    if (options->config.overrides.count && !options->config.files.count)
        return lki_fail(LK_ERR_CONFIG, "bench: an override needs -C FILE");
    if (options->ops && (options->split || options->simulate || options->nproc.given || options->model ||
                         options->config.files.count || options->ranks_per_host.given || options->compute_ms))
        return lki_fail(LK_ERR_CONFIG,
                        "bench: --ops draws nets of its own: only --engine, --filter, --seconds "
                        "and --json go with it");
    if (options->split && !options->config.files.count)
        return lki_fail(LK_ERR_CONFIG, "bench: --split needs -C FILE");
    if (options->split &&
        (options->simulate || options->nproc.given || options->ranks_per_host.given || options->compute_ms))
        return lki_fail(LK_ERR_CONFIG, "bench: --split trains here on every number of ranks: leave out "
                                       "--simulate, --nproc, --ranks-per-host and --compute-ms");
    if (options->simulate && options->nproc.given)
        return lki_fail(LK_ERR_CONFIG, "bench: --nproc starts ranks here; with --simulate use --max-ranks");
    if (options->simulate && shm)
        return lki_fail(
            LK_ERR_CONFIG,
            "bench: --backend shm is for one host: with --simulate use auto and --ranks-per-host");
    return check_idle(options);
}

/* ---- Where workloads come from ---- */

typedef struct bench {
    const bench_options *options;
    lki_cluster cluster;
    lki_bench_report *report;
    double seconds, compute_s; /* compute_s 0: as known */
    int exit_code;             /* of what fails next */
} bench;

static lk_status report_workload(bench *b, lki_workload *w)
{
    int max_ranks = b->options->max_ranks.given ? (int)b->options->max_ranks.value : DEFAULT_MAX_RANKS;
    if (b->compute_s > 0) lki_workload_scale(w, b->compute_s);
    if (b->options->simulate)
        lki_bench_report_scaling(b->report, w, &b->cluster, max_ranks);
    else
        lki_bench_report_step(b->report, w);
    lki_workload_fini(w);
    return LK_OK;
}

/* As many threads as a rank would have. */
static int thread_count(const bench *b)
{
    int threads = lki_core_count() / b->cluster.ranks_per_host;
    return threads > 1 ? threads : 1;
}

static lk_status bench_named(bench *b, const char *name)
{
    lki_workload w;
    lki_trial trial;
    if (b->options->simulate && !b->options->measure) {
        LKI_TRY(lki_workload_named(&w, name));
        return report_workload(b, &w);
    }
    LKI_TRY(lki_trial_init(&trial, name, thread_count(b)));
    lk_status status = lki_workload_measure(&w, trial.step, name, b->seconds);
    lki_trial_fini(&trial);
    return status ? status : report_workload(b, &w);
}

static lk_status bench_names(bench *b)
{
    bool runs = !b->options->simulate || b->options->measure;
    if (b->options->model) return bench_named(b, b->options->model);
    for (const char *const *name = lki_workload_names(); *name; name++)
        if (!runs || strcmp(*name, "resnet-50") != 0) LKI_TRY(bench_named(b, *name));
    return LK_OK;
}

static lk_status bench_config(bench *b)
{
    const char *path = b->options->config.files.items[0], *slash = strrchr(path, '/');
    lk_config *config = lki_load_config("bench", &b->options->config);
    lki_plan plan;
    lki_workload w;
    lki_step_ops ops = {0};
    if (!config) return lki_last_status();
    lk_status status = lki_config_build(config, &plan);
    if (status) b->exit_code = lki_build_exit_code(status);
    if (!status) {
        b->exit_code = LKI_EXIT_FAILED;
        status = lki_config_measure(config, &plan, &w, b->options->simulate ? NULL : &ops,
                                    slash ? slash + 1 : path, thread_count(b), b->seconds);
        if (status == LK_ERR_CONFIG) b->exit_code = LKI_EXIT_WRONG;
    }
    if (!status) status = report_workload(b, &w);
    if (!status && !b->options->simulate) status = lki_bench_report_ops(b->report, &ops);
    lki_step_ops_fini(&ops);
    lki_plan_fini(&plan);
    lk_config_free(config);
    return status;
}

static lk_status bench_split(bench *b)
{
    b->exit_code = LKI_EXIT_WRONG;
    lk_config *config = lki_load_config("bench", &b->options->config);
    if (!config) return lki_last_status();
    lk_config_free(config);
    b->exit_code = LKI_EXIT_FAILED;
    lk_status status = lki_bench_split(b->report, &b->options->config, b->seconds);
    if (status == LK_ERR_CONFIG) b->exit_code = LKI_EXIT_WRONG;
    return status;
}

static lk_status read_options(bench *b)
{
    LKI_TRY(check_options(b->options));
    LKI_TRY(read_cluster(b->options, &b->cluster));
    LKI_TRY(read_number("seconds", b->options->seconds, 1, &b->seconds));
    LKI_TRY(read_number("compute-ms", b->options->compute_ms, 1e-3, &b->compute_s));
    if (b->options->model && !strcmp(b->options->model, "resnet-50") &&
        (!b->options->simulate || b->options->measure))
        return lki_fail(LK_ERR_CONFIG,
                        "bench: resnet-50 is only a size here, and cannot be run: use --simulate");
    return LK_OK;
}

/* Ranks are forked before an engine starts threads. */
static lk_status bench_all(bench *b)
{
    const bench_options *options = b->options;
    b->exit_code = LKI_EXIT_FAILED;
    b->report = lki_bench_report_begin(options->json);
    if (!b->report) return LK_ERR_NOMEM;
    if (options->ops) return lki_bench_sweep(b->report, options->engine, options->filter, b->seconds);
    if (options->nproc.given)
        LKI_TRY(lki_bench_collectives(b->report, (int)options->nproc.value, options->backend));
    if (!options->config.files.count) return bench_names(b);
    if (options->split) return bench_split(b);
    b->exit_code = LKI_EXIT_WRONG;
    return bench_config(b);
}

static int run(const void *pointer)
{
    bench b = {.options = pointer, .seconds = 1, .exit_code = LKI_EXIT_WRONG};
    lk_status status = read_options(&b);
    if (status == LK_OK) status = bench_all(&b);
    if (status) return lki_bench_report_drop(b.report), lki_report(b.exit_code);
    return lki_bench_report_end(b.report) ? lki_report(LKI_EXIT_FAILED) : LKI_EXIT_DONE;
}

const lki_command lki_command_bench = {
    .name = "bench",
    .usage = "[-C FILE ... | --model NAME] [--simulate | --split | --ops] [--a/b/0=VALUE ...] [options]",
    .summary = "Times a training step on this machine, or predicts it on many ranks.",
    .options = table,
    .options_nbytes = sizeof(bench_options),
    .takes_overrides = true,
    .overrides_offset = OFFSET(config.overrides),
    .run = run,
    .notes = "docs/scaling.md explains the predictions and how accurate they are.",
};
