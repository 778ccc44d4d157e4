/* A step may have to go before its run's model does: with its engine, with its comm, for one of another
 * precision. What its optimizer has learned of the parameters stays with the runner until the next step of
 * that model and optimizer takes it. */
#include "base/memory.h"
#include "base/status.h"
#include "optim/optimizer.h"
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

/* What `to` has no tensor of. */
static lk_status add_missing(lk_state_dict *to, const lk_state_dict *from)
{
    for (int64_t i = 0; i < lk_state_dict_count(from); i++) {
        const char *name = lk_state_dict_name(from, i);
        if (lk_state_dict_has(to, name)) continue;
        LKI_TRY(lk_state_dict_put(to, name, lk_tensor_clone(lk_state_dict_tensor(from, i))));
    }
    return LK_OK;
}

lk_status lki_step_keep(lk_step **step, lk_state_dict **kept)
{
    if (!*step) return LK_OK;
    lk_state_dict *state = lk_state_dict_create();
    lk_status status = state ? lki_step_save_state(*step, state, PREFIX) : LK_ERR_NOMEM;
    if (!status && *kept) status = add_missing(state, *kept);
    lki_step_drop(step, kept);
    if (status)
        lk_state_dict_free(state);
    else
        *kept = state;
    return status;
}

/* The optimizer's state of one parameter, and how many updates it has seen: those of the others go on. */
static lk_status copy_moments(lk_state_dict *to, const lk_state_dict *from, const lk_step *step,
                              const char *path)
{
    int64_t updates = 0;
    bool any = false;
    for (int s = 0; s < step->flat.state_count; s++) {
        LKI_SCOPED char *name =
            lki_format("%s.%s.%s", PREFIX, lki_optimizer_state_name(step->options.optimizer, s), path);
        if (!name) return LK_ERR_NOMEM;
        if (!lk_state_dict_has(from, name)) continue;
        any = true;
        LKI_TRY(lk_state_dict_put(to, name, lk_tensor_clone(lk_state_dict_get(from, name))));
    }
    if (!any) return LK_OK;
    LKI_SCOPED char *age = lki_format("%s.updates.%s", PREFIX, path);
    LKI_SCOPED char *count = lki_format("%s.step", PREFIX);
    if (!age || !count) return LK_ERR_NOMEM;
    LKI_TRY(lk_state_dict_get_i64(from, lk_state_dict_has(from, age) ? age : count, &updates));
    return lk_state_dict_put_i64(to, age, updates);
}

static lk_status copy_frozen(lk_state_dict *to, const lk_state_dict *from, const lk_step *step)
{
    const lki_flat *flat = &step->flat;
    for (int i = 0, next = 0; i < step->params.count; i++) {
        if (next < flat->slice_count && flat->slices[next].param == step->params.items[i].param)
            next++;
        else
            LKI_TRY(copy_moments(to, from, step, step->params.items[i].path));
    }
    return LK_OK;
}

lk_status lki_kept_get_frozen(lk_state_dict **kept, const lk_step *step, const lk_state_dict *state)
{
    lk_state_dict *frozen = lk_state_dict_create();
    lk_status status = frozen ? copy_frozen(frozen, state, step) : LK_ERR_NOMEM;
    bool empty = status || !lk_state_dict_count(frozen);
    if (empty) lk_state_dict_free(frozen);
    lk_state_dict_free(*kept);
    *kept = empty ? NULL : frozen;
    return status;
}

lk_status lki_kept_put_frozen(const lk_state_dict *kept, lk_state_dict *state)
{
    return kept ? add_missing(state, kept) : LK_OK;
}

lk_status lki_step_take_kept(lk_step *step, lk_state_dict **kept)
{
    if (!*kept || !lk_state_dict_count(*kept) || !step->options.optimizer) return LK_OK;
    LKI_TRY(lki_step_load_moments(step, *kept, PREFIX));
    lk_state_dict *state = *kept;
    *kept = NULL;
    lk_status status = lki_kept_get_frozen(kept, step, state);
    lk_state_dict_free(state);
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

lk_status lki_run_renew_parts(lk_runner *runner)
{
    lki_run *run = runner->run;
    for (int i = 0; i < run->part_count; i++) {
        const lk_step *step = run->parts[i].step;
        if (!step || !step->options.optimizer || lki_flat_is_current(&step->flat, &step->params)) continue;
        LKI_TRY(lki_step_keep(&run->parts[i].step, &run->parts[i].kept));
    }
    return LK_OK;
}

void lki_run_drop_steps(lk_runner *runner)
{
    lki_run *run = runner->run;
    lki_step_drop(&runner->step, &run->kept);
    for (int i = 0; i < run->part_count; i++) lki_step_drop(&run->parts[i].step, &run->parts[i].kept);
}
