/* lk_distributed_run, and who this process is. */
#include <lockstep/launch.h>

#include "launch/devices.h"
#include "launch/ranks.h"
#include "launch/role.h"

#include "base/status.h"
#include "base/take.h"
#include "base/threads.h"

/* Between two runs a process is nobody's rank, but it still is who its launcher made of it. */
static lki_role current_role(void)
{
    lki_role role = *lki_process_role(), launched;
    if (role.source != LKI_ROLE_LOCAL) return role;
    return lki_launch_role(&launched, lki_process_flags(), NULL, lki_host_gpu_count()) ? role : launched;
}

int lk_rank(void)
{
    return current_role().rank;
}

int lk_world_size(void)
{
    int world_size = current_role().world_size;
    return world_size < 1 ? 1 : world_size; /* MPI may not have told its size yet */
}

int lk_local_rank(void)
{
    int local_rank = current_role().local_rank;
    return local_rank < 0 ? 0 : local_rank;
}

lk_status lk_distributed_run_with(lk_rank_function function, void *context,
                                  const lk_distributed_run_options *given)
{
    LKI_TAKE(lk_distributed_run_options, options, given, lk_error_status());
    lki_launch_flags flags = *lki_process_flags();
    lki_ranks *ranks = NULL;
    lki_role role;
    if (!function) return lki_fail(LK_ERR_INVALID, "lk_distributed_run: there is no function to run");
    if (options.nproc < 0)
        return lki_fail(LK_ERR_INVALID, "nproc: expected 0 for the default, or a number above it, found %d",
                        options.nproc);
    if (lki_process_role()->source == LKI_ROLE_FORKED)
        return lki_fail(LK_ERR_INVALID, "rank %d: a rank cannot fork ranks of its own", lk_rank());
    if (options.nproc) flags.nproc = options.nproc;
    LKI_TRY(lki_launch_role(&role, &flags, NULL, lki_host_gpu_count()));
    int nproc = role.fork_count;
    if (role.source == LKI_ROLE_LOCAL && !flags.nproc) nproc = lki_core_count();
    LKI_TRY(lki_fork_ranks(&ranks, &role, nproc,
                           &(lki_fork_options){.no_pinning = options.no_pinning || nproc == 1}));
    unsigned long said = lki_fail_count();
    return lki_ranks_finish(ranks, lki_fail_if_silent(function(context), said, "the rank's", "function"));
}
