#include "resume/kept_optimizer.h"

#include "base/memory.h"
#include "base/status.h"
#include "optim/optimizer.h"
#include "resume/step_state.h"
#include "run/run.h"
#include "step/step.h"

#include <string.h>

static const char PREFIX[] = "optimizer";

void lki_step_drop(lk_step **step, lk_state_dict **kept)
{
    lk_step_free(*step);
    lk_state_dict_free(*kept);
    *step = NULL;
    *kept = NULL;
}

static bool has_string(const lk_state_dict *state, const char *name)
{
    for (int64_t i = 0; i < lk_state_dict_string_count(state); i++)
        if (strcmp(lk_state_dict_string_name(state, i), name) == 0) return true;
    return false;
}

/* "<from_prefix>.<rest>" as "<to_prefix>.<rest>", to be freed; "" of a name that does not start so. */
static char *with_prefix(const char *name, const char *from_prefix, const char *to_prefix)
{
    size_t length = strlen(from_prefix);
    bool fits = strncmp(name, from_prefix, length) == 0 && name[length] == '.';
    return fits ? lki_format("%s%s", to_prefix, name + length) : lki_strdup("");
}

lk_status lki_state_add_missing(lk_state_dict *to, const char *to_prefix, const lk_state_dict *from,
                                const char *from_prefix)
{
    for (int64_t i = 0; i < lk_state_dict_count(from); i++) {
        LKI_SCOPED char *name = with_prefix(lk_state_dict_name(from, i), from_prefix, to_prefix);
        if (!name) return LK_ERR_NOMEM;
        if (!name[0] || lk_state_dict_has(to, name)) continue;
        LKI_TRY(lk_state_dict_put(to, name, lk_tensor_clone(lk_state_dict_tensor(from, i))));
    }
    for (int64_t i = 0; i < lk_state_dict_string_count(from); i++) {
        const char *own = lk_state_dict_string_name(from, i);
        LKI_SCOPED char *name = with_prefix(own, from_prefix, to_prefix);
        if (!name) return LK_ERR_NOMEM;
        if (!name[0] || has_string(to, name)) continue;
        LKI_TRY(lk_state_dict_put_string(to, name, lk_state_dict_get_string(from, own)));
    }
    return LK_OK;
}

lk_status lki_step_save_kept(lk_step **step, lk_state_dict **kept)
{
    if (!*step) return LK_OK;
    lk_state_dict *state = lk_state_dict_create();
    lk_status status = state ? lki_step_save(*step, state, PREFIX) : LK_ERR_NOMEM;
    if (!status && *kept) status = lki_state_add_missing(state, PREFIX, *kept, PREFIX);
    lki_step_drop(step, kept);
    if (status)
        lk_state_dict_free(state);
    else
        *kept = state;
    return status;
}

/* The optimizer's state of one parameter, and how many updates it has seen: those of the others go on. */
static lk_status copy_moments(lk_state_dict *to, const lk_state_dict *from, const char *prefix,
                              const lk_step *step, const char *path)
{
    int64_t updates = 0;
    bool any = false;
    for (int s = 0; s < step->flat.state_count; s++) {
        const char *word = lki_optimizer_state_name(step->options.optimizer, s);
        LKI_SCOPED char *saved = lki_format("%s.%s.%s", prefix, word, path);
        LKI_SCOPED char *name = lki_format("%s.%s.%s", PREFIX, word, path);
        if (!saved || !name) return LK_ERR_NOMEM;
        if (!lk_state_dict_has(from, saved)) continue;
        any = true;
        LKI_TRY(lk_state_dict_put(to, name, lk_tensor_clone(lk_state_dict_get(from, saved))));
    }
    if (!any) return LK_OK;
    LKI_SCOPED char *age = lki_format("%s.updates.%s", prefix, path);
    LKI_SCOPED char *count = lki_format("%s.step", prefix);
    LKI_SCOPED char *name = lki_format("%s.updates.%s", PREFIX, path);
    if (!age || !count || !name) return LK_ERR_NOMEM;
    LKI_TRY(lk_state_dict_get_i64(from, lk_state_dict_has(from, age) ? age : count, &updates));
    return lk_state_dict_put_i64(to, name, updates);
}

static lk_status copy_frozen(lk_state_dict *to, const lk_state_dict *from, const char *prefix,
                             const lk_step *step)
{
    for (int i = 0; i < step->params.count; i++)
        if (!lki_flat_has(&step->flat, step->params.items[i].param))
            LKI_TRY(copy_moments(to, from, prefix, step, step->params.items[i].path));
    return LK_OK;
}

lk_status lki_kept_restore_frozen(lk_state_dict **kept, const lk_step *step, const lk_state_dict *state,
                                  const char *prefix)
{
    lk_state_dict *frozen = lk_state_dict_create();
    lk_status status = frozen ? copy_frozen(frozen, state, prefix, step) : LK_ERR_NOMEM;
    bool empty = status || !lk_state_dict_count(frozen);
    if (empty) lk_state_dict_free(frozen);
    lk_state_dict_free(*kept);
    *kept = empty ? NULL : frozen;
    return status;
}

lk_status lki_kept_save(const lk_state_dict *kept, lk_state_dict *state, const char *prefix)
{
    return kept ? lki_state_add_missing(state, prefix, kept, PREFIX) : LK_OK;
}

lk_status lki_step_restore_kept(lk_step *step, lk_state_dict **kept)
{
    if (!*kept || !lk_state_dict_count(*kept) || !step->options.optimizer) return LK_OK;
    LKI_TRY(lki_step_restore_moments(step, *kept, PREFIX));
    lk_state_dict *state = *kept;
    *kept = NULL;
    lk_status status = lki_kept_restore_frozen(kept, step, state, PREFIX);
    lk_state_dict_free(state);
    return status;
}

lk_status lki_steps_save_kept(lk_runner *runner)
{
    lki_run *run = runner->run;
    lk_status first = lki_step_save_kept(&runner->step, &run->batch.kept);
    for (int i = 0; i < run->parts.count; i++) {
        lk_status status = lki_step_save_kept(&run->parts.items[i].step, &run->parts.items[i].kept);
        if (!first) first = status;
    }
    return first;
}

lk_status lki_steps_renew(lk_runner *runner)
{
    lki_run *run = runner->run;
    for (int i = 0; i < run->parts.count; i++) {
        const lk_step *step = run->parts.items[i].step;
        if (!step || !step->options.optimizer || lki_flat_is_current(&step->flat, &step->params)) continue;
        LKI_TRY(lki_step_save_kept(&run->parts.items[i].step, &run->parts.items[i].kept));
    }
    return LK_OK;
}

void lki_steps_drop(lk_runner *runner)
{
    lki_run *run = runner->run;
    lki_step_drop(&runner->step, &run->batch.kept);
    for (int i = 0; i < run->parts.count; i++)
        lki_step_drop(&run->parts.items[i].step, &run->parts.items[i].kept);
}
