/* One batch of supervised training: the batch's fields go through the step, the loss into the batch's
 * metrics. */
#include "run/batch.h"

#include "base/log.h"
#include "base/status.h"
#include "base/trace.h"
#include "metric/mean.h"
#include "resume/kept_optimizer.h"
#include "run/batch_tensor.h"
#include "run/run.h"
#include "step/step.h"

#include <math.h>
#include <string.h>

static bool same_scaling(const lk_step_options *a, const lk_step_options *b)
{
    return a->scaler.init_scale == b->scaler.init_scale &&
           a->scaler.growth_factor == b->scaler.growth_factor &&
           a->scaler.backoff_factor == b->scaler.backoff_factor &&
           a->scaler.growth_interval == b->scaler.growth_interval;
}

/* Evaluations, and predictions outside a run: they do not train, and need no parameter that could be. */
static bool only_looks(const lk_runner *runner)
{
    return runner->run->evaluating || !runner->run->running;
}

/* Whether the step was compiled for what the runner has now: a second lk_train may have changed it. */
static bool step_is_current(const lk_runner *runner)
{
    const lk_step_options *made = &runner->step->options, *wanted = &runner->run->batch.step_options;
    int made_every = made->accumulation_steps > 1 ? made->accumulation_steps : 1;
    int wanted_every = wanted->accumulation_steps > 1 ? wanted->accumulation_steps : 1;
    if (made->model != runner->model || made->criterion != runner->criterion) return false;
    if (!lki_objective_is_of(&runner->run->objective, made)) return false;
    if (only_looks(runner)) return true;
    if (!lki_run_has_its_shards(runner, runner->step)) return false;
    return made->optimizer == runner->optimizer && made_every == wanted_every &&
           made->clip_norm == wanted->clip_norm && made->clip_value == wanted->clip_value &&
           made->precision == wanted->precision && same_scaling(made, wanted);
}

lk_status lki_run_prepare_step(lk_runner *runner)
{
    if (runner->step && step_is_current(runner)) return LK_OK;
    LKI_TRY(lki_run_check_all_have_batches(runner));
    LKI_TRY(lki_objective_check_step(runner));
    LKI_TRY(lki_step_save_kept(&runner->step, &runner->run->batch.kept));
    lk_step_options options = runner->run->batch.step_options;
    options.struct_size = sizeof options;
    options.model = runner->model;
    options.criterion = runner->criterion;
    options.optimizer = only_looks(runner) ? NULL : runner->optimizer;
    options.engine = runner->engine;
    options.input_key = runner->input_key;
    options.output_key = runner->output_key;
    options.target_key = runner->target_key;
    options.loss_key = runner->loss_key;
    lki_objective_apply(runner, &options);
    runner->step = lk_step_with(&options);
    if (runner->step) LKI_TRY(lki_run_shard_step(runner, runner->step));
    return runner->step ? lki_step_restore_kept(runner->step, &runner->run->batch.kept) : lki_last_status();
}

/* The step was made for the most batches per update that the schedule has. */
static void follow_schedule(const lk_runner *runner)
{
    const lki_run_batch *batch = &runner->run->batch;
    int steps = batch->first_steps;
    if (!batch->change_count || !runner->is_train_loader) return;
    for (int i = 0; i < batch->change_count && batch->changes[i].epoch <= runner->epoch_step; i++)
        steps = batch->changes[i].steps;
    runner->step->update.accumulation_steps = steps;
}

/* What nobody has gathered yet the step gathers itself, from its own copy. */
static lk_status collect_inputs(lk_step *step, const lk_batch *batch, lk_input *inputs)
{
    for (int i = 0; i < batch->field_count; i++) {
        const lk_batch_field *field = &batch->fields[i];
        inputs[i] = (lk_input){field->name, &field->tensor};
        if (field->rows) LKI_TRY(lk_step_take_rows(step, field->name, field->rows, batch->indices));
    }
    return LK_OK;
}

static bool is_training(const lk_runner *runner)
{
    return runner->is_train_loader && runner->optimizer;
}

/* Callbacks may freeze and thaw parameters while the run goes on. Only a batch that trains heeds it, and all
 * ranks have those together: a new step is made by all of them. */
static bool trains_what_it_should(const lk_runner *runner)
{
    return !is_training(runner) || lki_flat_is_current(&runner->step->flat, &runner->step->params);
}

static bool somebody_looks_inside(const lki_run *run)
{
    const lki_moment_listeners *at = run->listeners.at;
    return at[LKI_MOMENT_forward].count || at[LKI_MOMENT_criterion].count || at[LKI_MOMENT_backward].count ||
           at[LKI_MOMENT_step].count;
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
    LKI_TRY(lki_step_update(runner->step));
    return lki_run_call(runner, LKI_MOMENT_step);
}

static lk_status run_step(lk_runner *runner, const lk_input *inputs, int count)
{
    bool training = is_training(runner);
    if (somebody_looks_inside(runner->run)) return run_in_parts(runner, inputs, count, training);
    return training ? lki_step_train(runner->step, inputs, count)
                    : lk_step_evaluate(runner->step, inputs, count);
}

/* Nothing has been updated with it. Several ranks could not agree to stop here: there it stays a failure. */
static lk_status end_with_nan(lk_runner *runner)
{
    if (!runner->run->batch.nan_ends_run || lki_run_is_shared(runner)) return LK_ERR_NAN;
    lki_log(LKI_LOG_WARNING, "the run ends in epoch %lld, batch %lld: %s", (long long)runner->epoch_step,
            (long long)runner->loader_batch_step, lk_error());
    runner->need_early_stop = runner->need_loader_stop = true;
    return lk_metrics_set(runner->batch_metrics, lki_objective_key(&runner->run->objective, runner), NAN);
}

/* Evaluation knows the loss of each sample. Training pays nothing for it: on the host a cross entropy gives
 * it away. */
static lki_samples_wanted samples_of_pass(const lk_runner *runner)
{
    const lk_step *step = runner->step;
    if (!is_training(runner)) return LKI_SAMPLES_ALL;
    return step->backend->ops->on_host && step->options.precision == LK_F32 ? LKI_SAMPLES_FREE
                                                                            : LKI_SAMPLES_NONE;
}

/* A batch whose padding must not count has to know the loss of each sample, too. */
static void want_samples(lk_runner *runner, const lk_batch *batch)
{
    runner->step->samples = batch->padding ? LKI_SAMPLES_ALL : samples_of_pass(runner);
}

/* Whether all batches of this pass know their samples' losses, not only the padded one. */
static bool pass_knows_samples(const lk_runner *runner)
{
    lki_samples_wanted wanted = samples_of_pass(runner);
    return wanted == LKI_SAMPLES_ALL ||
           (wanted == LKI_SAMPLES_FREE &&
            runner->step->current->sample_rule.source == LKI_SAMPLES_LOG_PROBABILITIES);
}

/* The mean loss of the samples that count, for a pass whose other batches are known by their means only. */
static lk_status add_padded_batch(lk_metric *metric, const lki_sample_losses *losses)
{
    double sum = 0, weight = 0;
    for (int64_t i = 0; i < losses->count; i++) {
        sum += losses->sums[i];
        weight += losses->weights[i];
    }
    return weight != 0 ? lk_metric_update_value(metric, sum / weight, losses->count) : LK_OK;
}

/* A batch whose targets are all ignored has no mean: it is NaN, though its samples say 0 of 0. */
static bool same_number(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

lk_status lki_run_add_loss(lk_runner *runner, const char *name, lk_metric *metric)
{
    const lki_sample_losses *losses = NULL;
    double value = lk_metrics_get(runner->batch_metrics, name);
    const lk_step *step = runner->step;
    bool is_steps_own =
        step && step->has_loss && strcmp(name, step->options.loss_key) == 0 && same_number(step->loss, value);
    bool has_samples = is_steps_own && step->current->sample_rule.output;
    bool is_padded_alone = has_samples && !pass_knows_samples(runner), done = false;
    if (!has_samples || is_padded_alone) LKI_TRY(lki_run_add_shards(runner, name, value, metric, &done));
    if (done) return LK_OK;
    if (has_samples)
        LKI_TRY(lki_step_sample_losses(runner->step, runner->batch, runner->counted_batch_size, &losses));
    if (losses && losses->count && is_padded_alone) return add_padded_batch(metric, losses);
    if (losses && losses->count)
        return lki_mean_metric_add_samples(metric, losses->sums, losses->weights, losses->count);
    return lk_metric_update_value(metric, value, runner->counted_batch_size);
}

/* Squares of such a loss overflow in f32: nothing useful is learned from here on. PyTorch goes on without a
 * word; so does the run, but it says so once. */
static const double DIVERGED = 1e12;

static void warn_if_diverged(lk_runner *runner, double loss)
{
    lki_run *run = runner->run;
    if (!(fabs(loss) > DIVERGED) || run->batch.said_diverged || !runner->is_train_loader) return;
    run->batch.said_diverged = true;
    if (runner->is_master)
        lki_log(LKI_LOG_WARNING, "the loss is %g in epoch %lld, batch %lld: the training diverges; lr is %g",
                loss, (long long)runner->epoch_step, (long long)runner->loader_batch_step,
                runner->optimizer ? lk_optimizer_lr(runner->optimizer, 0) : 0);
}

static lk_status put_loss(lk_runner *runner, double loss)
{
    warn_if_diverged(runner, loss);
    return lk_metrics_set(runner->batch_metrics, lki_objective_key(&runner->run->objective, runner), loss);
}

/* What the batch has computed, into its metrics. */
static lk_status report_losses(lk_runner *runner)
{
    const lk_step *step = runner->step;
    if (step->has_loss) LKI_TRY(put_loss(runner, step->loss));
    return runner->run->objective.is_special ? lki_objective_report(runner) : LK_OK;
}

/* Buffers that only move along are rank 0's when a loader ends. Those that training reads must be so before
 * each batch, as PyTorch's DDP has them; then shards see the same numbers on any number of ranks. */
static bool shares_each_batch(const lk_runner *runner)
{
    const lk_step *step = runner->step;
    if (!step->replicas.comm || !is_training(runner)) return false;
    for (int i = 0; i < step->params.count; i++)
        if (step->params.items[i].param->steers) return true;
    return false;
}

lk_status lk_runner_supervised_batch(lk_runner *runner, const lk_batch *batch)
{
    lk_input inputs[LK_MAX_FIELDS];
    if (runner->step && !trains_what_it_should(runner))
        LKI_TRY(lki_step_save_kept(&runner->step, &runner->run->batch.kept));
    LKI_TRY(lki_run_prepare_step(runner));
    follow_schedule(runner);
    want_samples(runner, batch);
    if (shares_each_batch(runner)) LKI_TRY(lki_replicas_share_buffers(&runner->step->replicas));
    LKI_TRY(collect_inputs(runner->step, batch, inputs));
    LKI_TRY(lki_run_place_shards(runner, batch));
    if (runner->run->batch.restarts_groups && is_training(runner) && runner->loader_batch_step == 1)
        lki_update_restart(&runner->step->update);
    lk_status status = run_step(runner, inputs, batch->field_count);
    if (status) return status == LK_ERR_NAN ? end_with_nan(runner) : status;
    return report_losses(runner);
}

bool lki_run_may_launch_batch(lk_runner *runner, const lk_batch *batch)
{
    lk_input inputs[LK_MAX_FIELDS];
    if (!runner->step || !step_is_current(runner) || !trains_what_it_should(runner)) return false;
    if (shares_each_batch(runner)) return false;
    want_samples(runner, batch);
    for (int i = 0; i < batch->field_count; i++)
        inputs[i] = (lk_input){batch->fields[i].name, &batch->fields[i].tensor};
    return lki_step_may_launch(runner->step, inputs, batch->field_count, is_training(runner));
}

lk_status lki_run_launch_batch(lk_runner *runner, const lk_batch *batch)
{
    lk_input inputs[LK_MAX_FIELDS];
    int64_t begin_ns = lki_trace_begin();
    LKI_TRY(collect_inputs(runner->step, batch, inputs));
    LKI_TRY(lki_step_launch(runner->step, inputs, batch->field_count, is_training(runner)));
    lki_trace_end(LKI_TRACE_PROGRAM, "launch of the step", begin_ns);
    return LK_OK;
}

lk_status lki_run_land_batch(lk_runner *runner, bool *lost)
{
    int64_t begin_ns = lki_trace_begin();
    LKI_TRY(lki_step_land(runner->step, lost));
    lki_trace_end(LKI_TRACE_PROGRAM, "wait for the step", begin_ns);
    return *lost ? LK_OK : report_losses(runner);
}

lk_status lk_runner_put_tensor(lk_runner *runner, const char *key, const lk_tensor *tensor)
{
    lki_run *run = runner->run;
    int place = 0;
    while (place < run->batch.made_count && strcmp(run->batch.made[place].key, key) != 0) place++;
    if (place == LKI_MAX_MADE)
        return lki_fail(LK_ERR_INVALID, "callbacks may add at most %d tensors to a batch", LKI_MAX_MADE);
    if (place == run->batch.made_count) run->batch.made_count++;
    run->batch.made[place] = (lki_made){key, tensor};
    return LK_OK;
}

const lk_tensor *lk_runner_tensor(lk_runner *runner, const char *key)
{
    const lk_tensor *tensor = lki_run_made_or_field(runner, key);
    return tensor || !runner->step ? tensor : lk_step_output(runner->step, key);
}
