/* A trained model on a loader: its metrics, its predictions. */
#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "resume/model_state.h"
#include "run/fit_data.h"
#include "run/loop.h"
#include "run/run.h"

#include <lockstep/callback.h>

#include <string.h>

/* As lk_train knows them: a run of one loader that never trains. */
static lk_train_options as_run(const lk_named_loader *loader, const lk_evaluate_options *options)
{
    return *LK_OPTIONS(lk_train_options, .loaders = {loader, 1}, .callbacks = options->callbacks,
                       .model = options->model, .criterion = options->criterion, .seed = options->seed,
                       .device = options->device, .verbose = options->verbose, .no_checkpoints = true);
}

static lk_status set_up(lk_runner *runner, lk_train_options *run, const lk_evaluate_options *options)
{
    lki_distributed_alone(runner);
    runner->run->evaluating = true;
    LKI_TRY(lki_run_setup(runner, run));
    LKI_TRY(lki_run_open_engine(runner));
    runner->verbose = options->verbose;
    runner->epoch_step = 1;
    if (!options->resume) return LK_OK;
    lk_state_dict *state = lk_load_checkpoint(options->resume);
    if (!state) return lki_last_status();
    lk_status status = lki_model_restore(runner->model, state, options->resume);
    lk_state_dict_free(state);
    return status;
}

static lk_status evaluate(lk_runner *runner)
{
    LKI_TRY(lki_run_call_start(runner));
    LKI_TRY(lki_run_call(runner, LKI_MOMENT_epoch_start));
    LKI_TRY(lki_run_one_loader(runner, 0));
    LKI_TRY(lki_run_call(runner, LKI_MOMENT_epoch_end));
    return lki_run_call(runner, LKI_MOMENT_experiment_end);
}

lk_status lk_evaluate_loader_with(lk_runner *runner, lk_loader *loader, const lk_evaluate_options *given)
{
    lk_evaluate_options options;
    lk_status taken = lki_take(&options, sizeof options, given, "lk_evaluate_options");
    lk_named_loader named = {"valid", loader};
    lk_train_options run = as_run(&named, &options);
    LKI_TRY(lki_run_begin(runner, &run, taken));
    lk_status status = set_up(runner, &run, &options);
    if (!status) status = evaluate(runner);
    runner->run->running = false;
    return status;
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

static lk_status predict(lk_runner *runner, prediction_taker *taker)
{
    static const lk_callback_ops ops = {LK_SIZE(lk_callback_ops), .name = "Predict",
                                        .on_batch_end = hand_over};
    lk_callback *callback = lk_callback_create(&ops, taker, LK_ORDER_EXTERNAL);
    if (callback) callback->may_lag = callback->declares_metrics = true;
    LKI_TRY(lki_run_add_callback(runner, callback));
    LKI_TRY(lki_run_call_start(runner));
    return lki_run_one_loader(runner, 0);
}

lk_status lk_predict_loader_with(lk_runner *runner, lk_loader *loader, lk_take_prediction take, void *context,
                                 const lk_evaluate_options *given)
{
    lk_evaluate_options options;
    lk_status taken = lki_take(&options, sizeof options, given, "lk_evaluate_options");
    prediction_taker taker = {take, context};
    lk_named_loader named = {"infer", loader};
    lk_train_options run = as_run(&named, &options);
    LKI_TRY(lki_run_begin(runner, &run, taken));
    lk_status status = set_up(runner, &run, &options);
    if (!status) status = predict(runner, &taker);
    lki_run_teardown(runner); /* the taker lives on this stack */
    return status;
}

/* Converts what the model refuses as it is, as a run does with its data. */
static lk_status evaluate_batch(lk_runner *runner, const lk_tensor *features)
{
    lk_input input = {runner->input_key, features};
    lk_status status = lk_step_evaluate(runner->step, &input, 1);
    if (status != LK_ERR_DTYPE) return status;
    lk_tensor *fitted;
    LKI_TRY(lki_run_fit_input(runner, features, &fitted));
    if (fitted) input.tensor = fitted; /* else the same refusal again */
    status = lk_step_evaluate(runner->step, &input, 1);
    lk_tensor_free(fitted);
    return status;
}

lk_tensor *lk_predict_batch(lk_runner *runner, const lk_tensor *features)
{
    if (!runner->model) return lki_fail_null(LK_ERR_INVALID, "the runner has no model to predict with");
    if (!runner->engine) {
        runner->run->engine.handle = runner->engine = lk_engine_open("auto", NULL);
        if (!runner->engine) return NULL;
        strcpy(runner->run->engine.device, "auto");
    }
    if (lki_run_prepare_step(runner) || evaluate_batch(runner, features)) return NULL;
    const lk_tensor *output = lk_step_output(runner->step, runner->output_key);
    return output ? lk_tensor_clone(output) : NULL;
}
