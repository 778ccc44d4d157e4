/* A callback's way to the run's other ranks. */
#include "base/status.h"
#include "data/loader.h"
#include "run/run.h"

/* Rank 0 has the most batches of a loader and the last rank the fewest. */
static lk_status check_all_call(const lk_runner *runner, const char *what)
{
    lk_pass_size most, fewest;
    if (!runner->batch || runner->is_train_loader) return LK_OK;
    lk_pass_options first = lki_run_pass_of(runner, 0, false);
    lk_pass_options last = lki_run_pass_of(runner, runner->world_size - 1, false);
    LKI_TRY(lki_loader_check_length(runner->loader, what));
    LKI_TRY(lk_loader_size(runner->loader, &first, &most));
    LKI_TRY(lk_loader_size(runner->loader, &last, &fewest));
    if (most.batch_count == fewest.batch_count) return LK_OK;
    return lki_fail(LK_ERR_INVALID,
                    "%s: loader \"%s\" has %lld batches on rank 0 and %lld on rank %d, so not all ranks make "
                    "this call: make it at loader_end",
                    what, runner->loader_key, (long long)most.batch_count, (long long)fewest.batch_count,
                    runner->world_size - 1);
}

static lk_status comm_of(lk_runner *runner, const char *what, lk_comm **out)
{
    if (!runner) return lki_fail(LK_ERR_INVALID, "%s: there is no runner", what);
    *out = runner->run->ranks.comm && runner->world_size > 1 ? runner->run->ranks.comm : lk_comm_alone();
    return (*out)->size > 1 ? check_all_call(runner, what) : LK_OK;
}

lk_status lk_runner_all_reduce(lk_runner *runner, void *data, int64_t count, lk_dtype dtype, lk_reduce reduce)
{
    lk_comm *comm = NULL;
    LKI_TRY(comm_of(runner, "lk_runner_all_reduce", &comm));
    return lk_comm_all_reduce(comm, data, count, dtype, reduce);
}

lk_status lk_runner_all_gather(lk_runner *runner, const void *send, void *recv, int64_t count, lk_dtype dtype)
{
    lk_comm *comm = NULL;
    LKI_TRY(comm_of(runner, "lk_runner_all_gather", &comm));
    return lk_comm_all_gather(comm, send, recv, count, dtype);
}

lk_status lk_runner_broadcast(lk_runner *runner, void *data, int64_t count, lk_dtype dtype, int root)
{
    lk_comm *comm = NULL;
    LKI_TRY(comm_of(runner, "lk_runner_broadcast", &comm));
    return lk_comm_broadcast(comm, data, count, dtype, root);
}

lk_status lk_runner_barrier(lk_runner *runner)
{
    lk_comm *comm = NULL;
    LKI_TRY(comm_of(runner, "lk_runner_barrier", &comm));
    return lk_comm_barrier(comm);
}
