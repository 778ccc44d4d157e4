#include "resume/frozen_params.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "nn/module.h"
#include "resume/kept_optimizer.h"
#include "run/run.h"
#include "step/step.h"

static char *trainable_name(const char *key, const char *path)
{
    return key ? lki_format("trainable:%s.%s", key, path) : lki_format("trainable.%s", path);
}

/* ---- To a checkpoint ---- */

static lk_status look_at(lk_runner *runner, const lk_module *model)
{
    lk_param_list params;
    if (!model || runner->run->resuming.freezes) return LK_OK;
    LKI_TRY(lki_module_params(model, &params));
    for (int i = 0; i < params.count; i++) {
        const lk_param *param = params.items[i].param;
        runner->run->resuming.freezes =
            runner->run->resuming.freezes || (!param->is_buffer && !param->trainable);
    }
    lk_param_list_free(&params);
    return LK_OK;
}

lk_status lki_frozen_look(lk_runner *runner)
{
    const lki_run *run = runner->run;
    LKI_TRY(look_at(runner, runner->model));
    for (int i = 0; i < run->parts.count; i++) LKI_TRY(look_at(runner, run->parts.items[i].model));
    return LK_OK;
}

static lk_status save_model(lk_state_dict *state, const lk_module *model, const char *key)
{
    lk_param_list params;
    if (!model) return LK_OK;
    LKI_TRY(lki_module_params(model, &params));
    lk_status status = LK_OK;
    for (int i = 0; i < params.count && !status; i++) {
        const lk_param *param = params.items[i].param;
        if (param->is_buffer) continue;
        LKI_SCOPED char *name = trainable_name(key, params.items[i].path);
        status = name ? lk_state_dict_put_i64(state, name, param->trainable) : LK_ERR_NOMEM;
    }
    lk_param_list_free(&params);
    return status;
}

/* A step may still be made without what has just been thawed. */
static bool step_lacks_some(const lk_step *step)
{
    return step && step->options.optimizer && !lki_flat_is_current(&step->flat, &step->params);
}

lk_status lki_frozen_save_models(lk_runner *runner, lk_state_dict *state)
{
    lki_run *run = runner->run;
    LKI_TRY(lki_frozen_look(runner));
    if (step_lacks_some(runner->step)) run->resuming.freezes = true;
    if (!run->resuming.freezes) return LK_OK;
    LKI_TRY(save_model(state, runner->model, NULL));
    for (int i = 0; i < run->parts.count; i++)
        LKI_TRY(save_model(state, run->parts.items[i].model, run->parts.items[i].key));
    return LK_OK;
}

lk_status lki_frozen_save_step(lk_state_dict *state, const lk_step *step, const char *prefix)
{
    for (int i = 0; i < step->params.count; i++) {
        const lk_param *param = step->params.items[i].param;
        if (param->is_buffer || lki_flat_has(&step->flat, param)) continue;
        LKI_SCOPED char *name = lki_format("%s.frozen.%s", prefix, step->params.items[i].path);
        if (!name) return LK_ERR_NOMEM;
        LKI_TRY(lk_state_dict_put_i64(state, name, 1));
    }
    return LK_OK;
}

/* ---- From one ---- */

bool lki_frozen_has(const lk_state_dict *state, const char *prefix, const char *path)
{
    LKI_SCOPED char *name = lki_format("%s.frozen.%s", prefix, path);
    return name && lk_state_dict_has(state, name);
}

static lk_status restore_param(const lk_state_dict *state, const char *name, lk_param *param)
{
    int64_t trainable;
    LKI_TRY(lk_state_dict_get_i64(state, name, &trainable));
    param->trainable = trainable != 0;
    return LK_OK;
}

/* As the step was made, or as the parameters say. A program that has set something else since hears of it. */
static lk_status set_model(lk_runner *runner, lk_module *model, const char *key, const lk_state_dict *state,
                           bool as_step)
{
    lk_param_list params;
    int changed = 0;
    LKI_TRY(lki_module_params(model, &params));
    lk_status status = LK_OK;
    for (int i = 0; i < params.count && !status; i++) {
        lk_param *param = params.items[i].param;
        const char *path = params.items[i].path;
        LKI_SCOPED char *name = trainable_name(key, path);
        if (!name) status = LK_ERR_NOMEM;
        if (!name || param->is_buffer || !lk_state_dict_has(state, name)) continue;
        runner->run->resuming.freezes = true;
        bool was = param->trainable;
        status = restore_param(state, name, param);
        changed += param->trainable != was;
        if (as_step) param->trainable = !lki_frozen_has(state, "optimizer", path);
    }
    lk_param_list_free(&params);
    if (as_step && changed && runner->is_master)
        lki_log(LKI_LOG_INFO, "resume: %d parameters are frozen or thawed as in the checkpoint", changed);
    return status;
}

lk_status lki_frozen_restore_step(lk_runner *runner, const lk_state_dict *state)
{
    LKI_TRY(set_model(runner, runner->model, NULL, state, true));
    if (step_lacks_some(runner->step)) lki_step_drop(&runner->step, &runner->run->batch.kept);
    return LK_OK;
}

lk_status lki_frozen_restore_model(lk_runner *runner, lk_module *model, const char *key,
                                   const lk_state_dict *state)
{
    return set_model(runner, model, key, state, false);
}
