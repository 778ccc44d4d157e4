/* The ranks of the run that this thread is in, for steps that a callback or handle_batch makes for itself.
 *
 * A run on several ranks enters its lki_current_ranks, which may be inside of another run's, and leaves it
 * when it ends. Runs of one rank do not enter. */
#ifndef LKI_STEP_CURRENT_RANKS_H
#define LKI_STEP_CURRENT_RANKS_H

#include <lockstep/runner.h>
#include <lockstep/step.h>
#include <lockstep/sys/comm.h>

typedef struct lki_current_ranks {
    struct lki_current_ranks *outer; /* the run whose callback has started this one; NULL: nobody's */
    uint64_t number;                 /* of this run among those on several ranks */
    int world_size;
    lk_comm *const *comm; /* where the run keeps the comm of its steps */
    const lk_runner *runner;
    /* Fails if not all ranks have a batch now: a step is made by all of them together. */
    lk_status (*check_all_have_batches)(const lk_runner *runner);
} lki_current_ranks;

/* Sets `outer` and `number`; the caller has filled in the rest and keeps it until lki_ranks_leave. */
void lki_ranks_enter(lki_current_ranks *ranks);
/* Harmless for ranks that have not been entered. */
void lki_ranks_leave(lki_current_ranks *ranks);

/* The comm that a step takes which was made without one: that of the run's ranks if it is to train, else
 * NULL. *run_number is then not 0 and names the run. Fails if not all ranks make the step. */
lk_status lki_ranks_comm_for_step(const lk_step_options *options, lk_comm **comm, uint64_t *run_number);

/* Fails for a step that would train on this rank alone though nobody has said so: one that was made outside
 * of the run, or in an earlier run. */
lk_status lki_ranks_check_own_step(const lk_comm *comm, uint64_t run_number);
static inline lk_status lki_ranks_check_step(const lk_comm *comm, uint64_t run_number)
{
    return comm && !run_number ? LK_OK : lki_ranks_check_own_step(comm, run_number);
}

#endif
