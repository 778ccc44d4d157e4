/* The loaders in a checkpoint: where each draws its next pass from, and the first passes of those that repeat
 * theirs. The pass that a run is inside of is part of its place, in place_state.c. */
#ifndef LKI_RESUME_LOADER_STATES_H
#define LKI_RESUME_LOADER_STATES_H

#include <lockstep/checkpoint.h>
#include <lockstep/runner.h>

#include "run/loaders.h"

lk_status lki_loader_states_save(const lki_run_loaders *loaders, lk_state_dict *state);
/* A loader that the checkpoint does not know starts afresh. */
lk_status lki_loader_states_restore(lk_runner *runner, const lk_state_dict *state);

#endif
