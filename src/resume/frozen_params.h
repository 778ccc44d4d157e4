/* Which parameters are frozen, in a checkpoint: callbacks that freeze and thaw do so where an epoch begins,
 * or at any batch, and a run that goes on from there does not call them again.
 *
 * Names: "trainable.<path>" (and "trainable:<key>.<path>" of further models), 0 or 1 as the model's
 * parameters say, and "<optimizer>.frozen.<path>" of those that the optimizer's step was made without. The
 * two differ between a callback's word and the next batch that trains. A run that freezes nothing writes none
 * of them. */
#ifndef LKI_RESUME_FROZEN_PARAMS_H
#define LKI_RESUME_FROZEN_PARAMS_H

#include <lockstep/checkpoint.h>
#include <lockstep/runner.h>

/* From here on the run's checkpoints say what is trainable, where anything is frozen. */
lk_status lki_frozen_look(lk_runner *runner);
lk_status lki_frozen_save_models(lk_runner *runner, lk_state_dict *state);
lk_status lki_frozen_save_step(lk_state_dict *state, const lk_step *step, const char *prefix);

/* Whether the state was saved without this parameter being trained. */
bool lki_frozen_has(const lk_state_dict *state, const char *prefix, const char *path);
/* Sets `trainable` of the runner's model as the saved step was made, and lets a step go that was not. */
lk_status lki_frozen_restore_step(lk_runner *runner, const lk_state_dict *state);
/* Sets it as it was; `key` is NULL for the runner's own model. Parameters that the state does not speak of
 * stay as they are. */
lk_status lki_frozen_restore_model(lk_runner *runner, lk_module *model, const char *key,
                                   const lk_state_dict *state);

#endif
