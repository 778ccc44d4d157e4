#include "resume/model_state.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "checkpoint/torch_load.h"
#include "nn/module.h"
#include "resume/fit_weights.h"
#include "run/run.h"
#include "step/step.h"

#include <lockstep/checkpoint.h>

#include <string.h>

lk_status lki_module_save(lk_state_dict *state, const lk_module *module, const char *prefix)
{
    lk_param_list params;
    lk_status status = lki_module_names(module, &params);
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

/* Formats that store a shared parameter once have it under one of its names. */
static bool has_other_name(const lk_state_dict *state, const char *prefix, const lk_param_list *params,
                           int index)
{
    for (int i = 0; i < params->count; i++) {
        if (i == index || params->items[i].param != params->items[index].param) continue;
        LKI_SCOPED char *name = lki_format("%s%s", prefix, params->items[i].path);
        if (name && lk_state_dict_has(state, name)) return true;
    }
    return false;
}

lk_status lki_module_restore(const lk_state_dict *state, lk_module *module, const char *prefix)
{
    lk_param_list params;
    lk_status status = lki_module_names(module, &params);
    if (status) return status;
    for (int i = 0; i < params.count && !status; i++) {
        LKI_SCOPED char *name = lki_format("%s%s", prefix, params.items[i].path);
        if (name && !lk_state_dict_has(state, name) && has_other_name(state, prefix, &params, i)) continue;
        status = lki_param_pull(params.items[i].param);
        if (status) break;
        status = name ? lk_state_dict_copy_to(state, name, params.items[i].param->value) : LK_ERR_NOMEM;
        lki_param_push(params.items[i].param);
    }
    lk_param_list_free(&params);
    return status;
}

static bool has_part_models(const lk_runner *runner)
{
    for (int i = 0; i < runner->run->parts.count; i++)
        if (runner->run->parts.items[i].model) return true;
    return false;
}

bool lki_runner_has_models(const lk_runner *runner)
{
    return runner->model || has_part_models(runner);
}

static lk_status save_models(lk_state_dict *state, const lk_runner *runner)
{
    if (runner->model) LKI_TRY(lki_module_save(state, runner->model, ""));
    for (int i = 0; i < runner->run->parts.count; i++) {
        const lki_part *part = &runner->run->parts.items[i];
        LKI_SCOPED char *prefix = lki_format("%s.", part->key);
        if (!prefix) return LK_ERR_NOMEM;
        if (part->model) LKI_TRY(lki_module_save(state, part->model, prefix));
    }
    return LK_OK;
}

lk_state_dict *lki_models_save(const lk_runner *runner)
{
    lk_state_dict *state = lk_state_dict_create();
    if (state && save_models(state, runner)) {
        lk_state_dict_free(state);
        return NULL;
    }
    return state;
}

/* A file of weights, or a runner checkpoint, whose weights carry a prefix. */
static const char *weights_prefix(const lk_state_dict *state)
{
    return lk_state_dict_has(state, "runner.format") ? "model." : "";
}

static lk_status restore_lenient(lk_module *model, const lk_state_dict *state, const char *what)
{
    lk_status status = lki_module_restore(state, model, weights_prefix(state));
    return status ? lki_fail_prefix(status, "%s", what) : LK_OK;
}

lk_status lki_models_restore(lk_runner *runner, const lk_state_dict *state, const char *what)
{
    bool whole = lk_state_dict_has(state, "runner.format");
    if (runner->model && has_part_models(runner))
        LKI_TRY(restore_lenient(runner->model, state, what)); /* the other models' names stand beside it */
    else if (runner->model)
        LKI_TRY(lki_model_restore(runner->model, state, what));
    for (int i = 0; i < runner->run->parts.count; i++) {
        lki_part *part = &runner->run->parts.items[i];
        LKI_SCOPED char *prefix = lki_format(whole ? "model:%s." : "%s.", part->key);
        if (!prefix) return LK_ERR_NOMEM;
        lk_status status = part->model ? lki_module_restore(state, part->model, prefix) : LK_OK;
        if (status) return lki_fail_prefix(status, "%s", what);
    }
    return LK_OK;
}

static bool has_string(const lk_state_dict *state, const char *name)
{
    for (int64_t i = 0; i < lk_state_dict_string_count(state); i++)
        if (strcmp(lk_state_dict_string_name(state, i), name) == 0) return true;
    return false;
}

/* PyTorch's files are loaded as PyTorch loads them: strictly. */
lk_status lki_model_restore(lk_module *model, const lk_state_dict *state, const char *what)
{
    if (has_string(state, LKI_TORCH_ORIGIN)) return lki_weights_fit(model, state, "", what, NULL, true, NULL);
    return restore_lenient(model, state, what);
}

lk_status lki_models_restore_some(lk_runner *runner, const lk_state_dict *state, const char *what,
                                  const char *names, bool strict)
{
    char *report = NULL;
    if (!runner->model || has_part_models(runner))
        return lki_fail(LK_ERR_INVALID, "%s: weights are loaded by name into a run of one model", what);
    lk_status status =
        lki_weights_fit(runner->model, state, weights_prefix(state), what, names, strict, &report);
    if (!status && runner->is_master) lki_log(LKI_LOG_INFO, "%s: %s", what, report);
    lki_free(report);
    return status;
}

lk_status lk_load_weights_with(lk_module *module, const char *path, const lk_load_weights_options *given)
{
    LKI_TAKE(lk_load_weights_options, options, given, lki_last_status());
    if (!module || !path) return lki_fail(LK_ERR_INVALID, "load: NULL was passed");
    if (options.report) *options.report = NULL;
    lk_state_dict *state = lk_load_checkpoint(path);
    if (!state) return lki_last_status();
    lk_status status = lki_weights_fit(module, state, weights_prefix(state), path, options.names,
                                       !options.no_strict, options.report);
    lk_state_dict_free(state);
    return status;
}

lk_state_dict *lk_module_state_dict(const lk_module *module)
{
    lk_state_dict *state = module ? lk_state_dict_create() : NULL;
    if (state && lki_module_save(state, module, "")) {
        lk_state_dict_free(state);
        return NULL;
    }
    return state;
}

lk_status lk_module_load_state_dict(lk_module *module, const lk_state_dict *state)
{
    return lki_model_restore(module, state, "state dict");
}
