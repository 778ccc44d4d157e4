#include "resume/part_state.h"

#include "base/memory.h"
#include "base/status.h"
#include "resume/frozen_params.h"
#include "resume/kept_optimizer.h"
#include "resume/model_state.h"
#include "resume/rank_state.h"
#include "resume/step_state.h"
#include "run/run.h"

/* What is kept for a step that is not there has the numbers of the groups as they were when it went. */
lk_status lki_step_or_kept_save(lk_state_dict *state, const lk_step *step, const lk_state_dict *kept,
                                const lk_optimizer *optimizer, const char *prefix)
{
    if (step)
        LKI_TRY(lki_step_save(step, state, prefix));
    else if (kept && optimizer)
        LKI_TRY(lki_groups_save(state, optimizer, prefix));
    return lki_kept_save(kept, state, prefix);
}

static lk_status save_part(lk_state_dict *state, const lki_part *part)
{
    LKI_SCOPED char *model = lki_format("model:%s.", part->key);
    LKI_SCOPED char *optimizer = lki_format("optimizer:%s", part->key);
    if (!model || !optimizer) return LK_ERR_NOMEM;
    if (part->model) LKI_TRY(lki_module_save(state, part->model, model));
    return lki_step_or_kept_save(state, part->step, part->kept, part->optimizer, optimizer);
}

/* A part whose step this run has not needed yet has all of it still in what the run was resumed from. */
static lk_status save_untouched(lk_state_dict *state, const lki_run *run)
{
    for (int i = 0; i < run->parts.count && run->resuming.state; i++) {
        const lki_part *part = &run->parts.items[i];
        LKI_SCOPED char *optimizer = lki_format("optimizer:%s", part->key);
        if (!optimizer) return LK_ERR_NOMEM;
        if (!part->step && !part->kept)
            LKI_TRY(lki_state_add_missing(state, optimizer, run->resuming.state, optimizer));
    }
    return LK_OK;
}

lk_status lki_parts_save(const lk_runner *runner, lk_state_dict *state)
{
    const lki_parts *parts = &runner->run->parts;
    for (int i = 0; i < parts->count; i++) LKI_TRY(save_part(state, &parts->items[i]));
    return save_untouched(state, runner->run);
}

/* A part may be made after the state has been loaded, by the first batch for example: then it finds its own
 * there. */
lk_status lki_part_restore_model(lk_runner *runner, lki_part *part)
{
    const lk_state_dict *state = runner->run->resuming.state;
    if (!state || !part->model) return LK_OK;
    LKI_SCOPED char *prefix = lki_format("model:%s.", part->key);
    if (!prefix) return LK_ERR_NOMEM;
    LKI_TRY(lki_frozen_restore_model(runner, part->model, part->key, state));
    return lki_module_restore(state, part->model, prefix);
}

/* The run that was saved may not have come to make the step. */
lk_status lki_part_restore_step(lk_runner *runner, lki_part *part)
{
    const lk_state_dict *state = runner->run->resuming.state;
    if (!state || !part->step) return LK_OK;
    LKI_SCOPED char *prefix = lki_format("optimizer:%s", part->key);
    LKI_SCOPED char *count_name = lki_format("optimizer:%s.step", part->key);
    if (!prefix || !count_name) return LK_ERR_NOMEM;
    if (!lk_state_dict_has(state, count_name)) return LK_OK;
    LKI_TRY(lki_step_restore(part->step, state, prefix));
    LKI_TRY(lki_kept_restore_frozen(&part->kept, part->step, state, prefix));
    return lki_rank_state_restore_step(runner, part->step, part->key);
}

lk_status lki_parts_restore(lk_runner *runner)
{
    lki_run *run = runner->run;
    for (int i = 0; i < run->parts.count; i++) {
        lki_part *part = &run->parts.items[i];
        if (run->resuming.state && !part->step)
            lki_step_drop(&part->step, &part->kept); /* an earlier run's */
        LKI_TRY(lki_part_restore_model(runner, part));
        LKI_TRY(lki_part_restore_step(runner, part));
    }
    return LK_OK;
}
