/* A step may have to go before its run's model does: with its engine, with its comm, for one of another
 * precision. What its optimizer has learned of the parameters stays with the runner until the next step of
 * that model and optimizer takes it. */
#ifndef LKI_RESUME_KEPT_OPTIMIZER_H
#define LKI_RESUME_KEPT_OPTIMIZER_H

#include <lockstep/checkpoint.h>
#include <lockstep/runner.h>

/* Frees a step, and saves what its optimizer knows in *kept. The next step restores it from there, and
 * leaves what is known of parameters that it does not train: they may be thawed again. */
lk_status lki_step_save_kept(lk_step **step, lk_state_dict **kept);
lk_status lki_step_restore_kept(lk_step *step, lk_state_dict **kept);
void lki_step_drop(lk_step **step, lk_state_dict **kept);

/* All steps of the runner. */
lk_status lki_steps_save_kept(lk_runner *runner);
void lki_steps_drop(lk_runner *runner);
/* Lets those steps by key go, with what they know kept, whose parameters have been frozen or thawed since
 * they were made. Their users may hold them for the length of a run: between two. */
lk_status lki_steps_renew(lk_runner *runner);

/* What is kept, to a checkpoint that has not got it from the step: all of it while there is no step, what is
 * known of frozen parameters beside one. `prefix` is the optimizer's there: "optimizer", "optimizer:<key>".
 */
lk_status lki_kept_save(const lk_state_dict *kept, lk_state_dict *state, const char *prefix);
/* What a checkpoint, or what was kept, knows of parameters that the step does not train. */
lk_status lki_kept_restore_frozen(lk_state_dict **kept, const lk_step *step, const lk_state_dict *state,
                                  const char *prefix);
/* Tensors and strings of names that start with `from_prefix` and a dot, under `to_prefix`, if `to` has none
 * of that name. */
lk_status lki_state_add_missing(lk_state_dict *to, const char *to_prefix, const lk_state_dict *from,
                                const char *from_prefix);

#endif
