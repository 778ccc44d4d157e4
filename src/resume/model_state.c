#include "resume/model_state.h"

#include "base/memory.h"
#include "base/status.h"
#include "nn/module.h"
#include "run/run.h"
#include "step/step.h"

#include <lockstep/checkpoint.h>

lk_status lki_module_save(lk_state_dict *state, const lk_module *module, const char *prefix)
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

lk_status lki_module_restore(const lk_state_dict *state, lk_module *module, const char *prefix)
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
    for (int i = 0; i < runner->run->parts.count; i++)
        if (runner->run->parts.items[i].model) return true;
    return runner->model != NULL;
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

lk_status lki_models_restore(lk_runner *runner, const lk_state_dict *state, const char *what)
{
    bool whole = lk_state_dict_has(state, "runner.format");
    if (runner->model) LKI_TRY(lki_model_restore(runner->model, state, what));
    for (int i = 0; i < runner->run->parts.count; i++) {
        lki_part *part = &runner->run->parts.items[i];
        LKI_SCOPED char *prefix = lki_format(whole ? "model:%s." : "%s.", part->key);
        if (!prefix) return LK_ERR_NOMEM;
        lk_status status = part->model ? lki_module_restore(state, part->model, prefix) : LK_OK;
        if (status) return lki_fail_prefix(status, "%s", what);
    }
    return LK_OK;
}

/* A file of weights, or a runner checkpoint, whose weights carry a prefix. */
lk_status lki_model_restore(lk_module *model, const lk_state_dict *state, const char *what)
{
    const char *prefix = lk_state_dict_has(state, "runner.format") ? "model." : "";
    lk_status status = lki_module_restore(state, model, prefix);
    return status ? lki_fail_prefix(status, "%s", what) : LK_OK;
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
