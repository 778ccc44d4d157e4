/* Metrics of the outputs: reset when a loader starts, fed with every batch, reported when it ends. */
#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "callbacks/callbacks.h"
#include "metric/metric.h"
#include "resume/metric_state.h"
#include "run/batch_tensor.h"

#include <string.h>

typedef struct metric_context {
    lk_metric *metric;
    char *input_key, *target_key; /* NULL: the runner's */
    bool no_log_on_batch;
    lki_metric_publish publish; /* NULL: the values are all there is */
    void *publish_context;
} metric_context;

/* What the metrics of the library report, each name followed by a class, a k or "/std". */
static const char *const *names_of(const lk_metric *metric)
{
    static const struct {
        const char *kind, *names[5];
    } known[] = {{"accuracy", {"accuracy*"}},
                 {"multilabel accuracy", {"accuracy*"}},
                 {"precision, recall, f1", {"precision*", "recall*", "f1*", "support*"}},
                 {"multilabel precision, recall, f1", {"precision*", "recall*", "f1*", "support*"}},
                 {"auc", {"auc*"}},
                 {"confusion matrix", {NULL}},
                 {"r2squared", {"r2squared*"}},
                 {"mse", {"mse*"}},
                 {"mae", {"mae*"}},
                 {"iou", {"iou*"}},
                 {"dice", {"dice*"}},
                 {"hitrate", {"hitrate*"}},
                 {"mrr", {"mrr*"}},
                 {"map", {"map*"}},
                 {"ndcg", {"ndcg*"}},
                 {"trevsky", {"trevsky*"}},
                 {"average_precision", {"average_precision*"}},
                 {"cohen_kappa", {"cohen_kappa"}},
                 {"matthews", {"matthews"}},
                 {"calibration_error", {"ece", "mce"}},
                 {"perplexity", {"perplexity"}},
                 {"bleu", {"bleu"}}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(metric->kind->name, known[i].kind) == 0) return known[i].names;
    return NULL;
}

static lk_status start(lk_callback *callback, lk_runner *runner)
{
    const metric_context *context = callback->context;
    const char *const *names = names_of(context->metric);
    for (; names && *names; names++)
        LKI_TRY(lki_metric_names_declare(runner, context->metric->prefix, *names, NULL));
    return lki_run_register_metric(runner, context->metric);
}

static lk_status reset(lk_callback *callback, lk_runner *runner)
{
    metric_context *context = callback->context;
    if (!runner->run->resuming.inside_loader) lk_metric_reset(context->metric);
    return LK_OK;
}

static lk_status no_tensor(const char *key)
{
    return lki_fail(LK_ERR_NOT_FOUND, "metric: the batch has neither a field nor an output named \"%s\"",
                    key);
}

const lk_tensor *lki_callback_counted(const lk_runner *runner, const lk_tensor *tensor, lk_tensor *view)
{
    if (!tensor || tensor->shape.rank < 1 || tensor->shape.dim[0] != runner->batch_size) return tensor;
    *view = *tensor;
    view->shape.dim[0] = runner->counted_batch_size;
    return view;
}

static lk_status put_batch_values(lk_metric *metric, lk_metrics *out)
{
    lk_metric_values values;
    LKI_TRY(lk_metric_compute_batch(metric, &values));
    for (int i = 0; i < values.count; i++)
        LKI_TRY(lk_metrics_set(out, values.items[i].name, values.items[i].value));
    return LK_OK;
}

/* A metric of the user's own may do without targets; not without those that it names. */
static lk_status update(lk_callback *callback, lk_runner *runner)
{
    metric_context *context = callback->context;
    const char *output_key = context->input_key ? context->input_key : runner->output_key;
    const char *target_key = context->target_key ? context->target_key : runner->target_key;
    bool needs_targets = context->target_key || lki_metric_wants_targets(context->metric);
    lk_tensor views[2];
    const lk_tensor *outputs = lki_run_tensor(runner, output_key);
    if (!outputs) return no_tensor(output_key);
    const lk_tensor *targets =
        needs_targets ? lki_run_tensor(runner, target_key) : lki_batch_get(runner->batch, target_key);
    if (!targets && needs_targets) return no_tensor(target_key);
    if (runner->counted_batch_size != runner->batch_size) {
        outputs = lki_callback_counted(runner, outputs, &views[0]);
        targets = lki_callback_counted(runner, targets, &views[1]);
    }
    LKI_TRY(lk_metric_update(context->metric, outputs, targets));
    bool wanted = runner->run->reporting.wants_batch_metrics && !context->no_log_on_batch;
    if (!wanted || runner->counted_batch_size == 0) return LK_OK;
    return put_batch_values(context->metric, runner->batch_metrics);
}

static lk_status report(lk_callback *callback, lk_runner *runner)
{
    metric_context *context = callback->context;
    LKI_TRY(lki_metric_report(context->metric, runner->loader_metrics));
    return context->publish ? context->publish(runner, context->metric, context->publish_context) : LK_OK;
}

static lk_status save_state(lk_callback *callback, lk_state_dict *state, const char *prefix)
{
    return lki_metric_save(((metric_context *)callback->context)->metric, state, prefix);
}

static lk_status load_state(lk_callback *callback, const lk_state_dict *state, const char *prefix)
{
    return lki_metric_restore(((metric_context *)callback->context)->metric, state, prefix);
}

static void free_context(lk_callback *callback)
{
    metric_context *context = callback->context;
    lk_metric_free(context->metric);
    lki_free(context->input_key);
    lki_free(context->target_key);
    lki_free(context->publish_context);
    lki_free(context);
}

lk_callback *lki_metric_callback_new(lk_metric *metric, const lk_metric_callback_options *options, int order,
                                     lki_metric_publish publish, void *publish_context)
{
    static const lk_callback_ops ops = {
        LK_SIZE(lk_callback_ops), .name = "Metric",         .on_experiment_start = start,
        .on_loader_start = reset, .on_batch_end = update,   .on_loader_end = report,
        .save_state = save_state, .load_state = load_state, .free = free_context,
    };
    lk_callback *callback = metric ? lki_callback_new(&ops, sizeof(metric_context), order) : NULL;
    if (!callback) {
        lk_metric_free(metric);
        lki_free(publish_context);
        return NULL;
    }
    metric_context *context = callback->context;
    callback->may_lag = true;
    callback->declares_metrics = names_of(metric) != NULL;
    *context = (metric_context){.metric = metric, .publish = publish, .publish_context = publish_context};
    context->no_log_on_batch = options->no_log_on_batch;
    context->input_key = lki_strdup(options->input_key);
    context->target_key = lki_strdup(options->target_key);
    if ((options->input_key && !context->input_key) || (options->target_key && !context->target_key)) {
        lk_callback_free(callback);
        return NULL;
    }
    return callback;
}

lk_status lki_metric_callback_use(lk_callback *callback, const char *input_key, const char *target_key,
                                  bool no_log_on_batch)
{
    if (callback->ops->free != free_context)
        return lki_fail(LK_ERR_INVALID, "metric: %s is no metric of outputs and targets",
                        callback->ops->name);
    metric_context *context = callback->context;
    char *input = lki_strdup(input_key), *target = lki_strdup(target_key);
    lki_free(context->input_key);
    lki_free(context->target_key);
    context->input_key = input;
    context->target_key = target;
    context->no_log_on_batch = no_log_on_batch;
    return (input_key && !input) || (target_key && !target) ? LK_ERR_NOMEM : LK_OK;
}

lk_callback *lk_metric_callback(lk_metric *metric, const char *input_key, const char *target_key)
{
    lk_metric_callback_options options = {LK_SIZE(lk_metric_callback_options), .input_key = input_key,
                                          .target_key = target_key};
    return lki_metric_callback_new(metric, &options, LK_ORDER_METRIC, NULL, NULL);
}

lk_metric_options lki_metric_callback_options(const lk_metric_callback_options *options)
{
    lk_metric_options made = {LK_SIZE(lk_metric_options),
                              .prefix = options->prefix,
                              .suffix = options->suffix,
                              .num_classes = options->num_classes,
                              .threshold = options->threshold,
                              .from_logits = options->from_logits,
                              .zero_division = options->zero_division,
                              .compute_per_class_metrics = options->compute_per_class_metrics,
                              .class_names = options->class_names,
                              .class_weights = options->class_weights,
                              .normalize = options->normalize,
                              .num_bins = options->num_bins,
                              .ignore_index = options->ignore_index,
                              .alpha = options->alpha,
                              .beta = options->beta,
                              .max_order = options->max_order,
                              .smooth = options->smooth};
    memcpy(made.topk, options->topk, sizeof made.topk);
    return made;
}

#define DEFINE_METRIC_CALLBACK(name)                                                                         \
    lk_callback *lk_##name##_callback_with(const lk_metric_callback_options *given)                          \
    {                                                                                                        \
        LKI_TAKE(lk_metric_callback_options, options, given, NULL);                                          \
        lk_metric_options metric = lki_metric_callback_options(&options);                                    \
        return lki_metric_callback_new(lk_##name##_metric_with(&metric), &options, LK_ORDER_METRIC, NULL,    \
                                       NULL);                                                                \
    }

DEFINE_METRIC_CALLBACK(accuracy)
DEFINE_METRIC_CALLBACK(multilabel_accuracy)
DEFINE_METRIC_CALLBACK(precision_recall_f1_support)
DEFINE_METRIC_CALLBACK(multilabel_precision_recall_f1_support)
DEFINE_METRIC_CALLBACK(auc)
DEFINE_METRIC_CALLBACK(r2)
DEFINE_METRIC_CALLBACK(mse)
DEFINE_METRIC_CALLBACK(mae)
DEFINE_METRIC_CALLBACK(iou)
DEFINE_METRIC_CALLBACK(dice)
DEFINE_METRIC_CALLBACK(hitrate)
DEFINE_METRIC_CALLBACK(mrr)
DEFINE_METRIC_CALLBACK(map)
DEFINE_METRIC_CALLBACK(ndcg)
DEFINE_METRIC_CALLBACK(trevsky)
DEFINE_METRIC_CALLBACK(average_precision)
DEFINE_METRIC_CALLBACK(cohen_kappa)
DEFINE_METRIC_CALLBACK(matthews)
DEFINE_METRIC_CALLBACK(calibration_error)
DEFINE_METRIC_CALLBACK(perplexity)
DEFINE_METRIC_CALLBACK(bleu)
