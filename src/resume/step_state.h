/* What a step's optimizer has learned, under names that start with a prefix: "optimizer",
 * "optimizer:<key>". */
#ifndef LKI_RESUME_STEP_STATE_H
#define LKI_RESUME_STEP_STATE_H

#include <lockstep/checkpoint.h>
#include <lockstep/step.h>

lk_status lki_step_save(const lk_step *step, lk_state_dict *state, const char *prefix);
lk_status lki_step_restore(lk_step *step, const lk_state_dict *state, const char *prefix);
/* The same without the numbers of the groups, learning rate and momentum: they stay what they are. Parameters
 * of which the state knows nothing start anew. */
lk_status lki_step_restore_moments(lk_step *step, const lk_state_dict *state, const char *prefix);
/* The numbers of the groups alone. */
lk_status lki_groups_save(lk_state_dict *state, const lk_optimizer *optimizer, const char *prefix);

#endif
