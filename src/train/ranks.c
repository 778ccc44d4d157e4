#include "train/ranks.h"

#include "base/status.h"
#include "train/run.h"

static _Thread_local lk_runner *current;
static _Thread_local uint64_t run_count;

void lki_ranks_enter(lk_runner *runner)
{
    if (runner->world_size == 1) return;
    runner->run->outer = current;
    runner->run->number = ++run_count;
    current = runner;
}

void lki_ranks_leave(lk_runner *runner)
{
    if (current == runner) current = runner->run->outer;
}

lk_status lki_ranks_comm_for_step(const lk_step_options *options, lk_comm **comm, uint64_t *run_number)
{
    *comm = NULL;
    *run_number = 0;
    if (!current || !options->optimizer) return LK_OK;
    LKI_TRY(lki_run_check_all_have_batches(current));
    *comm = current->run->step_options.comm;
    *run_number = current->run->number;
    return LK_OK;
}

lk_status lki_ranks_check_step(const lk_comm *comm, uint64_t run_number)
{
    if (run_number && (!current || run_number != current->run->number))
        return lki_fail(LK_ERR_INVALID, "the step belongs to a run on several ranks that has ended: make it "
                                        "again, or use lk_runner_step");
    if (comm || !current) return LK_OK;
    return lki_fail(LK_ERR_INVALID,
                    "the step was made outside of this run of %d ranks, which would train apart: "
                    "use lk_runner_step, or make it with .comm = lk_comm_alone()",
                    current->world_size);
}

/* ---- Collectives of callbacks ---- */

/* Rank 0 has the most batches of a loader and the last rank the fewest. */
static lk_status check_all_call(const lk_runner *runner, const char *what)
{
    lk_pass_size most, fewest;
    if (!runner->batch || runner->is_train_loader) return LK_OK;
    LKI_TRY(lk_loader_size(runner->loader, (lk_pass_options){.world = runner->world_size}, &most));
    LKI_TRY(lk_loader_size(runner->loader,
                           (lk_pass_options){.rank = runner->world_size - 1, .world = runner->world_size},
                           &fewest));
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
    *out = runner->run->comm && runner->world_size > 1 ? runner->run->comm : lk_comm_alone();
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
