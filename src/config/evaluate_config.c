/* A training config as a description of model and data: its model, with the weights of a checkpoint, on one
 * of its loaders. */
#include "base/suggest.h"
#include "config/call_parts.h"
#include "config/components/components.h"
#include "config/config.h"
#include "config/registry.h"
#include "config/run_config.h"
#include "onnx/export.h"

#include "base/memory.h"
#include "base/status.h"

#include <string.h>

/* Callbacks that only look at the outputs; those that train, stop or save have no place in an evaluation. A
 * user's own are taken too: an evaluation calls them with loaders and batches alone. */
static bool is_metric(const char *component)
{
    if (lki_component_is_added(lk_component_find(component))) return true;
    for (const lk_component *c = lki_metric_components; c->name; c++)
        if (!strcmp(c->name, component)) return true;
    return false;
}

static lk_status take_metrics(lk_args *args, lki_call_lists *l, lk_callback_list *out)
{
    int count = lk_arg_count(args, "callbacks"), taken = 0;
    l->callbacks = LKI_NEW_ARRAY(lk_callback *, count + 1);
    if (!l->callbacks) return LK_ERR_NOMEM;
    for (int i = 0; i < count; i++)
        if (is_metric(lk_arg_component_at(args, "callbacks", i)))
            l->callbacks[taken++] = lk_arg_take_at(args, "callbacks", i);
    *out = (lk_callback_list){l->callbacks, taken};
    return args->status;
}

/* The loader of that key; without one the run's valid_loader, else the first. */
static lk_status take_loader(lk_args *args, const char *key, lk_loader **out)
{
    int count = lk_arg_count(args, "loaders");
    char hint[160];
    if (!key) key = lk_arg_string(args, "valid_loader");
    lki_suggestion near = {.wanted = key};
    for (int i = 0; i < count; i++) {
        const char *name = lk_arg_key_at(args, "loaders", i);
        if (!name) return lki_fail(LK_ERR_CONFIG, "loaders: expected a map of loaders, as in train: {...}");
        if (!key || !strcmp(name, key)) {
            *out = lk_arg_take_at(args, "loaders", i);
            return args->status;
        }
        lki_suggest_offer(&near, name);
    }
    if (!key) return lki_fail(LK_ERR_CONFIG, "loaders: there are none");
    return lki_fail(LK_ERR_CONFIG, "loaders: there is no loader \"%.60s\"%s", key,
                    lki_suggest_text(&near, hint, sizeof hint));
}

static lk_status take_all(lk_args *args, const lki_evaluation *wish, lki_call_lists *l, lk_loader **loader,
                          lk_evaluate_options *options)
{
    lk_train_options engine = {LK_SIZE(lk_train_options)};
    bool reports = !wish->predicts && !wish->onnx;
    LKI_TRY(lki_call_read_device(args, &engine));
    options->device = wish->device ? wish->device : engine.device;
    options->resume = wish->checkpoint;
    options->verbose = wish->verbose;
    LKI_TRY(lki_call_take_model(args, &options->model));
    if (reports) LKI_TRY(lki_call_take_criterion(args, &options->criterion));
    if (reports) LKI_TRY(take_metrics(args, l, &options->callbacks));
    return take_loader(args, wish->loader_key, loader);
}

typedef struct onnx_export {
    lk_runner *runner;
    const char *path;
    bool is_written;
} onnx_export;

/* The first batch tells what the features look like; no other is needed. */
static lk_status export_first(const lk_tensor *output, const lk_batch *batch, void *context)
{
    onnx_export *own = context;
    (void)output;
    const lk_tensor *features = lk_batch_get(batch, own->runner->input_key);
    if (!features)
        return lki_fail(LK_ERR_UNSUPPORTED,
                        "ONNX: a batch has no field \"%s\" to take the input's shape from",
                        own->runner->input_key);
    lk_dtype dtype = lk_dtype_is_float(features->dtype) ? LK_F32 : features->dtype;
    LKI_TRY(lki_onnx_export(own->runner->model, dtype, features->shape, own->path));
    own->is_written = true;
    return LK_ERR_STOPPED;
}

static lk_status export_onnx(lk_runner *runner, lk_loader *loader, lk_evaluate_options options,
                             const char *path)
{
    onnx_export own = {.runner = runner, .path = path};
    lk_status status = lk_predict_loader_with(runner, loader, export_first, &own, &options);
    if (own.is_written) return LK_OK;
    return status ? status : lki_fail(LK_ERR_INVALID, "ONNX: the loader has no samples");
}

lk_status lki_config_evaluate(lk_config *config, lki_plan *plan, const lki_evaluation *wish)
{
    lki_object *call = lki_config_find_call(config, "train");
    if (!call)
        return lki_fail(LK_ERR_CONFIG, "the config has no call of train to take model and loaders from");
    lk_args args = {.plan = plan, .object = call};
    lk_evaluate_options options = {LK_SIZE(lk_evaluate_options)};
    lki_call_lists l = {0};
    lk_loader *loader = NULL;
    lk_runner *runner = lk_args_runner(&args);
    lki_place_text(call->node->place, args.place, sizeof args.place);
    lk_status status = take_all(&args, wish, &l, &loader, &options);
    if (status)
        lki_call_drop_evaluation(loader, &options);
    else if (wish->onnx)
        status = export_onnx(runner, loader, options, wish->onnx);
    else if (wish->predicts)
        status = lki_predict_to_file(runner, loader, options, wish->target);
    else
        status = lk_evaluate_loader_with(runner, loader, &options);
    lki_call_lists_fini(&l);
    return status;
}
