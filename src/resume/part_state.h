/* The models and steps that a runner keeps by key, in a checkpoint: "model:<key>.<path>",
 * "optimizer:<key>.<state>.<path>". */
#ifndef LKI_RESUME_PART_STATE_H
#define LKI_RESUME_PART_STATE_H

#include <lockstep/checkpoint.h>
#include <lockstep/runner.h>

#include "run/parts.h"

lk_status lki_parts_save(const lk_runner *runner, lk_state_dict *state);
/* Of those that there are. */
lk_status lki_parts_restore(lk_runner *runner);
/* What the resumed state holds for a part that has just been added. */
lk_status lki_part_restore_model(lk_runner *runner, lki_part *part);
lk_status lki_part_restore_step(lk_runner *runner, lki_part *part);

/* What an optimizer has learned, wherever it is: in its step, or kept without one. Also for the runner's own.
 */
lk_status lki_step_or_kept_save(lk_state_dict *state, const lk_step *step, const lk_state_dict *kept,
                                const lk_optimizer *optimizer, const char *prefix);

#endif
