/* Catalyst's SoftUpdateCallback: target = (1 - tau) target + tau source, for two models of a run. */
#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "callbacks/callbacks.h"
#include "graph/home.h"
#include "nn/module.h"
#include "tensor/element.h"

#include <string.h>

typedef struct soft_update {
    char *target_model, *source_model;
    double tau;
    lk_param_list target, source; /* of the models; empty before the start */
} soft_update;

static lk_status find_model(lk_runner *runner, const char *key, lk_param_list *out)
{
    const lk_module *model = lk_runner_model(runner, key);
    if (!model && runner->model) model = lk_module_child(runner->model, key);
    if (!model)
        return lki_fail(LK_ERR_NOT_FOUND,
                        "SoftUpdateCallback: the run has no model and no child of its model called \"%s\"",
                        key);
    return lki_module_params(model, out);
}

/* The parameters correspond by their order, as in Catalyst; buffers stay what they are. */
static lk_status start(lk_callback *callback, lk_runner *runner)
{
    soft_update *own = callback->context;
    LKI_TRY(find_model(runner, own->target_model, &own->target));
    LKI_TRY(find_model(runner, own->source_model, &own->source));
    bool fits = own->target.count == own->source.count;
    for (int i = 0; fits && i < own->target.count; i++) {
        const lk_param *target = own->target.items[i].param, *source = own->source.items[i].param;
        fits = target->is_buffer == source->is_buffer && target->value->dtype == source->value->dtype &&
               lk_shape_equal(target->value->shape, source->value->shape);
    }
    if (fits) return LK_OK;
    return lki_fail(LK_ERR_SHAPE,
                    "SoftUpdateCallback: the models \"%s\" and \"%s\" differ in their parameters",
                    own->target_model, own->source_model);
}

static lk_status move_param(lk_param *target, const lk_param *source, double tau)
{
    LKI_TRY(lki_param_pull(source));
    LKI_TRY(lki_param_pull(target));
    lk_dtype dtype = target->value->dtype;
    for (int64_t i = 0; i < lk_tensor_count(target->value); i++) {
        double from = lki_load(dtype, target->value->data, i), to = lki_load(dtype, source->value->data, i);
        lki_store(dtype, target->value->data, i,
                  dtype == LK_F32 ? (float)from * (float)(1 - tau) + (float)to * (float)tau
                                  : from * (1 - tau) + to * tau);
    }
    lki_param_push(target);
    return LK_OK;
}

static lk_status update(lk_callback *callback, lk_runner *runner)
{
    soft_update *own = callback->context;
    (void)runner;
    for (int i = 0; i < own->target.count; i++)
        if (!own->target.items[i].param->is_buffer)
            LKI_TRY(move_param(own->target.items[i].param, own->source.items[i].param, own->tau));
    return LK_OK;
}

static lk_status update_of_batch(lk_callback *callback, lk_runner *runner)
{
    return runner->is_train_loader ? update(callback, runner) : LK_OK;
}

static void free_context(lk_callback *callback)
{
    soft_update *own = callback->context;
    lk_param_list_free(&own->target);
    lk_param_list_free(&own->source);
    lki_free(own->target_model);
    lki_free(own->source_model);
    lki_free(own);
}

#define OPS(...)                                                                                             \
    {                                                                                                        \
        LK_SIZE(lk_callback_ops), .name = "SoftUpdate", .on_experiment_start = start, .free = free_context,  \
                                  __VA_ARGS__                                                                \
    }

static const lk_callback_ops *ops_of(const char *scope)
{
    static const struct {
        const char *scope;
        lk_callback_ops ops;
    } known[] = {{"on_batch_end", OPS(.on_batch_end = update_of_batch)},
                 {"on_batch_start", OPS(.on_batch_start = update_of_batch)},
                 {"on_epoch_end", OPS(.on_epoch_end = update)},
                 {"on_epoch_start", OPS(.on_epoch_start = update)}};
    for (size_t i = 0; scope && i < sizeof known / sizeof *known; i++)
        if (strcmp(scope, known[i].scope) == 0) return &known[i].ops;
    return lki_fail_null(LK_ERR_INVALID,
                         "SoftUpdateCallback: scope is on_batch_end, on_batch_start, on_epoch_end or "
                         "on_epoch_start, not \"%s\"",
                         scope ? scope : "");
}

lk_callback *lk_soft_update_callback_with(const lk_soft_update_callback_options *given)
{
    LKI_TAKE(lk_soft_update_callback_options, options, given, NULL);
    const lk_callback_ops *ops = ops_of(options.scope);
    if (!ops) return NULL;
    if (!options.target_model || !options.source_model)
        return lki_fail_null(LK_ERR_INVALID,
                             "SoftUpdateCallback: target_model and source_model are required");
    if (!(options.tau > 0 && options.tau <= 1))
        return lki_fail_null(LK_ERR_INVALID,
                             "SoftUpdateCallback: tau: expected more than 0, at most 1, found %g",
                             options.tau);
    lk_callback *callback = lki_callback_new(ops, sizeof(soft_update), LK_ORDER_EXTERNAL);
    if (!callback) return NULL;
    soft_update *own = callback->context;
    own->tau = options.tau;
    own->target_model = lki_strdup(options.target_model);
    own->source_model = lki_strdup(options.source_model);
    if (own->target_model && own->source_model) return callback;
    lk_callback_free(callback);
    return NULL;
}
