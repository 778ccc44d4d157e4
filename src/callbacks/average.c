/* Averages of the weights: moving ones (EMA), or the mean over the epochs from some epoch on (SWA).
 *
 * The parameters are averaged, frozen ones too, which may be thawed later; buffers, such as the statistics of
 * a batch norm, stay the model's.
 * When a training loader ends, the average takes the place of the weights: evaluation, the checkpoints of the
 * epoch and the caller after the run see it. When the next training loader starts, the weights come back. */
#include "base/memory.h"
#include "base/arguments.h"
#include "base/status.h"
#include "base/take.h"
#include "callbacks/callbacks.h"
#include "graph/home.h"
#include "nn/module.h"

#include <math.h>
#include <string.h>

typedef struct average_context {
    double decay; /* EMA; 0 for SWA */
    int64_t update_every, swa_start;
    lk_param_list params; /* of the model; empty before the start */
    lk_tensor **averages; /* one a parameter; NULL for buffers */
    lk_tensor **weights;  /* the training weights while the averages are in the model */
    int64_t count;        /* how many have gone in */
    int64_t batches;
    bool in_model;
} average_context;

static lk_status start(lk_callback *callback, lk_runner *runner)
{
    average_context *context = callback->context;
    if (!runner->model) return lki_fail(LK_ERR_INVALID, "an average of the weights needs the run's model");
    LKI_TRY(lki_module_params(runner->model, &context->params));
    context->averages = LKI_NEW_ARRAY(lk_tensor *, context->params.count);
    context->weights = LKI_NEW_ARRAY(lk_tensor *, context->params.count);
    if (!context->averages || !context->weights) return LK_ERR_NOMEM;
    for (int i = 0; i < context->params.count; i++) {
        const lk_param *param = context->params.items[i].param;
        if (param->is_buffer) continue;
        context->averages[i] = lk_tensor_clone(param->value);
        context->weights[i] = lk_tensor_clone(param->value);
        if (!context->averages[i] || !context->weights[i]) return LK_ERR_NOMEM;
    }
    return LK_OK;
}

/* average += (weights - average) * share */
static void move_towards(lk_tensor *average, const lk_tensor *weights, double share)
{
    int64_t count = lk_tensor_count(average);
    if (average->dtype == LK_F32) {
        float *a = average->data, part = (float)share;
        const float *w = weights->data;
        for (int64_t i = 0; i < count; i++) a[i] += (w[i] - a[i]) * part;
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        double a = lk_tensor_get(average, i);
        lk_tensor_set(average, i, a + (lk_tensor_get(weights, i) - a) * share);
    }
}

/* Copies between a parameter and a tensor of ours; a GPU may have the newer values. */
static lk_status read_param(const lk_param *param, lk_tensor *to)
{
    LKI_TRY(lki_param_pull(param));
    return lk_tensor_copy(to, param->value);
}

static lk_status write_param(lk_param *param, const lk_tensor *from)
{
    LKI_TRY(lki_param_pull(param)); /* a device copies more than this one */
    LKI_TRY(lk_tensor_copy(param->value, from));
    lki_param_push(param);
    return LK_OK;
}

/* The first ones are the average. */
static lk_status take_in(average_context *context, double share)
{
    for (int i = 0; i < context->params.count; i++) {
        if (!context->averages[i]) continue;
        const lk_param *param = context->params.items[i].param;
        if (context->count == 0) {
            LKI_TRY(read_param(param, context->averages[i]));
            continue;
        }
        LKI_TRY(lki_param_pull(param));
        move_towards(context->averages[i], param->value, share);
    }
    context->count++;
    return LK_OK;
}

static lk_status put_in_model(average_context *context)
{
    if (context->in_model || context->count == 0) return LK_OK;
    /* First all of them out, then all of them in: parameters may be shared under two names. */
    for (int i = 0; i < context->params.count; i++)
        if (context->weights[i]) LKI_TRY(read_param(context->params.items[i].param, context->weights[i]));
    for (int i = 0; i < context->params.count; i++)
        if (context->averages[i]) LKI_TRY(write_param(context->params.items[i].param, context->averages[i]));
    context->in_model = true;
    return LK_OK;
}

static lk_status put_weights_back(average_context *context)
{
    for (int i = 0; i < context->params.count && context->in_model; i++)
        if (context->weights[i]) LKI_TRY(write_param(context->params.items[i].param, context->weights[i]));
    context->in_model = false;
    return LK_OK;
}

static lk_status loader_start(lk_callback *callback, lk_runner *runner)
{
    return runner->is_train_loader ? put_weights_back(callback->context) : LK_OK;
}

static lk_status ema_batch_end(lk_callback *callback, lk_runner *runner)
{
    average_context *context = callback->context;
    if (!runner->is_train_loader || ++context->batches % context->update_every != 0) return LK_OK;
    return take_in(context, 1 - context->decay);
}

static lk_status ema_loader_end(lk_callback *callback, lk_runner *runner)
{
    return runner->is_train_loader ? put_in_model(callback->context) : LK_OK;
}

static lk_status swa_loader_end(lk_callback *callback, lk_runner *runner)
{
    average_context *context = callback->context;
    if (!runner->is_train_loader || runner->epoch_step < context->swa_start) return LK_OK;
    LKI_TRY(take_in(context, 1.0 / (double)(context->count + 1)));
    return put_in_model(context);
}

/* ---- Resume ---- */

static lk_status put_tensors(const average_context *context, lk_tensor *const *tensors, lk_state_dict *state,
                             const char *prefix, const char *what)
{
    for (int i = 0; i < context->params.count; i++) {
        if (!tensors[i]) continue;
        LKI_SCOPED char *name = lki_format("%s%s.%s", prefix, what, context->params.items[i].path);
        if (!name) return LK_ERR_NOMEM;
        LKI_TRY(lk_state_dict_put(state, name, lk_tensor_view(tensors[i])));
    }
    return LK_OK;
}

/* Older checkpoints leave frozen parameters out: their average is what they are. */
static lk_status get_tensors(const average_context *context, lk_tensor *const *tensors,
                             const lk_state_dict *state, const char *prefix, const char *what)
{
    for (int i = 0; i < context->params.count; i++) {
        if (!tensors[i]) continue;
        LKI_SCOPED char *name = lki_format("%s%s.%s", prefix, what, context->params.items[i].path);
        if (!name) return LK_ERR_NOMEM;
        LKI_TRY(lk_state_dict_has(state, name) ? lk_state_dict_copy_to(state, name, tensors[i])
                                               : read_param(context->params.items[i].param, tensors[i]));
    }
    return LK_OK;
}

static lk_status save_state(lk_callback *callback, lk_state_dict *state, const char *prefix)
{
    average_context *context = callback->context;
    LKI_SCOPED char *count = lki_format("%scount", prefix);
    LKI_SCOPED char *batches = lki_format("%sbatches", prefix);
    LKI_SCOPED char *in_model = lki_format("%sin_model", prefix);
    if (!count || !batches || !in_model) return LK_ERR_NOMEM;
    LKI_TRY(lk_state_dict_put_i64(state, count, context->count));
    LKI_TRY(lk_state_dict_put_i64(state, batches, context->batches));
    LKI_TRY(lk_state_dict_put_i64(state, in_model, context->in_model));
    LKI_TRY(put_tensors(context, context->averages, state, prefix, "average"));
    return context->in_model ? put_tensors(context, context->weights, state, prefix, "weights") : LK_OK;
}

static lk_status load_state(lk_callback *callback, const lk_state_dict *state, const char *prefix)
{
    average_context *context = callback->context;
    LKI_SCOPED char *count = lki_format("%scount", prefix);
    LKI_SCOPED char *batches = lki_format("%sbatches", prefix);
    LKI_SCOPED char *in_model = lki_format("%sin_model", prefix);
    int64_t inside;
    if (!count || !batches || !in_model) return LK_ERR_NOMEM;
    LKI_TRY(lk_state_dict_get_i64(state, count, &context->count));
    LKI_TRY(lk_state_dict_get_i64(state, batches, &context->batches));
    LKI_TRY(lk_state_dict_get_i64(state, in_model, &inside));
    context->in_model = inside;
    LKI_TRY(get_tensors(context, context->averages, state, prefix, "average"));
    return inside ? get_tensors(context, context->weights, state, prefix, "weights") : LK_OK;
}

static void free_context(lk_callback *callback)
{
    average_context *context = callback->context;
    for (int i = 0; i < context->params.count; i++) {
        if (context->averages) lk_tensor_free(context->averages[i]);
        if (context->weights) lk_tensor_free(context->weights[i]);
    }
    lki_free(context->averages);
    lki_free(context->weights);
    lk_param_list_free(&context->params);
    lki_free(context);
}

/* First of all: what others do with a batch or a loader, they do with the right weights. */
static lk_callback *create(const lk_callback_ops *ops, average_context values)
{
    lk_callback *callback = lki_callback_new(ops, sizeof(average_context), LK_ORDER_INTERNAL);
    if (callback) *(average_context *)callback->context = values;
    return callback;
}

lk_callback *lk_ema_callback_with(const lk_ema_callback_options *given)
{
    LKI_TAKE(lk_ema_callback_options, options, given, NULL);
    static const lk_callback_ops ops = {
        LK_SIZE(lk_callback_ops),      .name = "EMA",
        .on_experiment_start = start,  .on_loader_start = loader_start,
        .on_batch_end = ema_batch_end, .on_loader_end = ema_loader_end,
        .save_state = save_state,      .load_state = load_state,
        .free = free_context,
    };
    if (!(options.decay >= 0) || options.decay >= 1 || options.update_every < 0)
        return lki_fail_null(LK_ERR_INVALID,
                             "EMA: decay must lie in 0..1 and update_every must not be negative");
    return create(&ops, (average_context){.decay = lki_number_or(options.decay, 0.999),
                                          .update_every = options.update_every ? options.update_every : 1});
}

lk_callback *lk_swa_callback(int swa_start)
{
    static const lk_callback_ops ops = {
        LK_SIZE(lk_callback_ops),        .name = "SWA",
        .on_experiment_start = start,    .on_loader_start = loader_start,
        .on_loader_end = swa_loader_end, .save_state = save_state,
        .load_state = load_state,        .free = free_context,
    };
    if (swa_start < 1) return lki_fail_null(LK_ERR_INVALID, "SWA: swa_start counts epochs from 1");
    return create(&ops, (average_context){.swa_start = swa_start});
}
