/* Everything that a run must remember to go on as if it had never stopped.
 *
 * Names in a runner checkpoint: "model.<path>" (and "model:<key>.<path>" for further models),
 * "optimizer.<state>.<path>", "scheduler.<number>", "generator", "loader", "loader.<key>",
 * "first_pass.<key>", "table.<title>", "trainable.<path>" (frozen_params.h), "callback.<name>.<number>…",
 * "rank.<number>" and the counters. Everything is stored exactly, so what follows is bit for bit what would
 * have followed. */
#include "resume/runner_state.h"

#include "base/memory.h"
#include "base/status.h"
#include "resume/frozen_params.h"
#include "resume/kept_optimizer.h"
#include "resume/metric_state.h"
#include "resume/model_state.h"
#include "resume/part_state.h"
#include "resume/place_state.h"
#include "resume/rank_state.h"
#include "resume/run_terms.h"
#include "resume/scheduler_state.h"
#include "resume/step_state.h"
#include "run/run.h"

#include <string.h>

/* ---- Callbacks ---- */

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
    const char *name = run->listeners.callbacks[index]->ops->name;
    int number = 0;
    for (int i = 0; i < index; i++)
        number += run->listeners.callbacks[i]->ops->save_state &&
                  strcmp(run->listeners.callbacks[i]->ops->name, name) == 0;
    return lki_format("callback.%s.%d.", name, number);
}

static lk_status save_callbacks(const lki_run *run, lk_state_dict *state)
{
    for (int i = 0; i < run->listeners.count; i++) {
        lk_callback *callback = run->listeners.callbacks[i];
        if (!callback->ops->save_state) continue;
        LKI_SCOPED char *prefix = callback_prefix(run, i);
        if (!prefix) return LK_ERR_NOMEM;
        LKI_TRY(callback->ops->save_state(callback, state, prefix));
    }
    return LK_OK;
}

/* Older checkpoints count a callback among all of them. */
static lk_status restore_callbacks(const lki_run *run, const lk_state_dict *state)
{
    for (int i = 0; i < run->listeners.count; i++) {
        lk_callback *callback = run->listeners.callbacks[i];
        if (!callback->ops->load_state) continue;
        LKI_SCOPED char *prefix = callback_prefix(run, i);
        LKI_SCOPED char *older = lki_format("callback.%d.%s.", i, callback->ops->name);
        if (!prefix || !older) return LK_ERR_NOMEM;
        bool is_older = !has_names(state, prefix) && has_names(state, older);
        LKI_TRY(callback->ops->load_state(callback, state, is_older ? older : prefix));
    }
    return LK_OK;
}

/* ---- All of it ---- */

static bool knows_of_parts(const lk_state_dict *state)
{
    return has_names(state, "model:") || has_names(state, "optimizer:");
}

lk_status lki_runner_save(lk_runner *runner, lk_state_dict *state)
{
    LKI_TRY(lki_place_save(runner, state));
    LKI_TRY(lki_terms_save(runner, state));
    if (runner->model) LKI_TRY(lki_module_save(state, runner->model, "model."));
    LKI_TRY(
        lki_step_or_kept_save(state, runner->step, runner->run->batch.kept, runner->optimizer, "optimizer"));
    LKI_TRY(lki_scheduler_save(state, runner->scheduler));
    LKI_TRY(lki_parts_save(runner, state));
    LKI_TRY(lki_frozen_save_models(runner, state));
    LKI_TRY(save_callbacks(runner->run, state));
    LKI_TRY(lki_own_metrics_save(runner, state));
    return lki_rank_state_is_needed(runner) ? lki_rank_state_save(runner, state) : LK_OK;
}

static lk_status restore_state(lk_runner *runner, const lk_state_dict *state, lki_make_step make_step)
{
    if (!lk_state_dict_has(state, "runner.format"))
        return lki_fail(LK_ERR_FORMAT,
                        "this file holds weights alone: it can be evaluated, but not resumed; to start "
                        "a new run from it, give resume_model of CheckpointCallback");
    LKI_TRY(lki_terms_check(runner, state));
    LKI_TRY(lki_place_restore(runner, state));
    /* A runner with batches of its own may never have made the step. */
    bool has_step = runner->model && (!runner->optimizer || lk_state_dict_has(state, "optimizer.step"));
    if (has_step) LKI_TRY(lki_frozen_restore_step(runner, state));
    if (has_step) LKI_TRY(make_step(runner));
    if (runner->model) LKI_TRY(lki_module_restore(state, runner->model, "model."));
    if (has_step) LKI_TRY(lki_step_restore(runner->step, state, "optimizer"));
    if (has_step)
        LKI_TRY(lki_kept_restore_frozen(&runner->run->batch.kept, runner->step, state, "optimizer"));
    if (runner->model) LKI_TRY(lki_frozen_restore_model(runner, runner->model, NULL, state));
    LKI_TRY(lki_scheduler_restore(state, runner->scheduler));
    LKI_TRY(lki_parts_restore(runner));
    LKI_TRY(restore_callbacks(runner->run, state));
    LKI_TRY(lki_own_metrics_restore(runner, state));
    LKI_TRY(lki_rank_state_restore(runner, state));
    return lki_terms_restore(runner, state);
}

lk_status lki_runner_restore(lk_runner *runner, lk_state_dict *state, lki_make_step make_step)
{
    lki_run *run = runner->run;
    lk_state_dict_free(run->resuming.state);
    run->resuming.state = knows_of_parts(state) ? state : NULL;
    lk_status status = restore_state(runner, state, make_step);
    if (!run->resuming.state) lk_state_dict_free(state);
    return status;
}
