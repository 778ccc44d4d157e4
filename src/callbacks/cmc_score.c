/* How well embeddings find their own class again: the metric of src/metric/matching.h, fed with every batch.
 */
#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "callbacks/callbacks.h"
#include "metric/matching.h"
#include "resume/metric_state.h"
#include "run/batch_tensor.h"

#include <string.h>

typedef struct cmc_context {
    lk_metric *metric;
    char *embeddings_key, *labels_key, *is_query_key, *cids_key; /* NULL: the runner's; no cameras */
} cmc_context;

static lk_status start(lk_callback *callback, lk_runner *runner)
{
    cmc_context *context = callback->context;
    LKI_TRY(lki_metric_names_declare(runner, context->metric->prefix, "cmc*", NULL));
    return lki_run_register_metric(runner, context->metric);
}

static lk_status reset(lk_callback *callback, lk_runner *runner)
{
    cmc_context *context = callback->context;
    if (!runner->run->resuming.inside_loader) lk_metric_reset(context->metric);
    return LK_OK;
}

static lk_status find(lk_runner *runner, const char *key, lk_tensor *view, const lk_tensor **out)
{
    const lk_tensor *tensor = lki_run_tensor(runner, key);
    if (!tensor)
        return lki_fail(LK_ERR_NOT_FOUND,
                        "CMCScore: the batch has neither a field nor an output named \"%s\"", key);
    *out = lki_callback_counted(runner, tensor, view);
    return LK_OK;
}

static lk_status update(lk_callback *callback, lk_runner *runner)
{
    const cmc_context *context = callback->context;
    lki_matching_batch batch = {0};
    lk_tensor views[4];
    LKI_TRY(find(runner, context->embeddings_key ? context->embeddings_key : runner->output_key, &views[0],
                 &batch.embeddings));
    LKI_TRY(find(runner, context->labels_key ? context->labels_key : runner->target_key, &views[1],
                 &batch.labels));
    LKI_TRY(find(runner, context->is_query_key, &views[2], &batch.is_query));
    if (context->cids_key) LKI_TRY(find(runner, context->cids_key, &views[3], &batch.cameras));
    return lki_matching_update(context->metric, &batch);
}

static lk_status report(lk_callback *callback, lk_runner *runner)
{
    cmc_context *context = callback->context;
    return lki_metric_report(context->metric, runner->loader_metrics);
}

static lk_status save_state(lk_callback *callback, lk_state_dict *state, const char *prefix)
{
    return lki_metric_save(((cmc_context *)callback->context)->metric, state, prefix);
}

static lk_status load_state(lk_callback *callback, const lk_state_dict *state, const char *prefix)
{
    return lki_metric_restore(((cmc_context *)callback->context)->metric, state, prefix);
}

static void free_context(lk_callback *callback)
{
    cmc_context *context = callback->context;
    lk_metric_free(context->metric);
    lki_free(context->embeddings_key);
    lki_free(context->labels_key);
    lki_free(context->is_query_key);
    lki_free(context->cids_key);
    lki_free(context);
}

static lk_status fill(cmc_context *context, const lk_cmc_score_callback_options *options)
{
    lk_metric_options metric = {LK_SIZE(lk_metric_options), .prefix = options->prefix,
                                .suffix = options->suffix};
    const struct {
        char **copy;
        const char *given;
    } keys[] = {{&context->embeddings_key, options->embeddings_key},
                {&context->labels_key, options->labels_key},
                {&context->is_query_key, options->is_query_key ? options->is_query_key : "is_query"},
                {&context->cids_key, options->cids_key}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        *keys[i].copy = lki_strdup(keys[i].given);
        if (keys[i].given && !*keys[i].copy) return LK_ERR_NOMEM;
    }
    memcpy(metric.topk, options->topk, sizeof metric.topk);
    context->metric = lki_matching_metric(options->cids_key != NULL, &metric);
    return context->metric ? LK_OK : lki_last_status();
}

lk_callback *lk_cmc_score_callback_with(const lk_cmc_score_callback_options *given)
{
    LKI_TAKE(lk_cmc_score_callback_options, options, given, NULL);
    static const lk_callback_ops ops = {
        LK_SIZE(lk_callback_ops), .name = "CMCScore",       .on_experiment_start = start,
        .on_loader_start = reset, .on_batch_end = update,   .on_loader_end = report,
        .save_state = save_state, .load_state = load_state, .free = free_context,
    };
    lk_callback *callback = lki_callback_new(&ops, sizeof(cmc_context), LK_ORDER_METRIC);
    if (!callback) return NULL;
    callback->may_lag = true;
    callback->declares_metrics = true;
    if (fill(callback->context, &options) == LK_OK) return callback;
    lk_callback_free(callback);
    return NULL;
}
