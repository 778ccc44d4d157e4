/* All-reduces timed between real ranks: those this process forks, or those it is one of. */
#include "cli/bench/bench.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "launch/connect.h"

#include <lockstep/launch.h>

#include <stdio.h>
#include <stdlib.h>

static const int64_t counts[] = {1, 7850, 101770, 2500000}; /* a loss, MNIST-linear, an MLP, 10 MB */
enum { SIZES = sizeof counts / sizeof *counts, REPEATS = 200, REPEATS_LARGE = 20, LARGE = 1000000 };

typedef struct timing {
    const char *backend;
    char comm[24];
    int ranks;
    double median_s[SIZES], best_s[SIZES];
} timing;

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static lk_status time_size(lk_comm *comm, timing *t, int index)
{
    double seconds[REPEATS];
    int repeats = counts[index] >= LARGE ? REPEATS_LARGE : REPEATS;
    LKI_SCOPED float *data = LKI_NEW_ARRAY(float, counts[index]);
    if (!data) return LK_ERR_NOMEM;
    for (int i = -repeats / 10 - 1; i < repeats; i++) {
        double begin_s = lki_now_s();
        LKI_TRY(lk_comm_all_reduce(comm, data, counts[index], LK_F32, LK_REDUCE_SUM));
        if (i >= 0) seconds[i] = lki_now_s() - begin_s;
    }
    qsort(seconds, (size_t)repeats, sizeof *seconds, ascending);
    t->median_s[index] = seconds[repeats / 2];
    t->best_s[index] = seconds[0];
    return LK_OK;
}

static lk_status time_all(void *context)
{
    timing *t = context;
    lki_role role = *lki_process_role();
    lk_comm *comm = NULL;
    LKI_TRY(lki_comm_connect(&comm, &role, &(lki_connect_options){.backend = t->backend}));
    snprintf(t->comm, sizeof t->comm, "%s", comm->ops->name);
    t->ranks = comm->size;
    lk_status status = LK_OK;
    for (int i = 0; i < SIZES && status == LK_OK; i++) status = time_size(comm, t, i);
    if (status) lk_comm_abort(comm, lk_error());
    lk_comm_free(comm);
    return status;
}

lk_status lki_bench_collectives(lki_bench_report *report, int nproc, const char *backend)
{
    timing t = {.backend = backend};
    LKI_TRY(lk_distributed_run(time_all, &t, .nproc = nproc));
    for (int i = 0; i < SIZES && lk_rank() == 0; i++)
        lki_bench_report_collective(report, t.comm, t.ranks, (double)counts[i] * sizeof(float), t.median_s[i],
                                    t.best_s[i]);
    return LK_OK;
}
