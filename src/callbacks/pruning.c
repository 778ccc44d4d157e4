/* Catalyst's PruningCallback: sets the least important weights to 0, and keeps them there while the run goes
 * on.
 *
 * A mask per parameter has a 1 for each weight that is left. After every train batch the others are set to 0
 * again, which is what PyTorch's reparametrisation computes with. Each time that it prunes, it takes its
 * share of the weights that are left, as PyTorch's PruningContainer does. */
#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "callbacks/callbacks.h"
#include "callbacks/prune.h"
#include "graph/home.h"
#include "nn/module.h"

#include <math.h>
#include <string.h>

typedef struct pruning_context {
    lki_prune how;
    double amount;
    char **keys, **layers; /* layers NULL: all */
    bool on_epoch_end, no_on_end;
    lk_param_list params; /* of the model; empty before the start */
    lk_tensor **masks;    /* u8, one per parameter that is pruned; NULL for the others */
    bool has_pruned;
    lk_state_dict *resumed; /* masks by name, until the start; NULL: none */
} pruning_context;

static bool is_among(const char *text, size_t length, char *const *names)
{
    for (; *names; names++)
        if (strlen(*names) == length && strncmp(*names, text, length) == 0) return true;
    return false;
}

/* "encoder.0.weight" is the key "weight" of the layer "encoder.0". */
static bool is_chosen(const pruning_context *own, const lk_named_param *named)
{
    const char *dot = strrchr(named->path, '.'), *key = dot ? dot + 1 : named->path;
    size_t layer = dot ? (size_t)(dot - named->path) : 0;
    if (named->param->is_buffer || !lk_dtype_is_float(named->param->value->dtype)) return false;
    return is_among(key, strlen(key), own->keys) &&
           (!own->layers || is_among(named->path, layer, own->layers));
}

static lk_status check_layers(const pruning_context *own)
{
    for (char **layer = own->layers; layer && *layer; layer++) {
        bool found = false;
        for (int i = 0; i < own->params.count && !found; i++) {
            const char *path = own->params.items[i].path;
            size_t length = strlen(*layer);
            found = own->masks[i] && strncmp(path, *layer, length) == 0 && path[length] == '.' &&
                    !strchr(path + length + 1, '.');
        }
        if (!found)
            return lki_fail(LK_ERR_NOT_FOUND, "PruningCallback: layers_to_prune: no layer \"%s\" with \"%s\"",
                            *layer, own->keys[0]);
    }
    return LK_OK;
}

static lk_status take_up_masks(pruning_context *own)
{
    for (int i = 0; own->resumed && i < own->params.count; i++) {
        const char *path = own->params.items[i].path;
        if (!own->masks[i] || !lk_state_dict_has(own->resumed, path)) continue;
        LKI_TRY(lk_state_dict_copy_to(own->resumed, path, own->masks[i]));
        own->has_pruned = true;
    }
    lk_state_dict_free(own->resumed);
    own->resumed = NULL;
    return LK_OK;
}

static lk_status start(lk_callback *callback, lk_runner *runner)
{
    pruning_context *own = callback->context;
    int chosen = 0;
    if (!runner->model) return lki_fail(LK_ERR_INVALID, "PruningCallback: the run has no model");
    LKI_TRY(lki_module_params(runner->model, &own->params));
    own->masks = LKI_NEW_ARRAY(lk_tensor *, own->params.count + 1);
    if (!own->masks) return LK_ERR_NOMEM;
    for (int i = 0; i < own->params.count; i++) {
        const lk_named_param *named = &own->params.items[i];
        if (!is_chosen(own, named)) continue;
        lk_status status = lki_prune_check(&own->how, named->param->value->shape, own->amount);
        if (status) return lki_fail_prefix(status, "PruningCallback: %s", named->path);
        own->masks[i] = lk_tensor_create(LK_U8, named->param->value->shape);
        if (!own->masks[i]) return LK_ERR_NOMEM;
        memset(own->masks[i]->data, 1, lk_tensor_nbytes(own->masks[i]));
        chosen++;
    }
    LKI_TRY(check_layers(own));
    if (chosen) return take_up_masks(own);
    return lki_fail(LK_ERR_NOT_FOUND, "PruningCallback: the model has no parameter \"%s\"", own->keys[0]);
}

static lk_status apply_masks(const pruning_context *own)
{
    for (int i = 0; i < own->params.count; i++) {
        lk_param *param = own->params.items[i].param;
        if (!own->masks[i]) continue;
        LKI_TRY(lki_param_pull(param));
        const uint8_t *kept = own->masks[i]->data;
        for (int64_t k = 0; k < lk_tensor_count(param->value); k++)
            if (!kept[k]) lk_tensor_set(param->value, k, 0);
        lki_param_push(param);
    }
    return LK_OK;
}

static lk_status prune(pruning_context *own, const lk_runner *runner)
{
    for (int i = 0; i < own->params.count; i++) {
        if (!own->masks[i]) continue;
        lk_param *param = own->params.items[i].param;
        LKI_TRY(lki_param_pull(param));
        lki_keyed random =
            lki_keyed_make(runner->seed, (uint64_t)runner->epoch_step, (uint64_t)i, UINT64_MAX - 1);
        LKI_TRY(lki_prune_mask(&own->how, own->amount, param->value, own->masks[i], &random));
    }
    own->has_pruned = true;
    return apply_masks(own);
}

static lk_status batch_end(lk_callback *callback, lk_runner *runner)
{
    const pruning_context *own = callback->context;
    return own->has_pruned && runner->is_train_loader ? apply_masks(own) : LK_OK;
}

static lk_status epoch_end(lk_callback *callback, lk_runner *runner)
{
    pruning_context *own = callback->context;
    return own->on_epoch_end && runner->epoch_step != runner->num_epochs ? prune(own, runner) : LK_OK;
}

/* The checkpoint of the last epoch has been written by now. */
static lk_status experiment_end(lk_callback *callback, lk_runner *runner)
{
    pruning_context *own = callback->context;
    if (!own->no_on_end) LKI_TRY(prune(own, runner));
    if (!runner->is_master || !runner->logdir || !own->has_pruned) return LK_OK;
    LKI_SCOPED char *path = lki_format("%s/pruned.safetensors", runner->logdir);
    lk_state_dict *weights = path ? lk_module_state_dict(runner->model) : NULL;
    lk_status status = weights ? lk_save_safetensors(path, weights) : lki_last_status();
    lk_state_dict_free(weights);
    return status;
}

static lk_status save_state(lk_callback *callback, lk_state_dict *state, const char *prefix)
{
    const pruning_context *own = callback->context;
    for (int i = 0; own->has_pruned && i < own->params.count; i++) {
        if (!own->masks[i]) continue;
        LKI_SCOPED char *name = lki_format("%smask.%s", prefix, own->params.items[i].path);
        if (!name) return LK_ERR_NOMEM;
        LKI_TRY(lk_state_dict_put(state, name, lk_tensor_view(own->masks[i])));
    }
    return LK_OK;
}

/* A run's state is loaded before its external callbacks start, when the parameters are not known yet. */
static lk_status load_state(lk_callback *callback, const lk_state_dict *state, const char *prefix)
{
    pruning_context *own = callback->context;
    LKI_SCOPED char *begin = lki_format("%smask.", prefix);
    if (!begin || !(own->resumed = lk_state_dict_create())) return LK_ERR_NOMEM;
    for (int64_t i = 0; i < lk_state_dict_count(state); i++) {
        const char *name = lk_state_dict_name(state, i);
        if (strncmp(name, begin, strlen(begin)) != 0) continue;
        LKI_TRY(lk_state_dict_put(own->resumed, name + strlen(begin),
                                  lk_tensor_clone(lk_state_dict_tensor(state, i))));
    }
    return LK_OK;
}

static void free_context(lk_callback *callback)
{
    pruning_context *own = callback->context;
    for (int i = 0; own->masks && i < own->params.count; i++) lk_tensor_free(own->masks[i]);
    lki_free(own->masks);
    lk_param_list_free(&own->params);
    lk_state_dict_free(own->resumed);
    lki_names_free(own->keys);
    lki_names_free(own->layers);
    lki_free(own);
}

lk_callback *lk_pruning_callback_with(const lk_pruning_callback_options *given)
{
    LKI_TAKE(lk_pruning_callback_options, options, given, NULL);
    static const lk_callback_ops ops = {
        LK_SIZE(lk_callback_ops),  .name = "Pruning",         .on_experiment_start = start,
        .on_batch_end = batch_end, .on_epoch_end = epoch_end, .on_experiment_end = experiment_end,
        .save_state = save_state,  .load_state = load_state,  .free = free_context,
    };
    static const char *const weight[] = {"weight", NULL};
    lki_prune how;
    if (lki_prune_read(&how, options.pruning_fn, options.dim, options.l_norm)) return NULL;
    if (!(options.amount > 0) || isinf(options.amount) ||
        (options.amount > 1 && options.amount != floor(options.amount)))
        return lki_fail_null(
            LK_ERR_INVALID,
            "PruningCallback: amount: expected a share below 1 or a number of weights, found %g",
            options.amount);
    if (options.no_prune_on_end && !options.prune_on_epoch_end)
        return lki_fail_null(LK_ERR_INVALID, "PruningCallback: neither prune_on_epoch_end nor prune_on_end");
    lk_callback *callback = lki_callback_new(&ops, sizeof(pruning_context), LK_ORDER_EXTERNAL);
    if (!callback) return NULL;
    pruning_context *own = callback->context;
    *own = (pruning_context){.how = how,
                             .amount = options.amount,
                             .on_epoch_end = options.prune_on_epoch_end,
                             .no_on_end = options.no_prune_on_end};
    const char *const *keys =
        options.keys_to_prune && *options.keys_to_prune ? options.keys_to_prune : weight;
    if (!lki_names_copy(&own->keys, keys) && !lki_names_copy(&own->layers, options.layers_to_prune))
        return callback;
    lk_callback_free(callback);
    return NULL;
}
