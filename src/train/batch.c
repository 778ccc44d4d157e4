/* One batch of supervised training: the batch's fields go through the step, the loss into the batch's
 * metrics. */
#include "train/run.h"

#include "base/status.h"

#include <string.h>

lk_status lki_run_prepare_step(lk_runner *runner)
{
    if (runner->step) return LK_OK;
    lk_step_options options = runner->run->step_options;
    options.model = runner->model;
    options.criterion = runner->criterion;
    options.optimizer = runner->optimizer;
    options.engine = runner->engine;
    options.input_key = runner->input_key;
    options.output_key = runner->output_key;
    options.target_key = runner->target_key;
    options.loss_key = runner->loss_key;
    runner->step = lk_step_create(options);
    return runner->step ? LK_OK : lki_last_status();
}

static int collect_inputs(const lk_batch *batch, lk_input *inputs)
{
    for (int i = 0; i < batch->field_count; i++)
        inputs[i] = (lk_input){batch->fields[i].name, &batch->fields[i].tensor};
    return batch->field_count;
}

static bool somebody_looks_inside(const lki_run *run)
{
    return run->has_listener[LKI_MOMENT_forward] || run->has_listener[LKI_MOMENT_criterion] ||
           run->has_listener[LKI_MOMENT_backward] || run->has_listener[LKI_MOMENT_step];
}

/* The same work as lk_step_train, with Torchbearer's moments between its parts. */
static lk_status run_in_parts(lk_runner *runner, const lk_input *inputs, int count, bool training)
{
    LKI_TRY(lk_step_begin(runner->step, inputs, count, training));
    LKI_TRY(lk_step_forward(runner->step));
    LKI_TRY(lki_run_call(runner, LKI_MOMENT_forward));
    LKI_TRY(lk_step_criterion(runner->step));
    LKI_TRY(lki_run_call(runner, LKI_MOMENT_criterion));
    if (!training) return LK_OK;
    LKI_TRY(lk_step_backward(runner->step));
    LKI_TRY(lki_run_call(runner, LKI_MOMENT_backward));
    LKI_TRY(lk_step_update(runner->step));
    return lki_run_call(runner, LKI_MOMENT_step);
}

lk_status lk_runner_supervised_batch(lk_runner *runner, const lk_batch *batch)
{
    lk_input inputs[LK_MAX_FIELDS];
    int count = collect_inputs(batch, inputs);
    bool training = runner->is_train_loader && runner->optimizer;
    LKI_TRY(lki_run_prepare_step(runner));
    if (somebody_looks_inside(runner->run))
        LKI_TRY(run_in_parts(runner, inputs, count, training));
    else if (training)
        LKI_TRY(lk_step_train(runner->step, inputs, count));
    else
        LKI_TRY(lk_step_evaluate(runner->step, inputs, count));
    if (!lk_step_has_loss(runner->step)) return LK_OK;
    return lk_metrics_set(runner->batch_metrics, runner->loss_key, lk_step_loss(runner->step));
}

const lk_tensor *lk_runner_tensor(lk_runner *runner, const char *key)
{
    lk_tensor *field = runner->batch ? lk_batch_get(runner->batch, key) : NULL;
    if (field) return field;
    return runner->step ? lk_step_output(runner->step, key) : NULL;
}
