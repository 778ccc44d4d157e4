/* Training an estimator: the supervised runner with Sapsan's callbacks, and what it leaves behind. */
#include "estimator/estimator.h"

#include "base/atomic_file.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/number_text.h"
#include "base/status.h"
#include "resume/step_state.h"
#include "run/run.h"

#include <lockstep/callback.h>

#include <stdio.h>
#include <string.h>

/* ---- What happens around the run, on every rank ---- */

static void print_run_info(const lk_estimator *estimator, const lk_runner *runner)
{
    const lki_run *run = runner->run;
    printf("%s: device %s, DDP %s", estimator->name, lk_engine_name(runner->engine),
           run->ranks.comm && runner->world_size > 1 ? "on"
           : estimator->config.ddp                   ? "on, one rank"
                                                     : "off");
    if (runner->world_size > 1) printf(" (%d ranks)", runner->world_size);
    lki_fprintf(stdout, ", %lld parameters, %d epoch%s, lr %g\n",
                (long long)lk_module_param_count(runner->model), estimator->config.n_epochs,
                estimator->config.n_epochs == 1 ? "" : "s", lk_optimizer_lr(runner->optimizer, 0));
    fflush(stdout);
}

/* ---- The estimator's callback ---- */

static lk_status run_start(lk_callback *callback, lk_runner *runner)
{
    lk_estimator *estimator = callback->context;
    LKI_TRY(lki_estimator_track_begin(estimator, runner));
    if (runner->is_master && estimator->config.verbose) print_run_info(estimator, runner);
    if (!estimator->optimizer_state) return LK_OK;
    LKI_TRY(lki_run_prepare_step(runner));
    return lki_step_restore(runner->step, estimator->optimizer_state, "optimizer");
}

static lk_status epoch_end(lk_callback *callback, lk_runner *runner)
{
    lk_estimator *estimator = callback->context;
    const lki_run *run = runner->run;
    for (int i = 0; i < run->loaders.count; i++) {
        const lk_metrics *metrics = lk_runner_loader_metrics(runner, run->loaders.items[i].key);
        if (!metrics || !lk_metrics_has(metrics, runner->loss_key)) continue;
        double loss = lk_metrics_get(metrics, runner->loss_key);
        LKI_TRY(lki_history_add(estimator, run->loaders.items[i].key, loss));
        if (i == 0) estimator->loss = loss;
        LKI_SCOPED char *name = lki_format("%s - loss", run->loaders.items[i].key);
        if (!name) return LK_ERR_NOMEM;
        if (estimator->tracking)
            LKI_TRY(lki_tracking_metric(estimator->tracking, name, loss, estimator->epoch + 1));
    }
    estimator->epoch++;
    return LK_OK;
}

/* Ranks end and their steps go; what a save needs is kept here. The tensors share the step's memory. */
static lk_status run_end(lk_callback *callback, lk_runner *runner)
{
    lk_estimator *estimator = callback->context;
    lk_state_dict *state = lk_state_dict_create();
    if (!state) return LK_ERR_NOMEM;
    lk_status status = lki_step_save(runner->step, state, "optimizer");
    if (status) {
        lk_state_dict_free(state);
        return status;
    }
    lk_state_dict_free(estimator->optimizer_state);
    estimator->optimizer_state = state;
    return LK_OK;
}

static const lk_callback_ops keeper_ops = {LK_SIZE(lk_callback_ops), .name = "Estimator",
                                           .on_experiment_start = run_start, .on_epoch_end = epoch_end,
                                           .on_experiment_end = run_end};

/* ---- The model's details ---- */

static lk_status write_details(const lk_estimator *estimator)
{
    const lk_estimator_config *config = &estimator->config;
    lk_shape shape = {.rank = estimator->features.rank + 1,
                      .dim = {lk_loader_batch_size(estimator->loaders[0].loader)}};
    memcpy(shape.dim + 1, estimator->features.dim, sizeof *shape.dim * (size_t)estimator->features.rank);
    LKI_TRY(lki_make_folders(config->logdir));
    LKI_SCOPED char *path = lki_format("%s/%s", config->logdir, LKI_MODEL_DETAILS);
    char *summary = NULL;
    if (!path) return LK_ERR_NOMEM;
    LKI_TRY(lk_module_summary(estimator->model, LK_F32, shape, &summary));
    const lk_criterion *criterion = config->criterion;
    const lk_optimizer *optimizer = config->optimizer;
    const lk_scheduler *scheduler = config->scheduler;
    LKI_SCOPED char *text = lki_format(
        "%s\n\n%s\ncriterion: %s\noptimizer: %s\nscheduler: %s\nlr: %g\nmin_lr: %g\nn_epochs: %d\npatience: "
        "%d\nmin_delta: %g\ndevice: %s\nddp: %s\n",
        estimator->name, summary, criterion ? lk_criterion_type(criterion) : "as in the run before",
        optimizer ? lk_optimizer_name(optimizer) : "as in the run before",
        scheduler ? lk_scheduler_name(scheduler) : "as in the run before", config->lr, config->min_lr,
        config->n_epochs, config->patience, config->min_delta, config->device, config->ddp ? "on" : "off");
    lk_text_free(summary);
    return text ? lki_write_file_atomic(path, text, strlen(text)) : LK_ERR_NOMEM;
}

/* ---- The run ---- */

/* The parts that the config did not bring. A second run goes on with those of the first. */
static lk_status make_parts(lk_estimator *estimator)
{
    lk_estimator_config *config = &estimator->config;
    if (estimator->has_parts) return LK_OK;
    if (!config->criterion) config->criterion = lki_field_loss();
    if (!config->optimizer) config->optimizer = lk_adam(.lr = config->lr);
    if (!config->scheduler)
        config->scheduler = lk_reduce_lr_on_plateau(.patience = config->patience, .min_lr = config->min_lr);
    return config->criterion && config->optimizer && config->scheduler ? LK_OK : lki_last_status();
}

/* The estimator's own callback and those that it was made with. */
static lk_status gather_callbacks(lk_estimator *estimator, lk_callback **callbacks, int *count)
{
    callbacks[0] = lk_callback_create(&keeper_ops, estimator, LK_ORDER_EXTERNAL);
    if (!callbacks[0]) return lki_last_status();
    *count = 1;
    for (int i = 0; i < estimator->callback_count; i++) callbacks[(*count)++] = estimator->callbacks[i];
    estimator->callback_count = 0;
    return LK_OK;
}

/* What lk_train was handed is the runner's now. A backend that never called it leaves all as it was. */
static void settle_ownership(lk_estimator *estimator, lk_callback *const *callbacks, int count)
{
    lk_estimator_config *config = &estimator->config;
    if (estimator->runner->model != estimator->model) {
        lk_callback_free(callbacks[0]);
        for (int i = 1; i < count; i++) estimator->callbacks[estimator->callback_count++] = callbacks[i];
        return;
    }
    config->criterion = NULL;
    config->optimizer = NULL;
    config->scheduler = NULL;
    estimator->runner_owns_model = estimator->has_parts = true;
    for (int i = 0; i < estimator->loader_count; i++) lki_free((char *)estimator->loaders[i].key);
    estimator->loader_count = 0;
}

static lk_status run(lk_estimator *estimator)
{
    lk_callback *callbacks[LK_MAX_TRAINING_CALLBACKS];
    lk_estimator_config *config = &estimator->config;
    int count = 0;
    LKI_TRY(gather_callbacks(estimator, callbacks, &count));
    lk_training training = {.runner = estimator->runner,
                            .config = config,
                            .loaders = {estimator->loaders, estimator->loader_count},
                            .model = estimator->model,
                            .criterion = config->criterion,
                            .optimizer = config->optimizer,
                            .scheduler = config->scheduler,
                            .callbacks = {callbacks, count}};
    lk_status status = (config->backend ? config->backend : lk_supervised_backend)(&training);
    settle_ownership(estimator, callbacks, count);
    return status;
}

/* Kernel ridge regression has no epochs and no ranks: one process solves it. */
static lk_status solve(lk_estimator *estimator)
{
    const lk_estimator_config *config = &estimator->config;
    LKI_TRY(lki_estimator_track_begin(estimator, NULL));
    if (config->verbose) {
        lki_fprintf(stdout, "%s: device cpu, DDP off%s, alpha %g\n", estimator->name,
                    config->ddp ? " (one process solves it)" : "", config->alpha);
        fflush(stdout);
    }
    LKI_TRY(lki_krr_fit(estimator));
    LKI_TRY(lki_history_add(estimator, estimator->loaders[0].key, estimator->loss));
    if (!estimator->tracking) return LK_OK;
    return lki_tracking_metric(estimator->tracking, "train - loss", estimator->loss, estimator->epoch);
}

lk_status lk_estimator_train(lk_estimator *estimator)
{
    if (!estimator) return lki_last_status();
    if (estimator->loader_count == 0)
        return lki_fail(LK_ERR_INVALID, "%s: there are no loaders to train from: lk_estimator_set_loaders",
                        estimator->name);
    double start = lki_now_s();
    lk_status status;
    if (estimator->is_krr) {
        status = lki_estimator_is_master() ? solve(estimator) : LK_OK;
    } else {
        if (!estimator->runner && !(estimator->runner = lk_supervised_runner())) return LK_ERR_NOMEM;
        LKI_TRY(make_parts(estimator));
        if (lki_estimator_is_master()) {
            LKI_TRY(lki_logdir_wipe(estimator->config.logdir));
            LKI_TRY(write_details(estimator));
        }
        status = run(estimator);
    }
    estimator->runtime_s = lki_now_s() - start;
    if (!status) return lki_estimator_track_end(estimator, LK_OK);
    lki_error first = {0};
    lki_error_keep(&first, status);
    lki_estimator_track_end(estimator, status);
    return lki_fail_prefix(lki_error_restore(&first), "%s", estimator->name);
}
