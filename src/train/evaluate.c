/* A trained model on a loader: its metrics, its predictions. */
#include "train/distributed.h"
#include "train/run.h"

#include "base/memory.h"
#include "base/status.h"

#include <lockstep/callback.h>

#include <string.h>

/* A run of one loader that never trains. Takes over loader and callbacks. */
static lk_status set_up(lk_runner *runner, lk_loader *loader, const char *key,
                        const lk_evaluate_options *options)
{
    lki_run_teardown(runner);
    lki_distributed_alone(runner);
    runner->run->evaluating = true;
    lk_named_loader named = {key, loader};
    lk_train_options train = {.loaders = {&named, 1},
                              .callbacks = options->callbacks,
                              .model = options->model,
                              .criterion = options->criterion,
                              .seed = options->seed,
                              .device = options->device,
                              .no_checkpoints = true};
    LKI_TRY(lki_run_setup(runner, &train));
    LKI_TRY(lki_run_open_engine(runner));
    runner->epoch_step = 1;
    if (!options->resume) return LK_OK;
    lk_state_dict *state = lk_load_safetensors(options->resume);
    if (!state) return lki_last_status();
    lk_status status = lki_model_load_state(runner->model, state, options->resume);
    lk_state_dict_free(state);
    return status;
}

lk_status lk_evaluate_loader_with(lk_runner *runner, lk_loader *loader, lk_evaluate_options options)
{
    LKI_TRY(set_up(runner, loader, "valid", &options));
    runner->verbose = options.verbose;
    LKI_TRY(lki_run_call(runner, LKI_MOMENT_experiment_start));
    LKI_TRY(lki_run_call(runner, LKI_MOMENT_epoch_start));
    LKI_TRY(lki_run_one_loader(runner, 0));
    LKI_TRY(lki_run_call(runner, LKI_MOMENT_epoch_end));
    return lki_run_call(runner, LKI_MOMENT_experiment_end);
}

typedef struct prediction_taker {
    lk_take_prediction take;
    void *context;
} prediction_taker;

static lk_status hand_over(lk_callback *callback, lk_runner *runner)
{
    prediction_taker *taker = callback->context;
    const lk_tensor *output = lk_runner_tensor(runner, runner->output_key);
    if (!output) return lki_last_status();
    return taker->take(output, runner->batch, taker->context);
}

lk_status lk_predict_loader_with(lk_runner *runner, lk_loader *loader, lk_take_prediction take, void *context,
                                 lk_evaluate_options options)
{
    static const lk_callback_ops ops = {.name = "Predict", .on_batch_end = hand_over};
    prediction_taker taker = {take, context};
    LKI_TRY(set_up(runner, loader, "infer", &options));
    lk_callback *callback = lk_callback_create(&ops, &taker, LK_ORDER_EXTERNAL);
    if (callback) callback->may_lag = true;
    LKI_TRY(lki_run_add_callback(runner, callback));
    LKI_TRY(lki_run_call(runner, LKI_MOMENT_experiment_start));
    lk_status status = lki_run_one_loader(runner, 0);
    lki_run_teardown(runner); /* the taker lives on this stack */
    return status;
}

lk_tensor *lk_predict_batch(lk_runner *runner, const lk_tensor *features)
{
    if (!runner->model) return lki_fail_null(LK_ERR_INVALID, "the runner has no model to predict with");
    if (!runner->engine) {
        runner->run->engine = runner->engine = lk_engine_open("auto", (lk_engine_options){0});
        if (!runner->engine) return NULL;
        strcpy(runner->run->engine_device, "auto");
    }
    lk_input input = {runner->input_key, features};
    if (lki_run_prepare_step(runner) || lk_step_evaluate(runner->step, &input, 1)) return NULL;
    const lk_tensor *output = lk_step_output(runner->step, runner->output_key);
    return output ? lk_tensor_clone(output) : NULL;
}
