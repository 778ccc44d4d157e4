/* Which rule has written an optimizer's state, so that no other goes on from it: the same tensors would mean
 * something else, and a rule that keeps fewer has no room for the rest.
 *
 * A rule goes on from its own state alone, and only where both keep the same set of tensors (SGD with
 * momentum keeps one, without none). Adam and AdamW go on from each other's, as in PyTorch: both keep the
 * moments of the gradient. Files without the rule's name are judged by their tensors. */
#ifndef LKI_RESUME_OPTIMIZER_RULE_H
#define LKI_RESUME_OPTIMIZER_RULE_H

#include <lockstep/checkpoint.h>

#include "step/step.h"

/* "<prefix>.rule", a string: "Adam". */
lk_status lki_rule_save(lk_state_dict *state, const lk_optimizer *optimizer, const char *prefix);
/* Fails in one line that names both where the step's optimizer cannot go on from the state. */
lk_status lki_rule_check(const lk_state_dict *state, const lk_step *step, const char *prefix);

#endif
