/* Weights of a file into a model, all or by name, and the report of what did not fit. */
#ifndef LKI_RESUME_FIT_WEIGHTS_H
#define LKI_RESUME_FIT_WEIGHTS_H

#include <lockstep/runner.h>

/* Checks every name and shape before it changes anything. `prefix` stands before the model's names in
 * `state`, `what` names the file in errors. `report` may be NULL; else it gets one sentence, also after a
 * failure to fit: lki_free it. */
lk_status lki_weights_fit(lk_module *module, const lk_state_dict *state, const char *prefix, const char *what,
                          const char *names, bool strict, char **report);

#endif
