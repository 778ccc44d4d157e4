#include "step/current_ranks.h"

#include "base/status.h"

static _Thread_local lki_current_ranks *current;
static _Thread_local uint64_t run_count;

void lki_ranks_enter(lki_current_ranks *ranks)
{
    ranks->outer = current;
    ranks->number = ++run_count;
    current = ranks;
}

void lki_ranks_leave(lki_current_ranks *ranks)
{
    if (current == ranks) current = ranks->outer;
}

lk_status lki_ranks_comm_for_step(const lk_step_options *options, lk_comm **comm, uint64_t *run_number)
{
    *comm = NULL;
    *run_number = 0;
    if (!current || !options->optimizer) return LK_OK;
    LKI_TRY(current->check_all_have_batches(current->runner));
    *comm = *current->comm;
    *run_number = current->number;
    return LK_OK;
}

lk_status lki_ranks_check_own_step(const lk_comm *comm, uint64_t run_number)
{
    if (run_number && (!current || run_number != current->number))
        return lki_fail(LK_ERR_INVALID, "the step belongs to a run on several ranks that has ended: make it "
                                        "again, or use lk_runner_step");
    if (comm || !current) return LK_OK;
    return lki_fail(LK_ERR_INVALID,
                    "the step was made outside of this run of %d ranks, which would train apart: "
                    "use lk_runner_step, or make it with .comm = lk_comm_alone()",
                    current->world_size);
}
