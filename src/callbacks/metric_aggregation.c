/* One number of several metrics: their sum or mean, weighted or not, of every batch or of a whole loader. */
#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "callbacks/callbacks.h"
#include "resume/metric_state.h"

#include <math.h>
#include <string.h>

typedef struct aggregation_context {
    char *metric_key;
    char **names;    /* NULL: all of them */
    double *weights; /* one a name; NULL: all 1 */
    bool divides;    /* the mean modes */
    bool of_batches;
    lk_metric *metric; /* the batches' values over a loader; only where of_batches */
} aggregation_context;

static lk_status missing(const aggregation_context *context, const char *name)
{
    return lki_fail(LK_ERR_NOT_FOUND, "MetricAggregationCallback \"%s\": the %s reports no metric \"%s\"",
                    context->metric_key, context->of_batches ? "batch" : "loader", name);
}

/* sum(w x), divided by sum(w) for a mean. */
static lk_status aggregate(const aggregation_context *context, lk_metrics *metrics, double *out)
{
    double sum = 0, total = 0;
    if (context->names) {
        for (int i = 0; context->names[i]; i++) {
            double weight = context->weights ? context->weights[i] : 1;
            if (!lk_metrics_has(metrics, context->names[i])) return missing(context, context->names[i]);
            sum += weight * lk_metrics_get(metrics, context->names[i]);
            total += weight;
        }
    } else {
        for (int i = 0; i < lk_metrics_count(metrics); i++) {
            if (strcmp(lk_metrics_name(metrics, i), context->metric_key) == 0) continue;
            sum += lk_metrics_value(metrics, i);
            total += 1;
        }
    }
    if (total == 0)
        return lki_fail(LK_ERR_INVALID, "MetricAggregationCallback \"%s\": nothing to aggregate",
                        context->metric_key);
    *out = context->divides ? sum / total : sum;
    return LK_OK;
}

static lk_status start(lk_callback *callback, lk_runner *runner)
{
    aggregation_context *context = callback->context;
    if (!context->of_batches) return lk_runner_declare_metric(runner, context->metric_key);
    lki_sum sum = {context->metric_key, context->names, context->weights, context->divides};
    runner->run->reporting.wants_batch_metrics = true;
    LKI_TRY(lki_callback_declare_mean(runner, context->metric_key));
    LKI_TRY(lki_objective_add_sum(runner, sum));
    return lki_run_register_metric(runner, context->metric);
}

static lk_status batch_end(lk_callback *callback, lk_runner *runner)
{
    aggregation_context *context = callback->context;
    double value;
    if (!context->of_batches) return LK_OK;
    LKI_TRY(aggregate(context, runner->batch_metrics, &value));
    LKI_TRY(lk_metrics_set(runner->batch_metrics, context->metric_key, value));
    return lk_metric_update_value(context->metric, value, runner->counted_batch_size);
}

static lk_status loader_end(lk_callback *callback, lk_runner *runner)
{
    aggregation_context *context = callback->context;
    double value;
    if (!context->of_batches) {
        LKI_TRY(aggregate(context, runner->loader_metrics, &value));
        return lk_metrics_set(runner->loader_metrics, context->metric_key, value);
    }
    return lki_metric_report(context->metric, runner->loader_metrics);
}

static lk_status save_state(lk_callback *callback, lk_state_dict *state, const char *prefix)
{
    aggregation_context *context = callback->context;
    return context->metric ? lki_metric_save(context->metric, state, prefix) : LK_OK;
}

static lk_status load_state(lk_callback *callback, const lk_state_dict *state, const char *prefix)
{
    aggregation_context *context = callback->context;
    return context->metric ? lki_metric_restore(context->metric, state, prefix) : LK_OK;
}

static void free_context(lk_callback *callback)
{
    aggregation_context *context = callback->context;
    lk_metric_free(context->metric);
    lki_names_free(context->names);
    lki_free(context->weights);
    lki_free(context->metric_key);
    lki_free(context);
}

static lk_status check(const lk_metric_aggregation_callback_options *options, const char *mode,
                       const char *scope)
{
    bool weighted = strncmp(mode, "weighted_", 9) == 0;
    const char *plain = weighted ? mode + 9 : mode;
    if (!options->metric_key)
        return lki_fail(LK_ERR_INVALID, "MetricAggregationCallback: metric_key is missing");
    if (strcmp(plain, "sum") != 0 && strcmp(plain, "mean") != 0)
        return lki_fail(LK_ERR_INVALID,
                        "MetricAggregationCallback: mode is sum, mean, weighted_sum or weighted_mean, not "
                        "\"%s\"",
                        mode);
    if (strcmp(scope, "batch") != 0 && strcmp(scope, "loader") != 0)
        return lki_fail(LK_ERR_INVALID, "MetricAggregationCallback: scope is batch or loader, not \"%s\"",
                        scope);
    if (weighted && (!options->metrics || !options->weights))
        return lki_fail(LK_ERR_INVALID, "MetricAggregationCallback: %s needs metrics and weights", mode);
    if (!weighted && options->weights)
        return lki_fail(LK_ERR_INVALID, "MetricAggregationCallback: %s takes no weights: write weighted_%s",
                        mode, mode);
    if (options->metrics && !options->metrics[0])
        return lki_fail(LK_ERR_INVALID, "MetricAggregationCallback: metrics: expected at least one name");
    for (int i = 0; weighted && options->metrics[i]; i++)
        if (!isfinite(options->weights[i]))
            return lki_fail(LK_ERR_INVALID, "MetricAggregationCallback: the weight of \"%s\" is %g",
                            options->metrics[i], options->weights[i]);
    return LK_OK;
}

static lk_status fill(aggregation_context *context, const lk_metric_aggregation_callback_options *options,
                      const char *mode, const char *scope)
{
    context->divides = strstr(mode, "mean") != NULL;
    context->of_batches = strcmp(scope, "batch") == 0;
    context->metric_key = lki_strdup(options->metric_key);
    if (!context->metric_key) return LK_ERR_NOMEM;
    LKI_TRY(lki_names_copy(&context->names, options->metrics));
    if (strncmp(mode, "weighted_", 9) == 0) {
        int count = 0;
        while (options->metrics[count]) count++;
        context->weights = LKI_NEW_ARRAY(double, count + 1);
        if (!context->weights) return LK_ERR_NOMEM;
        memcpy(context->weights, options->weights, sizeof *context->weights * (size_t)count);
    }
    if (context->of_batches && !(context->metric = lk_mean_metric(context->metric_key)))
        return lki_last_status();
    return LK_OK;
}

lk_callback *lk_metric_aggregation_callback_with(const lk_metric_aggregation_callback_options *given)
{
    LKI_TAKE(lk_metric_aggregation_callback_options, options, given, NULL);
    static const lk_callback_ops ops = {
        LK_SIZE(lk_callback_ops),  .name = "MetricAggregation", .on_experiment_start = start,
        .on_batch_end = batch_end, .on_loader_end = loader_end, .save_state = save_state,
        .load_state = load_state,  .free = free_context,
    };
    const char *mode = options.mode ? options.mode : "mean", *scope = options.scope ? options.scope : "batch";
    if (check(&options, mode, scope)) return NULL;
    lk_callback *callback = lki_callback_new(&ops, sizeof(aggregation_context), LK_ORDER_AGGREGATION);
    if (!callback) return NULL;
    callback->may_lag = true;
    if (fill(callback->context, &options, mode, scope)) {
        lk_callback_free(callback);
        return NULL;
    }
    return callback;
}
