/* Weights: the model's under PyTorch's names, those of further models behind their key, "generator.". */
#ifndef LKI_RESUME_MODEL_STATE_H
#define LKI_RESUME_MODEL_STATE_H

#include <lockstep/runner.h>

/* One module, under names that start with `prefix`. */
lk_status lki_module_save(lk_state_dict *state, const lk_module *module, const char *prefix);
lk_status lki_module_restore(const lk_state_dict *state, lk_module *module, const char *prefix);

bool lki_runner_has_models(const lk_runner *runner);
/* The weights of all models of the runner; the caller's to free. */
lk_state_dict *lki_models_save(const lk_runner *runner);
/* From a file of weights or a runner's checkpoint; `what` names it in errors. */
lk_status lki_models_restore(lk_runner *runner, const lk_state_dict *state, const char *what);
lk_status lki_model_restore(lk_module *model, const lk_state_dict *state, const char *what);
/* The weights of the runner's one model whose names the patterns select; `strict`: all must be there, and no
 * further ones. What did not fit is logged. */
lk_status lki_models_restore_some(lk_runner *runner, const lk_state_dict *state, const char *what,
                                  const char *names, bool strict);

#endif
