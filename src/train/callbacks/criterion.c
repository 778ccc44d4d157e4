/* The loss of each batch, averaged over the samples of a loader: NAME, NAME/mean, NAME/std. */
#include "base/memory.h"
#include "base/status.h"
#include "train/callbacks/callbacks.h"

typedef struct criterion_context {
    char *metric_key;
    lk_metric *metric; /* made when the run starts: only then is the name known */
} criterion_context;

static const char *name_of(const criterion_context *context, const lk_runner *runner)
{
    return context->metric_key ? context->metric_key : runner->loss_key;
}

static lk_status start(lk_callback *callback, lk_runner *runner)
{
    criterion_context *context = callback->context;
    if (!context->metric) context->metric = lk_mean_metric(name_of(context, runner));
    return context->metric ? lki_run_register_metric(runner, context->metric) : lki_last_status();
}

static lk_status reset(lk_callback *callback, lk_runner *runner)
{
    criterion_context *context = callback->context;
    if (!runner->run->resuming_loader) lk_metric_reset(context->metric);
    return LK_OK;
}

static lk_status update(lk_callback *callback, lk_runner *runner)
{
    criterion_context *context = callback->context;
    const char *name = name_of(context, runner);
    if (!lk_metrics_has(runner->batch_metrics, name)) return LK_OK;
    return lki_run_add_loss(runner, name, context->metric);
}

static lk_status report(lk_callback *callback, lk_runner *runner)
{
    criterion_context *context = callback->context;
    lk_metric_values values;
    LKI_TRY(lk_metric_compute(context->metric, &values));
    for (int i = 0; i < values.count; i++)
        LKI_TRY(lk_metrics_set(runner->loader_metrics, values.items[i].name, values.items[i].value));
    return LK_OK;
}

static lk_status save_state(lk_callback *callback, lk_state_dict *state, const char *prefix)
{
    return lki_metric_save(((criterion_context *)callback->context)->metric, state, prefix);
}

static lk_status load_state(lk_callback *callback, const lk_state_dict *state, const char *prefix)
{
    return lki_metric_load(((criterion_context *)callback->context)->metric, state, prefix);
}

static void free_context(lk_callback *callback)
{
    criterion_context *context = callback->context;
    lk_metric_free(context->metric);
    lki_free(context->metric_key);
    lki_free(context);
}

lk_callback *lk_criterion_callback_create(lk_criterion_callback_options options)
{
    static const lk_callback_ops ops = {
        .name = "Criterion",
        .on_experiment_start = start,
        .on_loader_start = reset,
        .on_batch_end = update,
        .on_loader_end = report,
        .save_state = save_state,
        .load_state = load_state,
        .free = free_context,
    };
    lk_callback *callback = lki_callback_new(&ops, sizeof(criterion_context), LK_ORDER_METRIC);
    if (!callback) return NULL;
    criterion_context *context = callback->context;
    callback->may_lag = true;
    context->metric_key = lki_strdup(options.metric_key);
    if (options.metric_key && !context->metric_key) {
        lk_callback_free(callback);
        return NULL;
    }
    return callback;
}
