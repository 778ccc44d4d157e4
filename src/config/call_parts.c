/* The parts of the calls under `run:`: models, optimizers, lists, and where it all runs. */
#include "config/call_parts.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "config/registry.h"
#include "nn/module.h"

#include <stdio.h>
#include <string.h>

/* ---- The model, from the call or from the runner's part of the config ---- */

static lk_status add_models(lk_args *args)
{
    const lki_object *runner = args->plan->runner;
    lki_object *model;
    for (int i = 0; (model = lki_object_argument(runner, "model", i)); i++) {
        if (model->taken) continue;
        model->taken = true;
        LKI_TRY(
            lk_runner_add_model(lk_args_runner(args), lki_object_key(runner, "model", i), model->pointer));
    }
    return LK_OK;
}

/* *out is NULL where the runner has the model already, or has several by key. */
lk_status lki_call_take_model(lk_args *args, lk_module **out)
{
    const lki_object *runner = args->plan->runner;
    lki_object *model = lki_object_argument(runner, "model", 0);
    *out = lk_arg_take(args, "model");
    if (*out || !model) return LK_OK;
    if (lki_object_key(runner, "model", 0)) return add_models(args);
    if (!model->taken) *out = model->pointer;
    model->taken = true;
    return LK_OK;
}

/* ---- Which parameters the optimizer is for ---- */

static bool holds(const lk_param_list *list, const lk_param *param)
{
    for (int i = 0; i < list->count; i++)
        if (list->items[i].param == param) return true;
    return false;
}

static lk_status check_is_part(const lk_module *model, const lki_object *part)
{
    lk_param_list all = {0}, own = {0};
    lk_status status;
    LKI_TRY_OUT(lki_module_params(model, &all));
    LKI_TRY_OUT(lki_module_params(part->pointer, &own));
    for (int i = 0; i < own.count && !status; i++)
        if (!holds(&all, own.items[i].param))
            status = lki_fail_at(part->node->place, "%s: its parameters are not the model's", part->called);
out:
    lk_param_list_free(&all);
    lk_param_list_free(&own);
    return status;
}

/* The module that the i-th item of `params` is about; NULL where there is none. */
static const lki_object *part_at(const lki_object *optimizer, int index)
{
    const lki_object *part = lki_object_argument(optimizer, "params", index);
    bool is_group = part && part->component->kind == LK_KIND_PARAMETERS;
    return is_group ? lki_object_argument(part, "params", 0) : part;
}

/* A parameter has the numbers of one group, as in PyTorch. */
static lk_status check_apart(const lki_object *optimizer, int index)
{
    const lki_object *part = part_at(optimizer, index);
    lk_param_list own = {0}, earlier = {0};
    lk_status status;
    LKI_TRY_OUT(lk_module_params(part->pointer, &own));
    for (int i = 0; i < index; i++) {
        lk_param_list_free(&earlier);
        LKI_TRY_OUT(lk_module_params(part_at(optimizer, i)->pointer, &earlier));
        for (int k = 0; k < own.count && !status; k++)
            if (holds(&earlier, own.items[k].param))
                status =
                    lki_fail_at(optimizer->node->place, "%s: params: some parameters of %s are in two groups",
                                optimizer->called, part->called);
        if (status) break;
    }
out:
    lk_param_list_free(&own);
    lk_param_list_free(&earlier);
    return status;
}

/* Groups by the names of parameters are known when the optimizer meets its model. */
static bool has_names(const lki_object *optimizer)
{
    const lki_object *part;
    for (int i = 0; (part = lki_object_argument(optimizer, "params", i)); i++)
        if (part->component->kind == LK_KIND_PARAMETERS && !lki_object_argument(part, "params", 0))
            return true;
    return false;
}

/* An optimizer that names only parts of the model trains only those, as in PyTorch. */
static lk_status freeze_the_rest(const lki_object *optimizer, lk_module *model)
{
    const lki_object *part;
    bool is_frozen = false;
    if (has_names(optimizer)) return LK_OK; /* the optimizer's own numbers are for the others */
    for (int i = 1; part_at(optimizer, i); i++) LKI_TRY(check_apart(optimizer, i));
    for (int i = 0; (part = part_at(optimizer, i)); i++) {
        if (part->pointer == model) return lk_module_set_trainable(model, true), LK_OK;
        LKI_TRY(check_is_part(model, part));
        if (!is_frozen) lk_module_set_trainable(model, false);
        is_frozen = true;
        lk_module_set_trainable(part->pointer, true);
    }
    return LK_OK;
}

lk_status lki_call_take_optimizer(lk_args *args, lk_module *model, lk_optimizer **out)
{
    lki_object *optimizer = lki_object_argument(args->object, "optimizer", 0);
    *out = NULL;
    for (int i = 0; lk_arg_key_at(args, "optimizer", i); i++)
        LKI_TRY(lk_runner_add_optimizer(lk_args_runner(args), lk_arg_key_at(args, "optimizer", i),
                                        lk_arg_take_at(args, "optimizer", i)));
    if (!optimizer || lk_arg_key_at(args, "optimizer", 0)) return LK_OK;
    if (model) LKI_TRY(freeze_the_rest(optimizer, model));
    *out = lk_arg_take(args, "optimizer");
    return LK_OK;
}

lk_status lki_call_take_criterion(lk_args *args, lk_criterion **out)
{
    *out = NULL;
    for (int i = 0; lk_arg_key_at(args, "criterion", i); i++)
        LKI_TRY(lk_runner_add_criterion(lk_args_runner(args), lk_arg_key_at(args, "criterion", i),
                                        lk_arg_take_at(args, "criterion", i)));
    if (!lk_arg_key_at(args, "criterion", 0)) *out = lk_arg_take(args, "criterion");
    return LK_OK;
}

/* ---- Lists. The arrays are the caller's to free, their items belong to the runner once it is called. ----
 */

void lki_call_lists_fini(lki_call_lists *l)
{
    lki_free(l->loaders);
    lki_free(l->callbacks);
    lki_free(l->loggers);
    lki_free(l->hparams);
}

lk_status lki_call_take_loaders(lk_args *args, lki_call_lists *l, lk_loader_list *out)
{
    int count = lk_arg_count(args, "loaders");
    l->loaders = LKI_NEW_ARRAY(lk_named_loader, count + 1);
    if (!l->loaders) return LK_ERR_NOMEM;
    *out = (lk_loader_list){l->loaders, count};
    for (int i = 0; i < count; i++) {
        const char *key = lk_arg_key_at(args, "loaders", i);
        if (!key) return lki_fail(LK_ERR_CONFIG, "loaders: expected a map of loaders, as in train: {...}");
        l->loaders[i] = (lk_named_loader){key, lk_arg_take_at(args, "loaders", i)};
    }
    return args->status;
}

lk_status lki_call_take_callbacks(lk_args *args, lki_call_lists *l, lk_callback_list *out)
{
    int count = lk_arg_count(args, "callbacks");
    l->callbacks = LKI_NEW_ARRAY(lk_callback *, count + 1);
    if (!l->callbacks) return LK_ERR_NOMEM;
    *out = (lk_callback_list){l->callbacks, count};
    for (int i = 0; i < count; i++) l->callbacks[i] = lk_arg_take_at(args, "callbacks", i);
    return args->status;
}

lk_status lki_call_take_loggers(lk_args *args, lki_call_lists *l, lk_logger_list *out)
{
    int count = lk_arg_count(args, "loggers");
    l->loggers = LKI_NEW_ARRAY(lk_logger *, count + 1);
    if (!l->loggers) return LK_ERR_NOMEM;
    *out = (lk_logger_list){l->loggers, count};
    for (int i = 0; i < count; i++) l->loggers[i] = lk_arg_take_at(args, "loggers", i);
    return args->status;
}

/* Nested maps become paths: {model: {size: 3}} is model/size = 3. */
static lk_status read_hparams(lk_args *args, lki_call_lists *l, const lki_node *node, const char *path)
{
    for (int i = 0; i < node->count; i++) {
        const lki_entry *entry = &node->entries[i];
        lki_arena *arena = &args->plan->tree->arena;
        char number[16];
        snprintf(number, sizeof number, "%d", i);
        const char *name =
            lki_arena_format(arena, "%s%s%s", path, *path ? "/" : "", entry->key ? entry->key : number);
        if (!name) return LK_ERR_NOMEM;
        if (entry->value->kind != LKI_NODE_SCALAR) {
            LKI_TRY(read_hparams(args, l, entry->value, name));
            continue;
        }
        size_t nbytes = sizeof(lk_hparam) * (size_t)(l->hparam_count + 1);
        lk_hparam *grown = lki_realloc(l->hparams, nbytes, "hparams");
        if (!grown) return LK_ERR_NOMEM;
        l->hparams = grown;
        l->hparams[l->hparam_count++] = (lk_hparam){name, entry->value->text};
    }
    return LK_OK;
}

lk_status lki_call_read_hparams(lk_args *args, lki_call_lists *l, lk_hparam_list *out)
{
    int index = lki_component_parameter_index(args->object->component, "hparams");
    const lki_node *node = args->object->values[index];
    if (node) LKI_TRY(read_hparams(args, l, node, ""));
    *out = (lk_hparam_list){l->hparams, l->hparam_count};
    return LK_OK;
}

/* ---- Where it runs ---- */

static void apply_wish(const lki_object *engine, lk_train_options *options)
{
    const lki_engine_wish *wish = engine ? engine->pointer : NULL;
    if (!wish) return;
    if (wish->device) options->device = wish->device;
    options->ddp |= wish->ddp;
    options->tf32 |= wish->tf32;
    if (wish->half) options->precision = "fp16";
}

static void read_scaler(lk_args *args, lk_scaler_options *scaler)
{
    scaler->init_scale = lk_arg_float(args, "init_scale");
    scaler->growth_factor = lk_arg_float(args, "growth_factor");
    scaler->backoff_factor = lk_arg_float(args, "backoff_factor");
    scaler->growth_interval = lk_arg_int(args, "growth_interval");
}

/* The call's own arguments win over its engine, and that over the runner's. */
lk_status lki_call_read_device(lk_args *args, lk_train_options *options)
{
    const char *device = lk_arg_string(args, "device");
    apply_wish(lki_object_argument(args->plan->runner, "engine", 0), options);
    apply_wish(lki_object_argument(args->object, "engine", 0), options);
    if (lk_arg_bool(args, "cpu") && device && strcmp(device, "cpu") != 0)
        return lki_fail(LK_ERR_CONFIG, "cpu: y and device: %s contradict each other", device);
    if (lk_arg_bool(args, "cpu")) options->device = "cpu";
    if (device) options->device = device;
    return LK_OK;
}

/* Fails where two keys ask for different precisions, or numbers are given for a scaling that is not done. */
static lk_status check_precision(lk_args *args, const char *precision)
{
    static const char *const scaling[] = {"init_scale", "growth_factor", "backoff_factor", "growth_interval"};
    bool is_fp16 = precision && !strcmp(precision, "fp16");
    if (!is_fp16 && (lk_arg_bool(args, "fp16") || lk_arg_bool(args, "amp")))
        return lki_fail(LK_ERR_CONFIG, "%s: y and precision: %s contradict each other",
                        lk_arg_bool(args, "fp16") ? "fp16" : "amp", precision);
    for (int i = 0; i < 4; i++)
        if (lk_arg_given(args, scaling[i]) && !is_fp16)
            return lki_fail(LK_ERR_CONFIG, "%s: losses are scaled in fp16 only: write precision: fp16",
                            scaling[i]);
    return LK_OK;
}

lk_status lki_call_read_engine(lk_args *args, lk_train_options *options)
{
    LKI_TRY(lki_call_read_device(args, options));
    if (lk_arg_given(args, "ddp")) options->ddp = lk_arg_bool(args, "ddp");
    if (lk_arg_bool(args, "distributed")) options->ddp = true;
    if (lk_arg_bool(args, "fp16") || lk_arg_bool(args, "amp")) options->precision = "fp16";
    if (lk_arg_given(args, "precision")) options->precision = lk_arg_string(args, "precision");
    LKI_TRY(check_precision(args, options->precision));
    read_scaler(args, &options->scaler);
    static const char *const tf32[] = {"allow_tf32", "tf32"};
    if (lk_arg_given(args, "tf32") && lk_arg_given(args, "allow_tf32") &&
        lk_arg_bool(args, "tf32") != lk_arg_bool(args, "allow_tf32"))
        return lki_fail(LK_ERR_CONFIG, "tf32 and allow_tf32 contradict each other");
    for (int i = 0; i < 2; i++)
        if (lk_arg_given(args, tf32[i])) options->tf32 = lk_arg_bool(args, tf32[i]);
    options->benchmark = lk_arg_bool(args, "benchmark");
    options->nproc = lk_arg_int(args, "nproc");
    if (lk_arg_given(args, "comm")) options->comm = lk_arg_string(args, "comm");
    options->sync_batch_norm = lk_arg_bool(args, "sync_batch_norm");
    options->compress_gradients = lk_arg_bool(args, "compress_gradients");
    if (lk_arg_int(args, "check_replicas") < 0)
        return lki_fail(LK_ERR_CONFIG, "check_replicas: expected at least 0, found %d",
                        lk_arg_int(args, "check_replicas"));
    if (lk_arg_given(args, "check_replicas")) { /* zero is a default in C alone */
        options->check_replicas = lk_arg_int(args, "check_replicas");
        if (options->check_replicas == 0) options->check_replicas = -1;
    }
    return LK_OK;
}

void lki_call_drop_evaluation(lk_loader *loader, const lk_evaluate_options *options)
{
    for (int i = 0; i < options->callbacks.count; i++) lk_callback_free(options->callbacks.items[i]);
    lk_module_free(options->model);
    lk_criterion_free(options->criterion);
    lk_loader_free(loader);
}
