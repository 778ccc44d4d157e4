/* A metric that is a function of the outputs and targets of a batch; and metrics under the names of
 * Catalyst's callbacks for them. */
#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "callbacks/callbacks.h"
#include "resume/metric_state.h"
#include "run/batch_tensor.h"

typedef struct functional_metric {
    lk_metric *mean;
    char *name; /* with prefix and suffix */
    char *input_key, *target_key;
    lk_metric_function metric_fn;
    void *context;
    bool no_log_on_batch;
} functional_metric;

static lk_status start(lk_callback *callback, lk_runner *runner)
{
    functional_metric *own = callback->context;
    LKI_TRY(lki_callback_declare_mean(runner, own->name));
    return lki_run_register_metric(runner, own->mean);
}

static lk_status reset(lk_callback *callback, lk_runner *runner)
{
    if (!runner->run->resuming.inside_loader) lk_metric_reset(((functional_metric *)callback->context)->mean);
    return LK_OK;
}

static lk_status find(lk_runner *runner, const char *key, lk_tensor *view, const lk_tensor **out)
{
    const lk_tensor *tensor = lki_run_tensor(runner, key);
    if (!tensor)
        return lki_fail(LK_ERR_NOT_FOUND,
                        "FunctionalMetricCallback: the batch has neither a field nor an output named \"%s\"",
                        key);
    *out = lki_callback_counted(runner, tensor, view);
    return LK_OK;
}

/* Padding does not count. */
static lk_status update(lk_callback *callback, lk_runner *runner)
{
    functional_metric *own = callback->context;
    const lk_tensor *outputs, *targets;
    lk_tensor views[2];
    double value = 0;
    LKI_TRY(find(runner, own->input_key ? own->input_key : runner->output_key, &views[0], &outputs));
    LKI_TRY(find(runner, own->target_key ? own->target_key : runner->target_key, &views[1], &targets));
    if (runner->counted_batch_size == 0) return LK_OK;
    unsigned long said = lki_fail_count();
    LKI_TRY(lki_fail_if_silent(own->metric_fn(&value, outputs, targets, own->context), said, own->name,
                               "metric_fn"));
    LKI_TRY(lk_metric_update_value(own->mean, value, runner->counted_batch_size));
    return own->no_log_on_batch ? LK_OK : lk_metrics_set(runner->batch_metrics, own->name, value);
}

static lk_status report(lk_callback *callback, lk_runner *runner)
{
    return lki_metric_report(((functional_metric *)callback->context)->mean, runner->loader_metrics);
}

static lk_status save_state(lk_callback *callback, lk_state_dict *state, const char *prefix)
{
    return lki_metric_save(((functional_metric *)callback->context)->mean, state, prefix);
}

static lk_status load_state(lk_callback *callback, const lk_state_dict *state, const char *prefix)
{
    return lki_metric_restore(((functional_metric *)callback->context)->mean, state, prefix);
}

static void free_context(lk_callback *callback)
{
    functional_metric *own = callback->context;
    lk_metric_free(own->mean);
    lki_free(own->name);
    lki_free(own->input_key);
    lki_free(own->target_key);
    lki_free(own);
}

lk_callback *lk_functional_metric_callback_with(const lk_functional_metric_callback_options *given)
{
    LKI_TAKE(lk_functional_metric_callback_options, options, given, NULL);
    static const lk_callback_ops ops = {
        LK_SIZE(lk_callback_ops), .name = "FunctionalMetric", .on_experiment_start = start,
        .on_loader_start = reset, .on_batch_end = update,     .on_loader_end = report,
        .save_state = save_state, .load_state = load_state,   .free = free_context,
    };
    if (!options.metric_fn || !options.metric_key)
        return lki_fail_null(LK_ERR_INVALID,
                             "FunctionalMetricCallback: metric_fn and metric_key are required");
    lk_callback *callback = lki_callback_new(&ops, sizeof(functional_metric), LK_ORDER_METRIC);
    if (!callback) return NULL;
    functional_metric *own = callback->context;
    *own = (functional_metric){.metric_fn = options.metric_fn,
                               .context = options.context,
                               .no_log_on_batch = options.no_log_on_batch};
    own->name = lki_format("%s%s%s", options.prefix ? options.prefix : "", options.metric_key,
                           options.suffix ? options.suffix : "");
    own->mean = own->name ? lk_mean_metric(own->name) : NULL;
    own->input_key = lki_strdup(options.input_key);
    own->target_key = lki_strdup(options.target_key);
    bool lacks = (options.input_key && !own->input_key) || (options.target_key && !own->target_key);
    if (own->mean && !lacks) return callback;
    lk_callback_free(callback);
    return NULL;
}

static lk_callback *around(lk_metric *metric, const lk_batch_metric_callback_options *options, bool of_loader)
{
    lk_metric_callback_options keys = {LK_SIZE(lk_metric_callback_options), .input_key = options->input_key,
                                       .target_key = options->target_key,
                                       .no_log_on_batch = of_loader || options->no_log_on_batch};
    return lki_metric_callback_new(metric, &keys, LK_ORDER_METRIC, NULL, NULL);
}

lk_callback *lk_batch_metric_callback_with(lk_metric *metric, const lk_batch_metric_callback_options *given)
{
    LKI_TAKE(lk_batch_metric_callback_options, options, given, NULL);
    return around(metric, &options, false);
}

lk_callback *lk_loader_metric_callback(lk_metric *metric, const char *input_key, const char *target_key)
{
    lk_batch_metric_callback_options options = {LK_SIZE(lk_batch_metric_callback_options),
                                                .input_key = input_key, .target_key = target_key};
    return around(metric, &options, true);
}
