/* How far a run has come: the counters, the generator, the loaders and the table of epochs. */
#ifndef LKI_RESUME_PLACE_STATE_H
#define LKI_RESUME_PLACE_STATE_H

#include <lockstep/checkpoint.h>
#include <lockstep/runner.h>

lk_status lki_place_save(lk_runner *runner, lk_state_dict *state);
lk_status lki_place_restore(lk_runner *runner, const lk_state_dict *state);

#endif
