/* The ranks of the run that this thread is in, for whoever is called by it: collectives of callbacks, and
 * steps that a callback or handle_batch makes for itself. */
#ifndef LKI_TRAIN_RANKS_H
#define LKI_TRAIN_RANKS_H

#include <lockstep/runner.h>

/* The thread enters a run, which may be inside of another one, and leaves it. Runs of one rank do not count.
 */
void lki_ranks_enter(lk_runner *runner);
void lki_ranks_leave(lk_runner *runner);

/* The comm that a step takes which was made without one: that of the run's ranks if it is to train, else
 * NULL. *run_number is then not 0 and names the run. Fails where not all ranks make the step. */
lk_status lki_ranks_comm_for_step(const lk_step_options *options, lk_comm **comm, uint64_t *run_number);

/* Fails for a step that would train on this rank alone though nobody has said so: one that was made outside
 * of the run, or in an earlier run. */
lk_status lki_ranks_check_step(const lk_comm *comm, uint64_t run_number);

#endif
