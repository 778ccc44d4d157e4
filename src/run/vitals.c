#include "run/vitals.h"

#include "base/memory.h"
#include "base/status.h"
#include "comm/comm.h"
#include "logger/logger.h"
#include "run/loop.h"
#include "run/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_RANKS = 64, PER_RANK = 5, OF_ALL = 8, NAME_NBYTES = 40 };

static const int64_t INTERVAL_NS = 10000000000;

/* What a rank says of the time since the last point. Below 0: not known. */
typedef struct rank_vitals {
    double seconds, loader_s, comm_s;
    double batches, samples;
    double memory_mb, gpu_memory_mb;
} rank_vitals;

/* ---- Measuring ---- */

/* Pages of this process that are in memory, those it shares with other ranks included. */
static double resident_mb(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (!file) return -1;
    if (fscanf(file, "%*d %ld", &pages) != 1) pages = 0;
    fclose(file);
    return pages > 0 ? (double)pages * (double)sysconf(_SC_PAGESIZE) / 1048576 : -1;
}

/* Collectives of a GPU are a part of its recorded step: the host does not see how long they take. */
static bool sees_comm(const lk_comm *comm)
{
    return comm && comm->size > 1 && !comm->ops->on_device;
}

static rank_vitals measure(const lk_runner *runner)
{
    const lki_vitals *vitals = &runner->run->vitals;
    const lk_comm *comm = runner->run->ranks.comm;
    return (rank_vitals){
        .seconds = (double)(lki_now_ns() - vitals->begin_ns) * 1e-9,
        .loader_s = (double)vitals->loader_ns * 1e-9,
        .comm_s = sees_comm(comm) ? (double)(lki_comm_waited_ns(comm) - vitals->comm_ns) * 1e-9 : -1,
        .batches = (double)vitals->batches,
        .samples = (double)vitals->samples,
        .memory_mb = resident_mb(),
        .gpu_memory_mb = lki_run_gpu_memory_mb(runner)};
}

static void start_interval(lk_runner *runner)
{
    lki_vitals *vitals = &runner->run->vitals;
    const lk_comm *comm = runner->run->ranks.comm;
    vitals->loader_ns = vitals->batches = vitals->samples = vitals->agreed_ns = 0;
    vitals->comm_ns = sees_comm(comm) ? lki_comm_waited_ns(comm) : 0;
    vitals->begin_ns = lki_now_ns();
}

/* ---- A point ---- */

typedef struct point {
    lk_metric_value values[OF_ALL + MOST_RANKS * PER_RANK];
    char names[OF_ALL + MOST_RANKS * PER_RANK][NAME_NBYTES];
    int count;
} point;

static void put(point *p, int rank, const char *name, double value)
{
    char *text = p->names[p->count];
    if (value < 0 || !isfinite(value)) return;
    if (rank < 0)
        snprintf(text, NAME_NBYTES, "%s", name);
    else
        snprintf(text, NAME_NBYTES, "rank%d/%s", rank, name);
    p->values[p->count++] = (lk_metric_value){text, value};
}

static void put_rank(point *p, int rank, const rank_vitals *one)
{
    double per_batch = one->batches > 0 ? 1e3 / one->batches : NAN;
    double comm_s = one->comm_s < 0 ? 0 : one->comm_s;
    put(p, rank, "compute_ms", fmax(one->seconds - one->loader_s - comm_s, 0) * per_batch);
    put(p, rank, "communication_ms", one->comm_s < 0 ? -1 : one->comm_s * per_batch);
    put(p, rank, "loader_ms", one->loader_s * per_batch);
    put(p, rank, "memory_mb", one->memory_mb);
    put(p, rank, "gpu_memory_mb", one->gpu_memory_mb);
}

static int by_name(const void *a, const void *b)
{
    const lk_metric_value *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static void sum_up(point *p, const lk_runner *runner, const rank_vitals *all, int count)
{
    rank_vitals most = {.memory_mb = -1, .gpu_memory_mb = -1};
    double samples = 0, comm_share = 0, loader_share = 0;
    int64_t tokens = lki_tokens_per_sample(runner);
    for (int r = 0; r < count; r++) {
        samples += all[r].samples;
        comm_share += all[r].comm_s / all[r].seconds / count;
        loader_share += all[r].loader_s / all[r].seconds / count;
        most.seconds = fmax(most.seconds, all[r].seconds);
        most.memory_mb = fmax(most.memory_mb, all[r].memory_mb);
        most.gpu_memory_mb = fmax(most.gpu_memory_mb, all[r].gpu_memory_mb);
        if (r < MOST_RANKS) put_rank(p, r, &all[r]);
    }
    put(p, -1, "samples_per_s", samples / most.seconds);
    if (tokens) put(p, -1, "tokens_per_s", samples * (double)tokens / most.seconds);
    put(p, -1, "step_ms", 1e3 * most.seconds / all[0].batches);
    put(p, -1, "communication_share", all[0].comm_s < 0 ? -1 : comm_share);
    put(p, -1, "loader_share", loader_share);
    put(p, -1, "memory_mb", most.memory_mb);
    put(p, -1, "gpu_memory_mb", most.gpu_memory_mb);
    qsort(p->values, (size_t)p->count, sizeof *p->values, by_name);
}

static lk_status write_point(lk_runner *runner, const rank_vitals *all)
{
    lk_logger *logger = runner->run->vitals.logger;
    if (!logger || !(all[0].batches > 0)) return LK_OK;
    LKI_SCOPED point *p = LKI_NEW(point);
    if (!p) return LK_ERR_NOMEM;
    lk_log_step step = {.loader_key = "system",
                        .epoch_step = runner->epoch_step,
                        .epoch_count = runner->num_epochs,
                        .batch_step = runner->batch_step,
                        .sample_step = runner->sample_step};
    sum_up(p, runner, all, runner->world_size);
    LKI_TRY(lk_logger_log_metrics(logger, LK_LOG_BATCH, &step, (lk_metric_values){p->values, p->count}));
    return lk_logger_flush(logger);
}

static lk_status report(lk_runner *runner)
{
    lk_comm *comm = runner->run->ranks.comm;
    rank_vitals own = measure(runner);
    LKI_SCOPED rank_vitals *all = LKI_NEW_ARRAY(rank_vitals, runner->world_size);
    if (!all) return LK_ERR_NOMEM;
    all[0] = own;
    if (comm && comm->size > 1) LKI_TRY(lk_comm_all_gather(comm, &own, all, sizeof own, LK_U8));
    LKI_TRY(write_point(runner, all));
    start_interval(runner);
    return LK_OK;
}

/* ---- When ---- */

void lki_vitals_begin_pass(lk_runner *runner)
{
    lki_run *run = runner->run;
    run->vitals.is_on = runner->is_train_loader && run->given.logdir && !run->evaluating;
    if (run->vitals.is_on) start_interval(runner);
}

lk_status lki_vitals_after_batch(lk_runner *runner)
{
    lki_run *run = runner->run;
    lki_vitals *vitals = &run->vitals;
    bool is_alone = !run->ranks.comm || run->ranks.comm->size == 1;
    if (!vitals->is_on) return LK_OK;
    vitals->batches++;
    vitals->samples += runner->counted_batch_size;
    int64_t passed_ns = is_alone ? lki_now_ns() - vitals->begin_ns : vitals->agreed_ns;
    return passed_ns >= INTERVAL_NS ? report(runner) : LK_OK;
}

lk_status lki_vitals_end_pass(lk_runner *runner)
{
    lki_vitals *vitals = &runner->run->vitals;
    if (!vitals->is_on) return LK_OK;
    LKI_TRY(report(runner));
    vitals->is_on = false;
    return LK_OK;
}

/* ---- The file ---- */

lk_status lki_vitals_open(lk_runner *runner)
{
    lki_run *run = runner->run;
    lk_logger_options options = {LK_SIZE(lk_logger_options), .log_batch_metrics = true};
    if (!run->given.logdir || run->vitals.logger) return LK_OK;
    LKI_SCOPED char *path = lki_format("%s/system.jsonl", run->given.logdir);
    if (!path) return LK_ERR_NOMEM;
    run->vitals.logger = lk_jsonl_logger_with(path, &options);
    if (!run->vitals.logger) return lki_last_status();
    if (lki_run_epochs_done(runner) == 0 && runner->sample_step == 0) return LK_OK;
    return lk_logger_resume(run->vitals.logger, lki_run_epochs_done(runner), runner->sample_step);
}

lk_status lki_vitals_close(lki_vitals *vitals)
{
    lk_status status = vitals->logger ? lk_logger_close(vitals->logger) : LK_OK;
    vitals->logger = NULL;
    vitals->is_on = false;
    return status;
}
