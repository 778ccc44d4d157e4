#include "train/distributed.h"

#include "base/memory.h"
#include "base/status.h"
#include "base/threads.h"
#include "launch/connect.h"
#include "launch/ranks.h"
#include "optim/optimizer.h"
#include "train/step.h"

#include <lockstep/launch.h>

enum { MAX_AGREED = 64, STOP_CHECK_BATCHES = 16 };

/* ---- Metrics across ranks ---- */

static lk_status sum_f64(void *context, double *data, int64_t count)
{
    return lk_comm_all_reduce(context, data, count, LK_F64, LK_REDUCE_SUM);
}

static lk_status gather_bytes(void *context, void *out, const void *in, size_t nbytes)
{
    return lk_comm_all_gather(context, in, out, (int64_t)nbytes, LK_U8);
}

static void use_comm(lk_runner *runner, lk_comm *comm)
{
    lki_run *run = runner->run;
    run->comm = comm;
    run->step_options.comm = comm;
    runner->rank = comm->rank;
    runner->world_size = comm->size;
    runner->is_master = comm->rank == 0;
    run->collectives = (lki_metric_collectives){.rank = comm->rank,
                                                .world_size = comm->size,
                                                .context = comm,
                                                .allreduce_sum_f64 = sum_f64,
                                                .allgather = gather_bytes};
}

static void forget_comm(lk_runner *runner)
{
    lki_run *run = runner->run;
    run->comm = NULL;
    run->step_options.comm = NULL;
    run->collectives = (lki_metric_collectives){.world_size = 1};
}

/* ---- Becoming ranks ---- */

static lk_status resolve_role(const lk_train_options *options, lki_role *role, int *fork_count)
{
    lki_launch_flags flags = *lki_process_flags();
    bool wants_ranks = options->ddp || options->distributed || options->nproc > 0 || flags.nproc > 0;
    if (options->nproc > 0) flags.nproc = options->nproc;
    LKI_TRY(lki_launch_role(role, &flags, NULL, 0));
    *fork_count = role->fork_count;
    if (role->source == LKI_ROLE_LOCAL)
        *fork_count = !wants_ranks ? 1 : flags.nproc ? flags.nproc : lki_core_count();
    return LK_OK;
}

/* Connecting finds out what the role left open: which rank of its host this is, and of how many. */
static lk_status connect_ranks(lk_comm **comm, const char *backend)
{
    lki_role role = *lki_process_role();
    LKI_TRY(lki_comm_connect(comm, &role, &(lki_connect_options){.backend = backend}));
    lki_process_role_set(&role);
    return LK_OK;
}

static lk_status train_connected(lk_runner *runner, lk_status (*train)(lk_runner *runner))
{
    lk_comm *comm;
    LKI_TRY(connect_ranks(&comm, runner->run->options.comm));
    use_comm(runner, comm);
    lk_status status = train(runner);
    if (status) {
        LKI_SCOPED char *reason = lki_strdup(lk_error());
        lk_comm_abort(comm, reason ? reason : "out of memory");
        lki_fail(status, "%s", reason ? reason : "out of memory");
    }
    /* The step holds the comm: a later run on this runner makes a step of its own. */
    lk_step_free(runner->step);
    runner->step = NULL;
    forget_comm(runner);
    lk_comm_free(comm);
    return status;
}

lk_status lki_distributed_train(lk_runner *runner, lk_status (*train)(lk_runner *runner))
{
    lki_role role;
    lki_ranks *ranks = NULL;
    int fork_count;
    if (lki_process_role()->world_size > 1)
        return train_connected(runner, train); /* inside lk_distributed_run */
    LKI_TRY(resolve_role(&runner->run->options, &role, &fork_count));
    if (fork_count == 1 && role.world_size == 1) {
        runner->run->collectives.world_size = 1;
        return train(runner);
    }
    if (runner->engine) {
        /* An earlier run's engine has threads, and threads do not survive a fork. */
        lk_step_free(runner->step);
        runner->step = NULL;
        lk_engine_close(runner->run->engine);
        runner->engine = runner->run->engine = NULL;
    }
    LKI_TRY(lki_fork_ranks(&ranks, &role, fork_count, &(lki_fork_options){.no_pinning = fork_count == 1}));
    return lki_ranks_finish(ranks, train_connected(runner, train));
}

/* ---- Agreeing ---- */

lk_status lki_distributed_agree(lk_runner *runner)
{
    lki_run *run = runner->run;
    double numbers[MAX_AGREED] = {runner->need_early_stop};
    if (!run->comm || run->comm->size == 1) return LK_OK;
    int groups = runner->optimizer ? lk_optimizer_group_count(runner->optimizer) : 0;
    if (groups > MAX_AGREED - 1) groups = MAX_AGREED - 1;
    for (int i = 0; i < groups; i++) numbers[1 + i] = lk_optimizer_lr(runner->optimizer, i);
    LKI_TRY(lk_comm_broadcast(run->comm, numbers, 1 + groups, LK_F64, 0));
    runner->need_early_stop = numbers[0] != 0;
    for (int i = 0; i < groups; i++) lk_optimizer_set_lr(runner->optimizer, i, numbers[1 + i]);
    return LK_OK;
}

lk_status lki_distributed_stop_asked(lk_runner *runner, bool *out)
{
    lki_run *run = runner->run;
    int64_t asked = run->stop_flag ? *run->stop_flag : 0;
    *out = asked != 0;
    if (!run->comm || run->comm->size == 1) return LK_OK;
    *out = false;
    /* Only where all ranks take as many batches may all of them ask. */
    if (!runner->is_train_loader || runner->loader_batch_step % STOP_CHECK_BATCHES != 0) return LK_OK;
    LKI_TRY(lk_comm_all_reduce(run->comm, &asked, 1, LK_I64, LK_REDUCE_MAX));
    *out = asked != 0;
    return LK_OK;
}
