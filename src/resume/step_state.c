/* The optimizer's part of a checkpoint: the flat state, cut into the parameters' slices. */
#include "resume/step_state.h"

#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/state_values.h"
#include "optim/optimizer.h"
#include "resume/frozen_params.h"
#include "resume/optimizer_rule.h"
#include "step/step.h"

#include <string.h>

static lk_tensor *state_slice(const lki_flat *flat, lk_buffer *buffer, const lki_slice *slice)
{
    return lki_tensor_over(buffer, (size_t)slice->offset * lk_dtype_nbytes(flat->dtype), flat->dtype,
                           slice->param->value->shape);
}

/* PyTorch's names of what a GradScaler keeps. Updates that were skipped do not count. */
static lk_status save_scaler(lk_state_dict *state, const lki_scaler *scaler, const char *prefix)
{
    const lk_scaler_options *options = &scaler->options;
    const struct {
        const char *name;
        double value;
    } numbers[] = {{"scale", lki_scaler_get(scaler, LK_SCALER_SCALE)},
                   {"_growth_tracker", lki_scaler_get(scaler, LK_SCALER_TRACKER)},
                   {"growth_factor", options->growth_factor},
                   {"backoff_factor", options->backoff_factor},
                   {"growth_interval", (double)options->growth_interval}};
    for (int i = 0; i < 5; i++) {
        LKI_SCOPED char *name = lki_format("%s.scaler.%s", prefix, numbers[i].name);
        if (!name) return LK_ERR_NOMEM;
        LKI_TRY(lk_state_dict_put_f64(state, name, numbers[i].value));
    }
    return LK_OK;
}

/* How the scale changes is the run's own; where it stands is the checkpoint's. One of another precision has
 * none. */
static lk_status restore_scaler(const lk_state_dict *state, lki_scaler *scaler, const char *prefix)
{
    static const struct {
        const char *name;
        lk_scaler_field field;
    } numbers[] = {{"scale", LK_SCALER_SCALE}, {"_growth_tracker", LK_SCALER_TRACKER}};
    lki_scaler_set(scaler, LK_SCALER_SKIPPED, 0);
    lki_scaler_set(scaler, LK_SCALER_FOUND, 0);
    for (int i = 0; i < 2; i++) {
        LKI_SCOPED char *name = lki_format("%s.scaler.%s", prefix, numbers[i].name);
        double value;
        if (!name) return LK_ERR_NOMEM;
        if (!lk_state_dict_has(state, name)) continue;
        LKI_TRY(lk_state_dict_get_f64(state, name, &value));
        lki_scaler_set(scaler, numbers[i].field, value);
    }
    return LK_OK;
}

static int64_t updates_made(const lk_step *step)
{
    int64_t skipped = step->scaler.numbers ? (int64_t)lki_scaler_get(&step->scaler, LK_SCALER_SKIPPED) : 0;
    return step->update.step_count - skipped;
}

/* The updates that a parameter has seen, where those are not the step's: it was frozen meanwhile. */
static lk_status save_ages(lk_state_dict *state, const lk_step *step, const char *prefix)
{
    for (int i = 0; i < step->flat.slice_count; i++) {
        const lki_slice *slice = &step->flat.slices[i];
        if (slice->since == 0) continue;
        LKI_SCOPED char *name = lki_format("%s.updates.%s", prefix, slice->path);
        if (!name) return LK_ERR_NOMEM;
        LKI_TRY(lk_state_dict_put_i64(state, name, updates_made(step) - slice->since));
    }
    return LK_OK;
}

lk_status lki_groups_save(lk_state_dict *state, const lk_optimizer *optimizer, const char *prefix)
{
    for (int g = 0; g < optimizer->group_count; g++) {
        LKI_SCOPED char *lr = lki_format("%s.group.%d.lr", prefix, g);
        LKI_SCOPED char *momentum = lki_format("%s.group.%d.momentum", prefix, g);
        if (!lr || !momentum) return LK_ERR_NOMEM;
        LKI_TRY(lk_state_dict_put_f64(state, lr, optimizer->groups[g].hyper.lr));
        LKI_TRY(lk_state_dict_put_f64(state, momentum, *lki_group_momentum(optimizer, g)));
    }
    return LK_OK;
}

lk_status lki_step_save(const lk_step *step, lk_state_dict *state, const char *prefix)
{
    const lki_flat *flat = &step->flat;
    const lk_optimizer *optimizer = step->options.optimizer;
    if (!optimizer) return LK_OK;
    LKI_TRY(lki_backend_pull(step->backend));
    LKI_SCOPED char *count_name = lki_format("%s.step", prefix);
    LKI_SCOPED char *pending_name = lki_format("%s.accumulated", prefix);
    if (!count_name || !pending_name) return LK_ERR_NOMEM;
    LKI_TRY(lki_rule_save(state, optimizer, prefix));
    LKI_TRY(lk_state_dict_put_i64(state, count_name, updates_made(step)));
    if (step->scaler.numbers) LKI_TRY(save_scaler(state, &step->scaler, prefix));
    LKI_TRY(lk_state_dict_put_i64(state, pending_name, step->update.accumulated));
    /* Sums that an update has used up are nobody's. */
    for (int s = 0; s < flat->state_count + (step->update.accumulated > 0); s++) {
        bool sums = s == flat->state_count;
        for (int i = 0; i < flat->slice_count; i++) {
            LKI_SCOPED char *name =
                lki_format("%s.%s.%s", prefix, sums ? "grad_sum" : lki_optimizer_state_name(optimizer, s),
                           flat->slices[i].path);
            if (!name) return LK_ERR_NOMEM;
            LKI_TRY(lk_state_dict_put(
                state, name, state_slice(flat, sums ? flat->sums : flat->states[s], &flat->slices[i])));
        }
    }
    LKI_TRY(save_ages(state, step, prefix));
    LKI_TRY(lki_frozen_save_step(state, step, prefix));
    return lki_groups_save(state, optimizer, prefix);
}

static lk_status restore_slice(const lk_state_dict *state, const char *name, const lki_flat *flat,
                               lk_buffer *buffer, const lki_slice *slice)
{
    lk_tensor *view = state_slice(flat, buffer, slice);
    if (!view) return LK_ERR_NOMEM;
    lk_status status = lk_state_dict_copy_to(state, name, view);
    lk_tensor_free(view);
    return status;
}

static lk_status fill_slice(const lki_flat *flat, lk_buffer *buffer, const lki_slice *slice, double value)
{
    lk_tensor *view = state_slice(flat, buffer, slice);
    if (!view) return LK_ERR_NOMEM;
    for (int64_t i = 0; i < slice->count; i++) lk_tensor_set(view, i, value);
    lk_tensor_free(view);
    return LK_OK;
}

/* A momentum needs its buffer: where the step has none, it must stay 0. */
static lk_status restore_momentum(const lk_state_dict *state, const char *name, const lk_step *step,
                                  int group)
{
    const lk_optimizer *optimizer = step->options.optimizer;
    double *momentum = lki_group_momentum(optimizer, group), own = *momentum;
    LKI_TRY(lk_state_dict_get_f64(state, name, momentum));
    if (lki_optimizer_state_count(optimizer) <= step->flat.state_count) return LK_OK;
    double saved = *momentum;
    *momentum = own;
    return lki_fail(LK_ERR_FORMAT, "%s is %g, but this run's %s keeps no momentum", name, saved,
                    optimizer->name);
}

static lk_status restore_groups(const lk_state_dict *state, lk_step *step, const char *prefix)
{
    lk_optimizer *optimizer = step->options.optimizer;
    for (int g = 0; g < optimizer->group_count; g++) {
        LKI_SCOPED char *lr = lki_format("%s.group.%d.lr", prefix, g);
        LKI_SCOPED char *momentum = lki_format("%s.group.%d.momentum", prefix, g);
        if (!lr || !momentum) return LK_ERR_NOMEM;
        LKI_TRY(lk_state_dict_get_f64(state, lr, &optimizer->groups[g].hyper.lr));
        LKI_TRY(restore_momentum(state, momentum, step, g));
    }
    return LK_OK;
}

/* Whether nothing is known of a parameter, and may be: what is kept need not have it, and a checkpoint does
 * not where it was frozen from the beginning. */
static bool is_unknown(const lk_state_dict *state, const lk_step *step, const lki_slice *slice,
                       const char *prefix, bool may_lack)
{
    if (!step->flat.state_count || !(may_lack || lki_frozen_has(state, prefix, slice->path))) return false;
    LKI_SCOPED char *first =
        lki_format("%s.%s.%s", prefix, lki_optimizer_state_name(step->options.optimizer, 0), slice->path);
    return first && !lk_state_dict_has(state, first);
}

/* One that nothing is known of has seen no update yet. */
static lk_status restore_age(const lk_state_dict *state, const lk_step *step, const lki_slice *slice,
                             const char *prefix, bool may_lack, int64_t *seen)
{
    LKI_SCOPED char *age = lki_format("%s.updates.%s", prefix, slice->path);
    if (!age) return LK_ERR_NOMEM;
    if (lk_state_dict_has(state, age)) return lk_state_dict_get_i64(state, age, seen);
    if (is_unknown(state, step, slice, prefix, may_lack)) *seen = 0;
    return LK_OK;
}

static lk_status restore_ages(const lk_state_dict *state, lk_step *step, const char *prefix, bool may_lack,
                              int64_t step_count)
{
    bool changed = false;
    for (int i = 0; i < step->flat.slice_count; i++) {
        lki_slice *slice = &step->flat.slices[i];
        int64_t seen = step_count;
        LKI_TRY(restore_age(state, step, slice, prefix, may_lack, &seen));
        changed = changed || slice->since != step_count - seen;
        slice->since = step_count - seen;
    }
    return changed ? lki_step_remake_update(step) : LK_OK;
}

/* The optimizer's state number `number` of one parameter, or behind those the sum of its gradients. What is
 * not known of it begins anew. */
static lk_status restore_number(const lk_state_dict *state, const lk_step *step, int number,
                                const lki_slice *slice, const char *prefix, bool may_lack)
{
    const lki_flat *flat = &step->flat;
    const lk_optimizer *optimizer = step->options.optimizer;
    bool sums = number == flat->state_count;
    lk_buffer *buffer = sums ? flat->sums : flat->states[number];
    LKI_SCOPED char *name = lki_format(
        "%s.%s.%s", prefix, sums ? "grad_sum" : lki_optimizer_state_name(optimizer, number), slice->path);
    if (!name) return LK_ERR_NOMEM;
    bool frozen_then = sums && lki_frozen_has(state, prefix, slice->path);
    bool lacks = may_lack || frozen_then || is_unknown(state, step, slice, prefix, false);
    if (!lacks || lk_state_dict_has(state, name)) return restore_slice(state, name, flat, buffer, slice);
    return fill_slice(flat, buffer, slice, number == 0 && !sums ? optimizer->initial_state : 0);
}

/* What is kept of each parameter, and how many updates there were. */
static lk_status restore_moments(const lk_state_dict *state, lk_step *step, const char *prefix, bool may_lack)
{
    lki_flat *flat = &step->flat;
    lk_optimizer *optimizer = step->options.optimizer;
    int64_t accumulated = 0, step_count = 0;
    LKI_TRY(lki_backend_pull(step->backend)); /* before a part of it is overwritten */
    lki_backend_changed(step->backend);
    LKI_SCOPED char *count_name = lki_format("%s.step", prefix);
    LKI_SCOPED char *pending_name = lki_format("%s.accumulated", prefix);
    if (!count_name || !pending_name) return LK_ERR_NOMEM;
    LKI_TRY(lki_state_dict_get_counter(state, count_name, &step_count));
    LKI_TRY(lki_state_dict_get_counter(state, pending_name, &accumulated));
    LKI_TRY(restore_ages(state, step, prefix, may_lack, step_count));
    step->update.step_count = step_count;
    step->update.accumulated = flat->sums ? (int)accumulated : 0;
    if (step->scaler.numbers) LKI_TRY(restore_scaler(state, &step->scaler, prefix));
    if (flat->sums) memset(lki_buffer_data(flat->sums), 0, lki_buffer_nbytes(flat->sums));
    for (int s = 0; s < flat->state_count + (step->update.accumulated > 0); s++) {
        for (int i = 0; i < flat->slice_count; i++)
            LKI_TRY(restore_number(state, step, s, &flat->slices[i], prefix, may_lack));
    }
    for (int g = 0; g < optimizer->group_count; g++)
        optimizer->groups[g].hyper.step = step->update.step_count;
    return LK_OK;
}

lk_status lki_step_restore(lk_step *step, const lk_state_dict *state, const char *prefix)
{
    if (!step->options.optimizer) return LK_OK;
    LKI_TRY(lki_rule_check(state, step, prefix));
    LKI_TRY(restore_moments(state, step, prefix, false));
    return restore_groups(state, step, prefix);
}

lk_status lki_step_restore_moments(lk_step *step, const lk_state_dict *state, const char *prefix)
{
    return restore_moments(state, step, prefix, true);
}
