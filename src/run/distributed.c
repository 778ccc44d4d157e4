#include "run/distributed.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/threads.h"
#include "device/open_plugin.h"
#include "launch/connect.h"
#include "launch/devices.h"
#include "launch/min_nodes.h"
#include "launch/ranks.h"
#include "launch/restart.h"
#include "nn/module.h"
#include "optim/optimizer.h"
#include "resume/kept_optimizer.h"
#include "run/loop.h"
#include "run/parts.h"
#include "run/run.h"
#include "run/run_engine.h"
#include "step/step.h"

#include <lockstep/launch.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_AGREED = 64 };

/* ---- Metrics across ranks ---- */

static lk_status sum_i64(void *context, int64_t *data, int64_t count)
{
    return lk_comm_all_reduce(context, data, count, LK_I64, LK_REDUCE_SUM);
}

static lk_status gather_bytes(void *context, void *out, const void *in, size_t nbytes)
{
    return lk_comm_all_gather(context, in, out, (int64_t)nbytes, LK_U8);
}

static void use_comm(lk_runner *runner, lk_comm *comm)
{
    lki_run *run = runner->run;
    run->ranks.comm = comm;
    run->ranks.told_difference = false;
    run->batch.step_options.comm = run->given.options.local_gradients ? lk_comm_alone() : comm;
    runner->rank = comm->rank;
    runner->world_size = comm->size;
    runner->is_master = comm->rank == 0;
    run->ranks.collectives = (lki_metric_collectives){.rank = comm->rank,
                                                      .world_size = comm->size,
                                                      .context = comm,
                                                      .allreduce_sum_i64 = sum_i64,
                                                      .allgather = gather_bytes};
    if (comm->size == 1) return;
    run->ranks.current = (lki_current_ranks){.world_size = comm->size,
                                             .comm = &run->batch.step_options.comm,
                                             .runner = runner,
                                             .check_all_have_batches = lki_run_check_all_have_batches};
    lki_ranks_enter(&run->ranks.current);
}

void lki_distributed_alone(lk_runner *runner)
{
    runner->rank = 0;
    runner->world_size = 1;
    runner->is_master = lk_rank() == 0;
    runner->run->ranks.collectives = (lki_metric_collectives){.world_size = 1};
}

/* The runner still says what the run was: whoever reports on it asks afterwards. */
static void forget_comm(lk_runner *runner)
{
    lki_run *run = runner->run;
    run->ranks.comm = NULL;
    run->batch.step_options.comm = NULL;
    lki_ranks_leave(&run->ranks.current);
    run->ranks.collectives = (lki_metric_collectives){.world_size = 1};
}

/* ---- Becoming ranks ---- */

static bool is_auto(const char *device)
{
    return !device || !*device || strcmp(device, "auto") == 0;
}

/* Below 0 where the run is not to use one. */
static int gpus_for(const char *device)
{
    return is_auto(device) || strncmp(device, "cuda", 4) == 0 ? lki_host_gpu_count() : -1;
}

static int visible_gpus(const char *device)
{
    return lki_visible_gpu_count(getenv("CUDA_VISIBLE_DEVICES"), gpus_for(device));
}

/* How many ranks ddp means on this machine alone. CUDA must not be started before the fork: whether the
 * engine's library is there has to do. */
static int default_rank_count(const lk_train_options *options)
{
    int gpus = visible_gpus(options->device), shared = 1;
    int count = gpus > 0 && lki_cuda_plugin_get() ? gpus : lki_core_count();
    while (2 * shared <= count && 2 * shared <= options->shards) shared *= 2;
    return options->shards ? shared : count;
}

static lk_status resolve_role(const lk_train_options *options, lki_role *role, int *fork_count)
{
    lki_launch_flags flags = *lki_process_flags();
    bool wants_ranks = options->ddp || options->nproc > 0 || flags.nproc > 0;
    if (options->nproc > 0) flags.nproc = options->nproc;
    LKI_TRY(lki_launch_role(role, &flags, NULL, gpus_for(options->device)));
    *fork_count = role->fork_count;
    if (role->source == LKI_ROLE_LOCAL)
        *fork_count = !wants_ranks ? 1 : flags.nproc ? flags.nproc : default_rank_count(options);
    if (role->gpu_count > 0 && role->rank == 0 && is_auto(options->device) && lki_host_gpu_count() == 0)
        lki_log(LKI_LOG_WARNING,
                "Slurm gave this task %d GPU%s, but this machine shows none: ranks use the CPU",
                role->gpu_count, role->gpu_count == 1 ? "" : "s");
    return LK_OK;
}

/* Connecting finds out what the role left open: which rank of its host this is, and of how many. */
static lk_status connect_ranks(lk_comm **comm, const lki_run *run)
{
    lki_role role = *lki_process_role();
    lki_connect_options options = {.backend = run->given.options.comm,
                                   .device = run->given.device,
                                   .min_nodes = run->given.options.min_nodes,
                                   .shards = run->given.options.shards};
    lk_status status = lki_comm_connect(comm, &role, &options);
    lki_process_role_set(&role);
    return status;
}

/* What a rank that ends tells the others. A peer's death ends an attempt; what this rank did wrong itself
 * ends the job, and a launcher that would start it again must be able to tell: lki_is_end_of_job. */
static void tell_end(lk_comm *comm, lk_status status, const char *sentence)
{
    char reason[sizeof((lki_error *)0)->sentence + sizeof LKI_RUN_FAILED];
    bool is_peers = status == LK_ERR_PEER || status == LK_ERR_TIMEOUT;
    snprintf(reason, sizeof reason, "%s%s", is_peers ? "" : LKI_RUN_FAILED, sentence);
    lk_comm_abort(comm, reason);
}

static lk_status train_connected(lk_runner *runner, lk_status (*train)(lk_runner *runner))
{
    lk_comm *comm;
    LKI_TRY(lki_steps_save_kept(runner)); /* an evaluation may have made some, which know of no comm */
    LKI_TRY(connect_ranks(&comm, runner->run));
    use_comm(runner, comm);
    lk_status status = train(runner);
    if (status && !runner->run->stop.stopped) {
        lki_error first = {0};
        lki_error_keep(&first, status);
        tell_end(comm, status, first.sentence);
        lki_error_restore(&first);
    }
    /* Steps hold the comm: a later run on this runner makes its own. */
    if (status)
        lki_steps_drop(runner);
    else
        status = lki_steps_save_kept(runner);
    forget_comm(runner);
    lk_comm_free(comm);
    lki_ranks_close_door();
    return status;
}

/* Who asks for ddp expects a rank for each core: fewer are said. */
static const char *note_of(const lk_train_options *options, const lki_role *role, int fork_count)
{
    bool wants = options->ddp && options->nproc == 0 && lki_process_flags()->nproc == 0;
    if (!wants || fork_count > 1) return NULL;
    if (role->source == LKI_ROLE_LOCAL)
        return "ddp found one core: one rank, which shuffles only where a loader says so";
    bool one_a_node = role->source == LKI_ROLE_SLURM && role->world_size == role->node_count;
    return one_a_node && lki_core_count() > 1
               ? "one for each of Slurm's tasks: --nproc starts more on each node"
               : NULL;
}

lk_status lki_distributed_train(lk_runner *runner, lk_status (*train)(lk_runner *runner))
{
    lki_role role;
    lki_ranks *ranks = NULL;
    int fork_count;
    if (lki_process_role()->world_size > 1)
        return train_connected(runner, train); /* inside lk_distributed_run */
    LKI_TRY(resolve_role(&runner->run->given.options, &role, &fork_count));
    runner->run->ranks.launch_note = note_of(&runner->run->given.options, &role, fork_count);
    if (runner->run->given.options.min_nodes)
        LKI_TRY(lki_connect_check_min_nodes(runner->run->given.options.min_nodes,
                                            runner->run->given.options.comm, &role));
    if (fork_count == 1 && role.world_size == 1) {
        lki_distributed_alone(runner);
        return train(runner);
    }
    /* An earlier run's engine has threads, and threads do not survive a fork. */
    if (runner->engine) LKI_TRY(lki_run_close_engine(runner));
    LKI_TRY(lki_fork_ranks(&ranks, &role, fork_count, &(lki_fork_options){.no_pinning = fork_count == 1}));
    return lki_ranks_finish(ranks, train_connected(runner, train));
}

/* ---- Agreeing ---- */

/* One message for both: a sum with zeros is what rank 0 has said. */
static lk_status agree(lk_runner *runner, int groups)
{
    lki_run *run = runner->run;
    double numbers[MAX_AGREED] = {runner->need_early_stop};
    if (!run->ranks.comm || run->ranks.comm->size == 1) return LK_OK;
    for (int i = 0; i < groups && runner->rank == 0; i++)
        numbers[1 + i] = lk_optimizer_lr(runner->optimizer, i);
    LKI_TRY(lk_comm_all_reduce(run->ranks.comm, numbers, 1 + groups, LK_F64, LK_REDUCE_SUM));
    runner->need_early_stop = numbers[0] != 0;
    for (int i = 0; i < groups; i++) lk_optimizer_set_lr(runner->optimizer, i, numbers[1 + i]);
    return LK_OK;
}

lk_status lki_distributed_agree_to_stop(lk_runner *runner)
{
    return agree(runner, 0);
}

lk_status lki_distributed_agree(lk_runner *runner)
{
    int groups = runner->optimizer ? lk_optimizer_group_count(runner->optimizer) : 0;
    return agree(runner, groups < MAX_AGREED ? groups : MAX_AGREED - 1);
}

static lk_status share_model(lk_comm *comm, const lk_module *model)
{
    lk_param_list params;
    if (!model) return LK_OK;
    LKI_TRY(lki_module_params(model, &params));
    lk_status status = lki_params_share(comm, &params, false);
    lk_param_list_free(&params);
    return status;
}

lk_status lki_distributed_share_models(lk_runner *runner, bool changed)
{
    lki_run *run = runner->run;
    int64_t wanted = changed;
    if (!run->ranks.comm || run->ranks.comm->size == 1) return LK_OK;
    LKI_TRY(lk_comm_broadcast(run->ranks.comm, &wanted, 1, LK_I64, 0));
    if (!wanted) return LK_OK;
    LKI_TRY(share_model(run->ranks.comm, runner->model));
    for (int i = 0; i < run->parts.count; i++)
        LKI_TRY(share_model(run->ranks.comm, run->parts.items[i].model));
    return LK_OK;
}

/* Also keeps a rank that the signal will end from ending before rank 0 has written everything: a launcher
 * that misses one rank ends the others. */
lk_status lki_distributed_share_signal(lk_runner *runner)
{
    lki_run *run = runner->run;
    int64_t number = *run->stop.flag;
    if (!run->ranks.comm || run->ranks.comm->size == 1) return LK_OK;
    LKI_TRY(lk_comm_all_reduce(run->ranks.comm, &number, 1, LK_I64, LK_REDUCE_MAX));
    if (!*run->stop.flag) *run->stop.flag = (int)number;
    return LK_OK;
}

/* The ranks meet again, with those that have come back, and go on from the checkpoint of this epoch: that is
 * another attempt of the launcher's. */
lk_status lki_distributed_take_in(lk_runner *runner)
{
    lki_run *run = runner->run;
    char who[160] = "";
    bool may_meet = run->given.options.min_nodes && lki_restarts_allowed() > 0;
    if (!may_meet || !run->ranks.comm || !lki_run_has_epochs_left(runner)) return LK_OK;
    if (runner->rank == 0) lki_ranks_wait(who, sizeof who);
    LKI_TRY(lk_comm_broadcast(run->ranks.comm, who, sizeof who, LK_U8, 0));
    if (!*who) return LK_OK;
    run->stop.stopped = run->stop.meets_again = true;
    lki_ask_to_meet_again();
    return lki_fail(LK_ERR_STOPPED, "%s: taken in after epoch %lld", who, (long long)runner->epoch_step);
}

lk_status lki_distributed_leave_together(lk_runner *runner)
{
    return runner->run->ranks.comm ? lk_comm_barrier(runner->run->ranks.comm) : LK_OK;
}
