/* Which loss the backward half begins with, and how its gradients are clipped. */
#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "callbacks/callbacks.h"
#include "resume/metric_state.h"

typedef struct backward_context {
    double clip_norm, clip_value;
    char *metric_key; /* NULL: the runner's loss_key */
    bool logs;
    lk_metric *metric; /* the norm before clipping, "gradient/LOSS/norm"; made when the run starts */
    char *name;
} backward_context;

static lk_status start_log(backward_context *context, lk_runner *runner)
{
    if (!context->logs) return LK_OK;
    const char *loss = context->metric_key ? context->metric_key : runner->loss_key;
    if (!context->name) context->name = lki_format("gradient/%s/norm", loss);
    if (context->name && !context->metric) context->metric = lk_mean_metric(context->name);
    if (!context->metric) return LK_ERR_NOMEM;
    LKI_TRY(lki_callback_declare_mean(runner, context->name));
    return lki_run_register_metric(runner, context->metric);
}

static lk_status start(lk_callback *callback, lk_runner *runner)
{
    backward_context *context = callback->context;
    lk_step_options *step = &runner->run->batch.step_options;
    if (context->clip_norm > 0) step->clip_norm = context->clip_norm;
    if (context->clip_value > 0) step->clip_value = context->clip_value;
    LKI_TRY(lki_objective_minimize(runner, "BackwardCallback", context->metric_key));
    return start_log(context, runner);
}

static lk_status batch_end(lk_callback *callback, lk_runner *runner)
{
    backward_context *context = callback->context;
    if (!context->metric || !runner->is_train_loader || !runner->step) return LK_OK;
    double norm = lk_step_grad_norm(runner->step);
    LKI_TRY(lk_metrics_set(runner->batch_metrics, context->name, norm));
    return lk_metric_update_value(context->metric, norm, runner->counted_batch_size);
}

static lk_status loader_end(lk_callback *callback, lk_runner *runner)
{
    backward_context *context = callback->context;
    if (!context->metric || !runner->is_train_loader) return LK_OK;
    return lki_metric_report(context->metric, runner->loader_metrics);
}

static lk_status save_state(lk_callback *callback, lk_state_dict *state, const char *prefix)
{
    backward_context *context = callback->context;
    return context->metric ? lki_metric_save(context->metric, state, prefix) : LK_OK;
}

static lk_status load_state(lk_callback *callback, const lk_state_dict *state, const char *prefix)
{
    backward_context *context = callback->context;
    return context->metric ? lki_metric_restore(context->metric, state, prefix) : LK_OK;
}

static void free_context(lk_callback *callback)
{
    backward_context *context = callback->context;
    lk_metric_free(context->metric);
    lki_free(context->metric_key);
    lki_free(context->name);
    lki_free(context);
}

lk_callback *lk_backward_callback_with(const lk_backward_callback_options *given)
{
    LKI_TAKE(lk_backward_callback_options, options, given, NULL);
    static const lk_callback_ops ops = {
        LK_SIZE(lk_callback_ops),  .name = "Backward",          .on_experiment_start = start,
        .on_batch_end = batch_end, .on_loader_end = loader_end, .save_state = save_state,
        .load_state = load_state,  .free = free_context,
    };
    if (!(options.clip_norm >= 0) || !(options.clip_value >= 0))
        return lki_fail_null(LK_ERR_INVALID, "BackwardCallback: clipping must not be negative");
    if (options.log_gradient && !(options.clip_norm > 0))
        return lki_fail_null(
            LK_ERR_INVALID,
            "BackwardCallback: log_gradient reports the norm that clip_grad_norm_ measures: give "
            "it that grad_clip_fn, or use GradientNormCallback");
    lk_callback *callback = lki_callback_new(&ops, sizeof(backward_context), LK_ORDER_BACKWARD);
    if (!callback) return NULL;
    backward_context *context = callback->context;
    *context = (backward_context){.clip_norm = options.clip_norm,
                                  .clip_value = options.clip_value,
                                  .metric_key = lki_strdup(options.metric_key),
                                  .logs = options.log_gradient};
    callback->may_lag = !options.log_gradient;
    if (options.metric_key && !context->metric_key) {
        lk_callback_free(callback);
        return NULL;
    }
    return callback;
}
