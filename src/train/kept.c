/* A step may have to go before its run's model does: with its engine, with its comm, for one of another
 * precision. What its optimizer has learned of the parameters stays with the runner until the next step of
 * that model and optimizer takes it. */
#include "base/status.h"
#include "train/run.h"
#include "train/step.h"

static const char PREFIX[] = "optimizer";

void lki_step_drop(lk_step **step, lk_state_dict **kept)
{
    lk_step_free(*step);
    lk_state_dict_free(*kept);
    *step = NULL;
    *kept = NULL;
}

lk_status lki_step_keep(lk_step **step, lk_state_dict **kept)
{
    if (!*step) return LK_OK;
    lk_state_dict *state = lk_state_dict_create();
    lk_status status = state ? lki_step_save_state(*step, state, PREFIX) : LK_ERR_NOMEM;
    lki_step_drop(step, kept);
    if (status)
        lk_state_dict_free(state);
    else
        *kept = state;
    return status;
}

lk_status lki_step_take_kept(lk_step *step, lk_state_dict **kept)
{
    if (!*kept || !lk_state_dict_count(*kept) || !step->options.optimizer) return LK_OK;
    lk_status status = lki_step_load_moments(step, *kept, PREFIX);
    lk_state_dict_free(*kept);
    *kept = NULL;
    return status;
}

lk_status lki_run_keep_steps(lk_runner *runner)
{
    lki_run *run = runner->run;
    lk_status first = lki_step_keep(&runner->step, &run->kept);
    for (int i = 0; i < run->part_count; i++) {
        lk_status status = lki_step_keep(&run->parts[i].step, &run->parts[i].kept);
        if (!first) first = status;
    }
    return first;
}

void lki_run_drop_steps(lk_runner *runner)
{
    lki_run *run = runner->run;
    lki_step_drop(&runner->step, &run->kept);
    for (int i = 0; i < run->part_count; i++) lki_step_drop(&run->parts[i].step, &run->parts[i].kept);
}
