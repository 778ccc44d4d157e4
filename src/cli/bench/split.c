/* lockstep bench --split: one global batch on each split of the cores into ranks and threads, with real
 * ranks, their all-reduces and their loaders. Each split trains in a process of its own, because ranks are
 * forked before an engine starts threads. */
#include "cli/bench/measure_config.h"
#include "cli/bench/report.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/threads.h"
#include "config/config.h"

#include <lockstep/callback.h>

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WARM_BATCHES = 3, LONGEST_WORD = 400 };

/* What a process that measures leaves behind, in memory that it shares. */
typedef struct split {
    int ranks, threads;
    int64_t batch_count, begin_count; /* of the batches whose end was seen; at which the clock was started */
    double begin_s, end_s;
    int64_t begin_samples, end_samples; /* of all ranks */
    bool is_done;
    lk_status status;
    char error[LONGEST_WORD];
} split;

typedef struct job {
    const lki_config_options *options;
    int64_t global_batch;
    double seconds;
} job;

static double samples_per_s(const split *s)
{
    return (double)(s->end_samples - s->begin_samples) / (s->end_s - s->begin_s);
}

/* ---- In the process of a split ---- */

/* The first batches compile plans and fill caches. */
static lk_status count_batch(lk_callback *callback, lk_runner *runner)
{
    split *s = callback->context;
    if (!runner->is_train_loader || runner->rank != 0) return LK_OK;
    s->end_s = lki_now_s();
    s->end_samples = runner->sample_step;
    if (++s->batch_count > WARM_BATCHES) return LK_OK;
    s->begin_s = s->end_s;
    s->begin_samples = s->end_samples;
    s->begin_count = s->batch_count;
    return LK_OK;
}

static lk_status train_split(const job *j, split *s)
{
    lki_plan plan;
    lk_config *config = lki_load_config("bench", j->options);
    if (!config) return lki_last_status();
    lk_status status = lki_config_build(config, &plan);
    lki_trial_run trial = {.ranks = s->ranks,
                           .thread_count = s->threads,
                           .global_batch = j->global_batch,
                           .minutes = j->seconds / 60,
                           .callback_owned = status ? NULL : lk_on(batch_end, count_batch, s)};
    if (!status) status = lki_config_run_trial(config, &plan, &trial);
    if (!status && s->batch_count <= s->begin_count)
        status = lki_fail(LK_ERR_INVALID, "%d rank%s: only %lld batches in %g seconds: raise --seconds",
                          s->ranks, s->ranks == 1 ? "" : "s", (long long)s->batch_count, j->seconds);
    lki_plan_fini(&plan);
    lk_config_free(config);
    return status;
}

/* Nothing of this process may reach the screen a second time. */
static void measure_and_exit(const job *j, split *s)
{
    s->status = train_split(j, s);
    if (s->status) snprintf(s->error, sizeof s->error, "%s", lk_error());
    s->is_done = true;
    _exit(0);
}

/* ---- In the command ---- */

static lk_status measure_split(const job *j, split *s)
{
    int state;
    fflush(stdout);
    pid_t child = fork();
    if (child < 0) return lki_fail(LK_ERR_IO, "bench: a process could not be started");
    if (child == 0) measure_and_exit(j, s);
    while (waitpid(child, &state, 0) < 0) {
    }
    if (!s->is_done) return lki_fail(LK_ERR_IO, "bench: the process that measured %d ranks died", s->ranks);
    return s->status ? lki_fail(s->status, "%s", s->error) : LK_OK;
}

static bool is_better(const split *a, const split *b)
{
    return !b || samples_per_s(a) > samples_per_s(b);
}

/* The override that gives the train loader another batch size, if the config has it there. */
static bool can_override(const lki_config_options *given, const char *text)
{
    lk_config *config = lki_load_config("bench", given);
    bool can = config && lk_config_override(config, text) == LK_OK;
    lk_config_free(config);
    return can;
}

/* "lockstep run -C a.yml --nproc 2 --loaders/train/batch_size=25" */
static lk_status format_command(const job *j, const split *best, char **out)
{
    char batch[64];
    const lki_config_options *options = j->options;
    snprintf(batch, sizeof batch, "loaders/train/batch_size=%lld",
             (long long)(j->global_batch / best->ranks));
    *out = lki_strdup("lockstep run");
    for (int i = 0; *out && i < options->files.count + options->overrides.count; i++) {
        bool is_file = i < options->files.count;
        const char *word =
            is_file ? options->files.items[i] : options->overrides.items[i - options->files.count];
        char *longer = lki_format("%s %s%s", *out, is_file ? "-C " : "--", word);
        lki_free(*out);
        *out = longer;
    }
    if (!*out) return LK_ERR_NOMEM;
    bool can = can_override(options, batch);
    char *whole = lki_format("%s --nproc %d%s%s%s", *out, best->ranks, can ? " --" : ", with ",
                             can ? batch : strchr(batch, '/') + 1, can ? "" : " in the train loader");
    lki_free(*out);
    *out = whole;
    return whole ? LK_OK : LK_ERR_NOMEM;
}

static void print_row(const job *j, const split *s)
{
    printf("%7d %8d %8lld %11.3f %13.0f\n", s->ranks, s->threads, (long long)(j->global_batch / s->ranks),
           (s->end_s - s->begin_s) / (double)(s->batch_count - s->begin_count) * 1e3, samples_per_s(s));
    fflush(stdout);
}

static json_t *row_json(const job *j, const split *s)
{
    return json_pack("{s:i, s:i, s:I, s:f, s:f}", "ranks", s->ranks, "threads", s->threads, "batch_size",
                     (json_int_t)(j->global_batch / s->ranks), "step_s",
                     (s->end_s - s->begin_s) / (double)(s->batch_count - s->begin_count), "samples_per_s",
                     samples_per_s(s));
}

static lk_status report_best(lki_bench_report *report, const job *j, const split *best, json_t *rows)
{
    char *command;
    LKI_TRY(format_command(j, best, &command));
    if (rows)
        lki_bench_add_json(report, json_pack("{s:I, s:O, s:s}", "global_batch", (json_int_t)j->global_batch,
                                             "splits", rows, "command", command));
    else
        printf("the fastest: %s\n", command);
    lki_free(command);
    return LK_OK;
}

static lk_status measure_all(lki_bench_report *report, const job *j, split *shared, json_t *rows)
{
    split best = {0};
    int cores = lki_core_count();
    if (!rows) {
        lki_bench_begin_rows(report, "split");
        printf("global batch %lld on %d core%s\n", (long long)j->global_batch, cores, cores == 1 ? "" : "s");
        printf("%7s %8s %8s %11s %13s\n", "ranks", "threads", "batch", "step ms", "samples/s");
    }
    for (int ranks = 1; ranks <= cores; ranks++) {
        if (cores % ranks || j->global_batch % ranks) continue;
        *shared = (split){.ranks = ranks, .threads = cores / ranks};
        LKI_TRY(measure_split(j, shared));
        if (rows)
            json_array_append_new(rows, row_json(j, shared));
        else
            print_row(j, shared);
        if (is_better(shared, best.ranks ? &best : NULL)) best = *shared;
    }
    return report_best(report, j, &best, rows);
}

static lk_status find_global_batch(job *j)
{
    lki_plan plan;
    int ranks;
    int64_t batch_size;
    lk_config *config = lki_load_config("bench", j->options);
    if (!config) return lki_last_status();
    lk_status status = lki_config_build(config, &plan);
    if (status == LK_OK) status = lki_config_batch(config, &plan, &ranks, &batch_size);
    if (status == LK_OK) j->global_batch = ranks * batch_size;
    lki_plan_fini(&plan);
    lk_config_free(config);
    return status;
}

lk_status lki_bench_split(lki_bench_report *report, const lki_config_options *options, double seconds)
{
    job j = {.options = options, .seconds = seconds};
    LKI_TRY(find_global_batch(&j));
    split *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return lki_fail(LK_ERR_NOMEM, "bench: no memory to share between processes");
    json_t *rows = report->json ? json_array() : NULL;
    lk_status status = measure_all(report, &j, shared, rows);
    json_decref(rows);
    munmap(shared, sizeof *shared);
    return status;
}
