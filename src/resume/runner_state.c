/* Everything that a run must remember to go on as if it had never stopped.
 *
 * Names in a runner checkpoint: "model.<path>" (and "model:<key>.<path>" for further models),
 * "optimizer.<state>.<path>", "scheduler.<number>", "generator", "loader", "loader.<key>",
 * "first_pass.<key>", "table.<title>", "trainable.<path>" (frozen.h), "callback.<name>.<number>…",
 * "rank.<number>" and the counters. Everything is stored exactly, so what follows is bit for bit what would
 * have followed. */
#include "run/run.h"

#include "base/memory.h"
#include "base/status.h"
#include "nn/module.h"
#include "resume/frozen_params.h"
#include "resume/loader_states.h"
#include "resume/optimizer_rule.h"
#include "resume/rank_state.h"
#include "resume/run_terms.h"
#include "step/step.h"
#include "tensor/random.h"

#include <string.h>

enum { MAX_SCHEDULER_NUMBERS = 64, FORMAT_VERSION = 1 };

/* ---- Counters ---- */

static lk_status get_counter(const lk_state_dict *state, const char *name, int64_t *out)
{
    LKI_TRY(lk_state_dict_get_i64(state, name, out));
    return *out >= 0 ? LK_OK : lki_fail(LK_ERR_FORMAT, "%s is %lld", name, (long long)*out);
}

/* ---- Weights ---- */

static lk_status put_module(lk_state_dict *state, const lk_module *module, const char *prefix)
{
    lk_param_list params;
    lk_status status = lki_module_params(module, &params);
    if (status) return status;
    for (int i = 0; i < params.count && !status; i++) {
        LKI_SCOPED char *name = lki_format("%s%s", prefix, params.items[i].path);
        status = lki_param_pull(params.items[i].param);
        if (status) break;
        status = name ? lk_state_dict_put(state, name, lk_tensor_view(params.items[i].param->value))
                      : LK_ERR_NOMEM;
    }
    lk_param_list_free(&params);
    return status;
}

static lk_status get_module(const lk_state_dict *state, lk_module *module, const char *prefix)
{
    lk_param_list params;
    lk_status status = lki_module_params(module, &params);
    if (status) return status;
    for (int i = 0; i < params.count && !status; i++) {
        LKI_SCOPED char *name = lki_format("%s%s", prefix, params.items[i].path);
        status = lki_param_pull(params.items[i].param);
        if (status) break;
        status = name ? lk_state_dict_copy_to(state, name, params.items[i].param->value) : LK_ERR_NOMEM;
        lki_param_push(params.items[i].param);
    }
    lk_param_list_free(&params);
    return status;
}

bool lki_runner_has_models(const lk_runner *runner)
{
    for (int i = 0; i < runner->run->part_count; i++)
        if (runner->run->parts[i].model) return true;
    return runner->model != NULL;
}

static lk_status put_models(lk_state_dict *state, const lk_runner *runner)
{
    if (runner->model) LKI_TRY(put_module(state, runner->model, ""));
    for (int i = 0; i < runner->run->part_count; i++) {
        const lki_part *part = &runner->run->parts[i];
        LKI_SCOPED char *prefix = lki_format("%s.", part->key);
        if (!prefix) return LK_ERR_NOMEM;
        if (part->model) LKI_TRY(put_module(state, part->model, prefix));
    }
    return LK_OK;
}

lk_state_dict *lki_models_state(const lk_runner *runner)
{
    lk_state_dict *state = lk_state_dict_create();
    if (state && put_models(state, runner)) {
        lk_state_dict_free(state);
        return NULL;
    }
    return state;
}

lk_status lki_models_load_state(lk_runner *runner, const lk_state_dict *state, const char *what)
{
    bool whole = lk_state_dict_has(state, "runner.format");
    if (runner->model) LKI_TRY(lki_model_load_state(runner->model, state, what));
    for (int i = 0; i < runner->run->part_count; i++) {
        lki_part *part = &runner->run->parts[i];
        LKI_SCOPED char *prefix = lki_format(whole ? "model:%s." : "%s.", part->key);
        if (!prefix) return LK_ERR_NOMEM;
        lk_status status = part->model ? get_module(state, part->model, prefix) : LK_OK;
        if (status) return lki_fail_prefix(status, "%s", what);
    }
    return LK_OK;
}

/* A file of weights, or a runner checkpoint, whose weights carry a prefix. */
lk_status lki_model_load_state(lk_module *model, const lk_state_dict *state, const char *what)
{
    const char *prefix = lk_state_dict_has(state, "runner.format") ? "model." : "";
    lk_status status = get_module(state, model, prefix);
    return status ? lki_fail_prefix(status, "%s", what) : LK_OK;
}

lk_state_dict *lk_module_state_dict(const lk_module *module)
{
    lk_state_dict *state = module ? lk_state_dict_create() : NULL;
    if (state && put_module(state, module, "")) {
        lk_state_dict_free(state);
        return NULL;
    }
    return state;
}

lk_status lk_module_load_state_dict(lk_module *module, const lk_state_dict *state)
{
    return lki_model_load_state(module, state, "state dict");
}

/* ---- Optimizer: the flat state, cut into the parameters' slices ---- */

static lk_tensor *state_slice(const lki_flat *flat, lk_buffer *buffer, const lki_slice *slice)
{
    return lki_tensor_over(buffer, (size_t)slice->offset * lk_dtype_nbytes(flat->dtype), flat->dtype,
                           slice->param->value->shape);
}

/* PyTorch's names of what a GradScaler keeps. Updates that were skipped do not count. */
static lk_status put_scaler(lk_state_dict *state, const lki_scaler *scaler, const char *prefix)
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
static lk_status get_scaler(const lk_state_dict *state, lki_scaler *scaler, const char *prefix)
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
static lk_status put_ages(lk_state_dict *state, const lk_step *step, const char *prefix)
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

static lk_status put_groups(lk_state_dict *state, const lk_optimizer *optimizer, const char *prefix)
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

static lk_status put_step(lk_state_dict *state, const lk_step *step, const char *prefix)
{
    const lki_flat *flat = &step->flat;
    const lk_optimizer *optimizer = step->options.optimizer;
    if (!optimizer) return LK_OK;
    LKI_TRY(lki_backend_pull(step->backend));
    LKI_SCOPED char *count_name = lki_format("%s.step", prefix);
    LKI_SCOPED char *pending_name = lki_format("%s.accumulated", prefix);
    if (!count_name || !pending_name) return LK_ERR_NOMEM;
    LKI_TRY(lki_saved_rule_put(state, optimizer, prefix));
    LKI_TRY(lk_state_dict_put_i64(state, count_name, updates_made(step)));
    if (step->scaler.numbers) LKI_TRY(put_scaler(state, &step->scaler, prefix));
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
    LKI_TRY(put_ages(state, step, prefix));
    LKI_TRY(lki_frozen_put_step(state, step, prefix));
    return put_groups(state, optimizer, prefix);
}

/* What is kept for a step that is not there has the numbers of the groups as they were when it went. */
static lk_status put_step_or_kept(lk_state_dict *state, const lk_step *step, const lk_state_dict *kept,
                                  const lk_optimizer *optimizer, const char *prefix)
{
    if (step)
        LKI_TRY(put_step(state, step, prefix));
    else if (kept && optimizer)
        LKI_TRY(put_groups(state, optimizer, prefix));
    return lki_kept_put(kept, state, prefix);
}

static lk_status get_slice(const lk_state_dict *state, const char *name, const lki_flat *flat,
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
static lk_status get_momentum(const lk_state_dict *state, const char *name, const lk_step *step, int group)
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

static lk_status get_groups(const lk_state_dict *state, lk_step *step, const char *prefix)
{
    lk_optimizer *optimizer = step->options.optimizer;
    for (int g = 0; g < optimizer->group_count; g++) {
        LKI_SCOPED char *lr = lki_format("%s.group.%d.lr", prefix, g);
        LKI_SCOPED char *momentum = lki_format("%s.group.%d.momentum", prefix, g);
        if (!lr || !momentum) return LK_ERR_NOMEM;
        LKI_TRY(lk_state_dict_get_f64(state, lr, &optimizer->groups[g].hyper.lr));
        LKI_TRY(get_momentum(state, momentum, step, g));
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
static lk_status get_age(const lk_state_dict *state, const lk_step *step, const lki_slice *slice,
                         const char *prefix, bool may_lack, int64_t *seen)
{
    LKI_SCOPED char *age = lki_format("%s.updates.%s", prefix, slice->path);
    if (!age) return LK_ERR_NOMEM;
    if (lk_state_dict_has(state, age)) return lk_state_dict_get_i64(state, age, seen);
    if (is_unknown(state, step, slice, prefix, may_lack)) *seen = 0;
    return LK_OK;
}

static lk_status get_ages(const lk_state_dict *state, lk_step *step, const char *prefix, bool may_lack,
                          int64_t step_count)
{
    bool changed = false;
    for (int i = 0; i < step->flat.slice_count; i++) {
        lki_slice *slice = &step->flat.slices[i];
        int64_t seen = step_count;
        LKI_TRY(get_age(state, step, slice, prefix, may_lack, &seen));
        changed = changed || slice->since != step_count - seen;
        slice->since = step_count - seen;
    }
    return changed ? lki_step_remake_update(step) : LK_OK;
}

/* The optimizer's state number `number` of one parameter, or behind those the sum of its gradients. What is
 * not known of it begins anew. */
static lk_status get_number(const lk_state_dict *state, const lk_step *step, int number,
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
    if (!lacks || lk_state_dict_has(state, name)) return get_slice(state, name, flat, buffer, slice);
    return fill_slice(flat, buffer, slice, number == 0 && !sums ? optimizer->initial_state : 0);
}

/* What is kept of each parameter, and how many updates there were. */
static lk_status get_moments(const lk_state_dict *state, lk_step *step, const char *prefix, bool may_lack)
{
    lki_flat *flat = &step->flat;
    lk_optimizer *optimizer = step->options.optimizer;
    int64_t accumulated = 0, step_count = 0;
    LKI_TRY(lki_backend_pull(step->backend)); /* before a part of it is overwritten */
    lki_backend_changed(step->backend);
    LKI_SCOPED char *count_name = lki_format("%s.step", prefix);
    LKI_SCOPED char *pending_name = lki_format("%s.accumulated", prefix);
    if (!count_name || !pending_name) return LK_ERR_NOMEM;
    LKI_TRY(get_counter(state, count_name, &step_count));
    LKI_TRY(get_counter(state, pending_name, &accumulated));
    LKI_TRY(get_ages(state, step, prefix, may_lack, step_count));
    step->update.step_count = step_count;
    step->update.accumulated = flat->sums ? (int)accumulated : 0;
    if (step->scaler.numbers) LKI_TRY(get_scaler(state, &step->scaler, prefix));
    if (flat->sums) memset(lki_buffer_data(flat->sums), 0, lki_buffer_nbytes(flat->sums));
    for (int s = 0; s < flat->state_count + (step->update.accumulated > 0); s++) {
        for (int i = 0; i < flat->slice_count; i++)
            LKI_TRY(get_number(state, step, s, &flat->slices[i], prefix, may_lack));
    }
    for (int g = 0; g < optimizer->group_count; g++)
        optimizer->groups[g].hyper.step = step->update.step_count;
    return LK_OK;
}

static lk_status get_step(const lk_state_dict *state, lk_step *step, const char *prefix)
{
    if (!step->options.optimizer) return LK_OK;
    LKI_TRY(lki_saved_rule_check(state, step, prefix));
    LKI_TRY(get_moments(state, step, prefix, false));
    return get_groups(state, step, prefix);
}

lk_status lki_step_save_state(const lk_step *step, lk_state_dict *state, const char *prefix)
{
    return put_step(state, step, prefix);
}

lk_status lki_step_load_state(lk_step *step, const lk_state_dict *state, const char *prefix)
{
    return get_step(state, step, prefix);
}

lk_status lki_step_load_moments(lk_step *step, const lk_state_dict *state, const char *prefix)
{
    return get_moments(state, step, prefix, true);
}

/* ---- Scheduler ---- */

static lk_status put_scheduler(lk_state_dict *state, const lk_scheduler *scheduler)
{
    lk_named_number numbers[MAX_SCHEDULER_NUMBERS];
    int count = scheduler ? lk_scheduler_save(scheduler, numbers, MAX_SCHEDULER_NUMBERS) : 0;
    if (count > MAX_SCHEDULER_NUMBERS)
        return lki_fail(LK_ERR_UNSUPPORTED, "the scheduler's state is too large to save");
    for (int i = 0; i < count; i++) {
        LKI_SCOPED char *name = lki_format("scheduler.%s", numbers[i].name);
        if (!name) return LK_ERR_NOMEM;
        LKI_TRY(lk_state_dict_put_f64(state, name, numbers[i].value));
    }
    return LK_OK;
}

static lk_status get_scheduler(const lk_state_dict *state, lk_scheduler *scheduler)
{
    lk_named_number numbers[MAX_SCHEDULER_NUMBERS];
    int count =
        scheduler ? lk_scheduler_save(scheduler, numbers, MAX_SCHEDULER_NUMBERS) : 0; /* for the names */
    for (int i = 0; i < count; i++) {
        LKI_SCOPED char *name = lki_format("scheduler.%s", numbers[i].name);
        if (!name) return LK_ERR_NOMEM;
        LKI_TRY(lk_state_dict_get_f64(state, name, &numbers[i].value));
    }
    return count ? lk_scheduler_restore(scheduler, numbers, count) : LK_OK;
}

/* ---- Plain bytes: the generator, the loader's place ---- */

lk_status lki_state_put_bytes(lk_state_dict *state, const char *name, const void *data, size_t nbytes)
{
    return lk_state_dict_put(state, name, lk_tensor_from(LK_U8, LK_SHAPE((int64_t)nbytes), data));
}

lk_status lki_state_get_bytes(const lk_state_dict *state, const char *name, void *data, size_t nbytes)
{
    const lk_tensor *bytes = lk_state_dict_get(state, name);
    if (!bytes) return lki_last_status();
    if (lk_tensor_nbytes(bytes) != nbytes)
        return lki_fail(LK_ERR_FORMAT, "%s: %zu bytes where %zu are expected", name, lk_tensor_nbytes(bytes),
                        nbytes);
    memcpy(data, bytes->data, nbytes);
    return LK_OK;
}

/* ---- Callbacks and counters ---- */

static bool has_names(const lk_state_dict *state, const char *prefix)
{
    for (int64_t i = 0; i < lk_state_dict_count(state); i++)
        if (strncmp(lk_state_dict_name(state, i), prefix, strlen(prefix)) == 0) return true;
    return false;
}

/* Counted among those of its name that keep something, so that a callback of another kind, such as a timer,
 * may come or go between two runs. */
static char *callback_prefix(const lki_run *run, int index)
{
    const char *name = run->callbacks[index]->ops->name;
    int number = 0;
    for (int i = 0; i < index; i++)
        number += run->callbacks[i]->ops->save_state && strcmp(run->callbacks[i]->ops->name, name) == 0;
    return lki_format("callback.%s.%d.", name, number);
}

static lk_status put_callbacks(const lki_run *run, lk_state_dict *state)
{
    for (int i = 0; i < run->callback_count; i++) {
        lk_callback *callback = run->callbacks[i];
        if (!callback->ops->save_state) continue;
        LKI_SCOPED char *prefix = callback_prefix(run, i);
        if (!prefix) return LK_ERR_NOMEM;
        LKI_TRY(callback->ops->save_state(callback, state, prefix));
    }
    return LK_OK;
}

/* Older checkpoints count a callback among all of them. */
static lk_status get_callbacks(const lki_run *run, const lk_state_dict *state)
{
    for (int i = 0; i < run->callback_count; i++) {
        lk_callback *callback = run->callbacks[i];
        if (!callback->ops->load_state) continue;
        LKI_SCOPED char *prefix = callback_prefix(run, i);
        LKI_SCOPED char *older = lki_format("callback.%d.%s.", i, callback->ops->name);
        if (!prefix || !older) return LK_ERR_NOMEM;
        bool is_older = !has_names(state, prefix) && has_names(state, older);
        LKI_TRY(callback->ops->load_state(callback, state, is_older ? older : prefix));
    }
    return LK_OK;
}

/* The metrics of the loaders that this epoch has already been through: the decisions at its end need them. */
static lk_status put_loader_metrics(const lki_run *run, lk_state_dict *state)
{
    for (int i = 0; i < run->loader_count; i++) {
        const lki_run_loader *loader = &run->loaders[i];
        for (int k = 0; loader->has_metrics && k < lk_metrics_count(loader->metrics); k++) {
            LKI_SCOPED char *name =
                lki_format("metrics.%s.%s", loader->key, lk_metrics_name(loader->metrics, k));
            if (!name) return LK_ERR_NOMEM;
            LKI_TRY(lk_state_dict_put_f64(state, name, lk_metrics_value(loader->metrics, k)));
        }
    }
    return LK_OK;
}

static lk_status get_loader_metrics(lki_run *run, const lk_state_dict *state)
{
    for (int i = 0; i < run->loader_count; i++) {
        lki_run_loader *loader = &run->loaders[i];
        LKI_SCOPED char *prefix = lki_format("metrics.%s.", loader->key);
        if (!prefix) return LK_ERR_NOMEM;
        for (int64_t k = 0; k < lk_state_dict_count(state); k++) {
            const char *name = lk_state_dict_name(state, k);
            double value;
            if (strncmp(name, prefix, strlen(prefix)) != 0) continue;
            LKI_TRY(lk_state_dict_get_f64(state, name, &value));
            LKI_TRY(lk_metrics_set(loader->metrics, name + strlen(prefix), value));
            loader->has_metrics = true;
        }
    }
    return LK_OK;
}

/* Between two epochs the last one may not have been reported yet. Only the master reports. */
static lk_status put_table(lk_runner *runner, lk_state_dict *state)
{
    lki_run *run = runner->run;
    if (!run->inside_epoch && runner->is_master) LKI_TRY(lki_epoch_table_add(&run->table, runner));
    return lki_epoch_table_save(&run->table, state);
}

static lk_status put_place(lk_runner *runner, lk_state_dict *state)
{
    const lki_run *run = runner->run;
    lk_loader_state loader;
    bool inside = run->inside_epoch;
    LKI_TRY(lk_state_dict_put_i64(state, "runner.format", FORMAT_VERSION));
    LKI_TRY(lk_state_dict_put_i64(state, "runner.epoch_step", runner->epoch_step));
    LKI_TRY(lk_state_dict_put_i64(state, "runner.batch_step", runner->batch_step));
    LKI_TRY(lk_state_dict_put_i64(state, "runner.sample_step", runner->sample_step));
    LKI_TRY(lk_state_dict_put_i64(state, "runner.seed", (int64_t)runner->seed));
    LKI_TRY(lk_state_dict_put_i64(state, "runner.world_size", runner->world_size));
    LKI_TRY(lk_state_dict_put_i64(state, "runner.inside_epoch", inside));
    LKI_TRY(lki_state_put_bytes(state, "generator", lk_default_generator(), sizeof(lk_generator)));
    LKI_TRY(lki_loader_states_put(run, state));
    LKI_TRY(put_table(runner, state));
    if (!inside) return LK_OK;
    LKI_TRY(lk_state_dict_put_i64(state, "runner.loader", run->current_loader));
    LKI_TRY(lk_state_dict_put_i64(state, "runner.loader_batch_step", runner->loader_batch_step));
    LKI_TRY(lk_state_dict_put_i64(state, "runner.loader_sample_step", runner->loader_sample_step));
    LKI_TRY(lk_state_dict_put_i64(state, "runner.loader_batch_size", lk_loader_batch_size(runner->loader)));
    LKI_TRY(put_loader_metrics(run, state));
    lk_loader_save(runner->loader, &loader);
    return lki_state_put_bytes(state, "loader", &loader, sizeof loader);
}

/* The place in a pass is a number of batches. Of another size that is another place, except at the start. */
static lk_status check_batch_size(const lk_runner *runner, const lk_state_dict *state)
{
    const lki_run *run = runner->run;
    const char *name = "runner.loader_batch_size";
    int64_t own = lk_loader_batch_size(run->loaders[run->first_loader].loader), saved = own;
    if (lk_state_dict_has(state, name)) LKI_TRY(lk_state_dict_get_i64(state, name, &saved));
    if (saved == own || run->loader_batch_step == 0) return LK_OK;
    return lki_fail(
        LK_ERR_INVALID,
        "the run was stopped inside epoch %lld with batches of %lld and cannot go on with batches "
        "of %lld there: finish the epoch as it was begun (num_epochs %lld), then change them",
        (long long)runner->epoch_step, (long long)saved, (long long)own, (long long)runner->epoch_step);
}

static lk_status get_generator(const lk_state_dict *state)
{
    lk_generator saved;
    LKI_TRY(lki_state_get_bytes(state, "generator", &saved, sizeof saved));
    LKI_TRY(lki_generator_check(&saved, "generator"));
    *lk_default_generator() = saved;
    return LK_OK;
}

static lk_status get_place(lk_runner *runner, const lk_state_dict *state)
{
    lki_run *run = runner->run;
    int64_t format, inside, loader, world;
    LKI_TRY(lk_state_dict_get_i64(state, "runner.format", &format));
    if (format != FORMAT_VERSION)
        return lki_fail(LK_ERR_UNSUPPORTED, "runner checkpoint of format %lld, this library reads %d",
                        (long long)format, FORMAT_VERSION);
    LKI_TRY(get_counter(state, "runner.epoch_step", &runner->epoch_step));
    LKI_TRY(get_counter(state, "runner.batch_step", &runner->batch_step));
    LKI_TRY(get_counter(state, "runner.sample_step", &runner->sample_step));
    LKI_TRY(get_counter(state, "runner.world_size", &world));
    LKI_TRY(lk_state_dict_get_i64(state, "runner.inside_epoch", &inside));
    LKI_TRY(get_generator(state));
    LKI_TRY(lki_loader_states_get(runner, state));
    LKI_TRY(lki_epoch_table_load(&run->table, state));
    runner->seed = lk_default_generator()->seed;
    run->resumed_inside_epoch = inside;
    if (!inside) return LK_OK;
    if (world != runner->world_size)
        return lki_fail(LK_ERR_INVALID,
                        "the run was stopped inside an epoch with %lld ranks and cannot go on with %d there",
                        (long long)world, runner->world_size);
    LKI_TRY(lk_state_dict_get_i64(state, "runner.loader", &loader));
    if (loader < 0 || loader >= run->loader_count)
        return lki_fail(LK_ERR_INVALID, "the run was stopped in loader %lld, but there are only %d",
                        (long long)loader, run->loader_count);
    run->first_loader = (int)loader;
    LKI_TRY(get_counter(state, "runner.loader_batch_step", &run->loader_batch_step));
    LKI_TRY(check_batch_size(runner, state));
    LKI_TRY(get_counter(state, "runner.loader_sample_step", &run->loader_sample_step));
    run->loader_state = LKI_NEW(lk_loader_state);
    if (!run->loader_state) return LK_ERR_NOMEM;
    LKI_TRY(lki_state_get_bytes(state, "loader", run->loader_state, sizeof *run->loader_state));
    run->loader_state->rank = runner->rank; /* rank 0 has saved it; the order is the same for all */
    return get_loader_metrics(run, state);
}

/* ---- All of it ---- */

static lk_status put_part(lk_state_dict *state, const lki_part *part)
{
    LKI_SCOPED char *model = lki_format("model:%s.", part->key);
    LKI_SCOPED char *optimizer = lki_format("optimizer:%s", part->key);
    if (!model || !optimizer) return LK_ERR_NOMEM;
    if (part->model) LKI_TRY(put_module(state, part->model, model));
    return put_step_or_kept(state, part->step, part->kept, part->optimizer, optimizer);
}

/* A part whose step this run has not needed yet has all of it still in what the run was resumed from. */
static lk_status put_untouched(lk_state_dict *state, const lki_run *run)
{
    for (int i = 0; i < run->part_count && run->resumed_state; i++) {
        const lki_part *part = &run->parts[i];
        LKI_SCOPED char *optimizer = lki_format("optimizer:%s", part->key);
        if (!optimizer) return LK_ERR_NOMEM;
        if (!part->step && !part->kept)
            LKI_TRY(lki_state_add_missing(state, optimizer, run->resumed_state, optimizer));
    }
    return LK_OK;
}

/* A part may be made after the state has been loaded, by the first batch for example: then it finds its own
 * there. */
lk_status lki_part_restore_model(lk_runner *runner, lki_part *part)
{
    const lk_state_dict *state = runner->run->resumed_state;
    if (!state || !part->model) return LK_OK;
    LKI_SCOPED char *prefix = lki_format("model:%s.", part->key);
    if (!prefix) return LK_ERR_NOMEM;
    LKI_TRY(lki_frozen_get_model(runner, part->model, part->key, state));
    return get_module(state, part->model, prefix);
}

/* The run that was saved may not have come to make the step. */
lk_status lki_part_restore_step(lk_runner *runner, lki_part *part)
{
    const lk_state_dict *state = runner->run->resumed_state;
    if (!state || !part->step) return LK_OK;
    LKI_SCOPED char *prefix = lki_format("optimizer:%s", part->key);
    LKI_SCOPED char *count_name = lki_format("optimizer:%s.step", part->key);
    if (!prefix || !count_name) return LK_ERR_NOMEM;
    if (!lk_state_dict_has(state, count_name)) return LK_OK;
    LKI_TRY(get_step(state, part->step, prefix));
    LKI_TRY(lki_kept_get_frozen(&part->kept, part->step, state, prefix));
    return lki_rank_state_get_step(runner, part->step, part->key);
}

static bool knows_of_parts(const lk_state_dict *state)
{
    return has_names(state, "model:") || has_names(state, "optimizer:");
}

static lk_status get_parts(lk_runner *runner)
{
    lki_run *run = runner->run;
    for (int i = 0; i < run->part_count; i++) {
        lki_part *part = &run->parts[i];
        if (run->resumed_state && !part->step) lki_step_drop(&part->step, &part->kept); /* an earlier run's */
        LKI_TRY(lki_part_restore_model(runner, part));
        LKI_TRY(lki_part_restore_step(runner, part));
    }
    return LK_OK;
}

lk_status lki_runner_save_state(lk_runner *runner, lk_state_dict *state)
{
    LKI_TRY(put_place(runner, state));
    LKI_TRY(lki_terms_put(runner, state));
    if (runner->model) LKI_TRY(put_module(state, runner->model, "model."));
    LKI_TRY(put_step_or_kept(state, runner->step, runner->run->kept, runner->optimizer, "optimizer"));
    LKI_TRY(put_scheduler(state, runner->scheduler));
    for (int i = 0; i < runner->run->part_count; i++) LKI_TRY(put_part(state, &runner->run->parts[i]));
    LKI_TRY(put_untouched(state, runner->run));
    LKI_TRY(lki_frozen_put_models(runner, state));
    LKI_TRY(put_callbacks(runner->run, state));
    LKI_TRY(lki_own_metrics_save(runner, state));
    return lki_rank_state_is_needed(runner) ? lki_rank_state_put(runner, state) : LK_OK;
}

static lk_status get_state(lk_runner *runner, const lk_state_dict *state)
{
    if (!lk_state_dict_has(state, "runner.format"))
        return lki_fail(LK_ERR_FORMAT, "this file holds weights alone: it can be evaluated, but not resumed");
    LKI_TRY(lki_terms_check(runner, state));
    LKI_TRY(get_place(runner, state));
    /* A runner with batches of its own may never have made the step. */
    bool has_step = runner->model && (!runner->optimizer || lk_state_dict_has(state, "optimizer.step"));
    if (has_step) LKI_TRY(lki_frozen_get_step(runner, state));
    if (has_step) LKI_TRY(lki_run_prepare_step(runner));
    if (runner->model) LKI_TRY(get_module(state, runner->model, "model."));
    if (has_step) LKI_TRY(get_step(state, runner->step, "optimizer"));
    if (has_step) LKI_TRY(lki_kept_get_frozen(&runner->run->kept, runner->step, state, "optimizer"));
    if (runner->model) LKI_TRY(lki_frozen_get_model(runner, runner->model, NULL, state));
    LKI_TRY(get_scheduler(state, runner->scheduler));
    LKI_TRY(get_parts(runner));
    LKI_TRY(get_callbacks(runner->run, state));
    LKI_TRY(lki_rank_state_get(runner, state));
    return lki_terms_note(runner, state);
}

lk_status lki_runner_load_state(lk_runner *runner, lk_state_dict *state)
{
    lki_run *run = runner->run;
    lk_state_dict_free(run->resumed_state);
    run->resumed_state = knows_of_parts(state) ? state : NULL;
    lk_status status = get_state(runner, state);
    if (!run->resumed_state) lk_state_dict_free(state);
    return status;
}
