/* Everything that a run must remember to go on as if it had never stopped. */
#ifndef LKI_RESUME_RUNNER_STATE_H
#define LKI_RESUME_RUNNER_STATE_H

#include <lockstep/checkpoint.h>
#include <lockstep/runner.h>

/* Collective where lki_rank_state_is_needed. */
lk_status lki_runner_save(lk_runner *runner, lk_state_dict *state);

/* Makes the runner's step (lki_run_prepare_step): what an optimizer has learned is restored into it. */
typedef lk_status (*lki_make_step)(lk_runner *runner);
/* Takes the state over, also when it fails. */
lk_status lki_runner_restore(lk_runner *runner, lk_state_dict *state_owned, lki_make_step make_step);

#endif
