/* Torchbearer's running mean: a metric of the batches, averaged over the last ones of them. */
#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "callbacks/callbacks.h"

#include <string.h>

typedef struct running_mean {
    char *metric_key, *name; /* "loss", "running_loss" */
    int window, every;
    lk_tensor *values; /* f64 (window): the last values, the place of number i is i % window */
    int64_t count;     /* of batches since the loader began */
    double mean;       /* as of the last `every`-th batch */
} running_mean;

static lk_status start(lk_callback *callback, lk_runner *runner)
{
    runner->run->reporting.wants_batch_metrics = true; /* what it averages is among them */
    return lk_runner_declare_metric(runner, ((running_mean *)callback->context)->name);
}

static lk_status reset(lk_callback *callback, lk_runner *runner)
{
    running_mean *own = callback->context;
    if (!runner->run->resuming.inside_loader) own->count = 0;
    return LK_OK;
}

/* Summed from the oldest value to the newest. */
static double mean_of(const running_mean *own)
{
    int64_t first = own->count > own->window ? own->count - own->window : 0;
    const double *values = own->values->data;
    double sum = 0;
    for (int64_t i = first; i < own->count; i++) sum += values[i % own->window];
    return sum / (double)(own->count - first);
}

static lk_status batch_end(lk_callback *callback, lk_runner *runner)
{
    running_mean *own = callback->context;
    if (!lk_metrics_has(runner->batch_metrics, own->metric_key))
        return lki_fail(LK_ERR_NOT_FOUND, "RunningMean: a batch of loader \"%s\" has no metric \"%s\"",
                        runner->loader_key, own->metric_key);
    ((double *)own->values->data)[own->count % own->window] =
        lk_metrics_get(runner->batch_metrics, own->metric_key);
    own->count++;
    if (own->count == 1 || own->count % own->every == 0) own->mean = mean_of(own);
    return lk_metrics_set(runner->batch_metrics, own->name, own->mean);
}

/* The mean of the ranks, each of which has seen its own batches. */
static lk_status loader_end(lk_callback *callback, lk_runner *runner)
{
    const running_mean *own = callback->context;
    double sums[2] = {own->count ? mean_of(own) : 0, own->count > 0};
    LKI_TRY(lk_runner_all_reduce(runner, sums, 2, LK_F64, LK_REDUCE_SUM));
    return sums[1] > 0 ? lk_metrics_set(runner->loader_metrics, own->name, sums[0] / sums[1]) : LK_OK;
}

static lk_status save_state(lk_callback *callback, lk_state_dict *state, const char *prefix)
{
    const running_mean *own = callback->context;
    LKI_SCOPED char *values = lki_format("%svalues", prefix), *count = lki_format("%scount", prefix);
    LKI_SCOPED char *mean = lki_format("%smean", prefix);
    if (!values || !count || !mean) return LK_ERR_NOMEM;
    LKI_TRY(lk_state_dict_put(state, values, lk_tensor_view(own->values)));
    LKI_TRY(lk_state_dict_put_i64(state, count, own->count));
    return lk_state_dict_put_f64(state, mean, own->mean);
}

static lk_status load_state(lk_callback *callback, const lk_state_dict *state, const char *prefix)
{
    running_mean *own = callback->context;
    LKI_SCOPED char *values = lki_format("%svalues", prefix), *count = lki_format("%scount", prefix);
    LKI_SCOPED char *mean = lki_format("%smean", prefix);
    if (!values || !count || !mean) return LK_ERR_NOMEM;
    LKI_TRY(lk_state_dict_copy_to(state, values, own->values));
    LKI_TRY(lk_state_dict_get_i64(state, count, &own->count));
    return lk_state_dict_get_f64(state, mean, &own->mean);
}

static void free_context(lk_callback *callback)
{
    running_mean *own = callback->context;
    lki_free(own->metric_key);
    lki_free(own->name);
    lk_tensor_free(own->values);
    lki_free(own);
}

lk_callback *lk_running_mean_callback_with(const lk_running_mean_callback_options *given)
{
    LKI_TAKE(lk_running_mean_callback_options, options, given, NULL);
    static const lk_callback_ops ops = {
        LK_SIZE(lk_callback_ops), .name = "RunningMean",     .on_experiment_start = start,
        .on_loader_start = reset, .on_batch_end = batch_end, .on_loader_end = loader_end,
        .save_state = save_state, .load_state = load_state,  .free = free_context,
    };
    const char *key = options.metric_key ? options.metric_key : "loss";
    if (options.batch_size < 0 || options.step_size < 0)
        return lki_fail_null(LK_ERR_INVALID, "RunningMean: batch_size and step_size: expected at least 1");
    lk_callback *callback = lki_callback_new(&ops, sizeof(running_mean), LK_ORDER_EXTERNAL);
    if (!callback) return NULL;
    running_mean *own = callback->context;
    own->window = options.batch_size ? options.batch_size : 50;
    own->every = options.step_size ? options.step_size : 10;
    own->metric_key = lki_strdup(key);
    own->name = lki_format("running_%s", key);
    own->values = lk_tensor_create(LK_F64, LK_SHAPE(own->window));
    if (own->metric_key && own->name && own->values) return callback;
    lk_callback_free(callback);
    return NULL;
}
