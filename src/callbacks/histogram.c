/* How the weights of each parameter are spread, and their gradients if wanted, for the loggers that can draw
 * it. Rank 0 alone looks: the ranks' weights are equal, and so are averaged gradients. */
#include "base/arguments.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "callbacks/callbacks.h"
#include "callbacks/gradients.h"
#include "data/loader.h"
#include "graph/home.h"
#include "nn/module.h"
#include "tensor/element.h"

#include <math.h>

enum { DEFAULT_BINS = 64, MOST_BINS = 1024 };

typedef struct histogram_context {
    int every, bins;
    bool weights, gradients;
    lk_param_list params; /* of the model; empty before the start */
    double *limits, *counts;
} histogram_context;

/* Gradients are shown of a loader's last update, which a stream does not announce. */
static lk_status check_streams(const histogram_context *context, const lk_runner *runner)
{
    const lki_run_loaders *loaders = &runner->run->loaders;
    for (int i = 0; context->gradients && i < loaders->count; i++)
        if (strncmp(loaders->items[i].key, "train", strlen("train")) == 0)
            LKI_TRY(lki_loader_check_length(loaders->items[i].loader, "Histogram: gradients"));
    return LK_OK;
}

static lk_status start(lk_callback *callback, lk_runner *runner)
{
    histogram_context *context = callback->context;
    if (!runner->model) return lki_fail(LK_ERR_INVALID, "Histogram needs the run's model");
    LKI_TRY(check_streams(context, runner));
    return lki_module_params(runner->model, &context->params);
}

static bool is_due(const histogram_context *context, const lk_runner *runner)
{
    return runner->is_master && runner->is_train_loader &&
           (runner->epoch_step % context->every == 0 || runner->epoch_step == 1);
}

/* ---- Counting ---- */

static void find_range(lk_histogram *h, lk_dtype dtype, const void *data, int64_t count, double scale)
{
    for (int64_t i = 0; i < count; i++) {
        double value = lki_load(dtype, data, i) / scale;
        if (!isfinite(value)) continue;
        if (h->count == 0 || value < h->min) h->min = value;
        if (h->count == 0 || value > h->max) h->max = value;
        h->sum += value;
        h->sum_squares += value * value;
        h->count++;
    }
}

/* Buckets of one width, of which the last one ends at the largest number. */
static void fill_buckets(histogram_context *context, lk_histogram *h, lk_dtype dtype, const void *data,
                         int64_t count, double scale)
{
    double width = (h->max - h->min) / context->bins;
    h->bucket_count = width > 0 ? context->bins : 1;
    for (int b = 0; b < h->bucket_count; b++) {
        context->limits[b] = h->min + (b + 1) * width;
        context->counts[b] = 0;
    }
    context->limits[h->bucket_count - 1] = h->max;
    for (int64_t i = 0; i < count; i++) {
        double value = lki_load(dtype, data, i) / scale;
        if (!isfinite(value)) continue;
        int b = width > 0 ? (int)((value - h->min) / width) : 0;
        context->counts[b < h->bucket_count ? b : h->bucket_count - 1]++;
    }
}

/* `scale` is what the numbers were multiplied with. */
static lk_status report(histogram_context *context, lk_runner *runner, const char *kind, const char *path,
                        lk_dtype dtype, const void *data, int64_t count, double scale)
{
    lk_histogram h = {.limits = context->limits, .counts = context->counts};
    LKI_SCOPED char *tag = lki_format("%s/%s", kind, path);
    if (!tag) return LK_ERR_NOMEM;
    find_range(&h, dtype, data, count, scale);
    if (h.count == 0) return LK_OK;
    fill_buckets(context, &h, dtype, data, count, scale);
    return lki_report_histogram(runner, tag, &h);
}

/* ---- When ---- */

static lk_status loader_end(lk_callback *callback, lk_runner *runner)
{
    histogram_context *context = callback->context;
    if (!context->weights || !is_due(context, runner)) return LK_OK;
    for (int i = 0; i < context->params.count; i++) {
        const lk_named_param *named = &context->params.items[i];
        const lk_tensor *value = named->param->value;
        if (named->param->is_buffer || !lk_dtype_is_float(value->dtype)) continue;
        LKI_TRY(lki_param_pull(named->param));
        LKI_TRY(report(context, runner, "weights", named->path, value->dtype, value->data,
                       lk_tensor_count(value), 1));
    }
    return LK_OK;
}

/* The last update of the loader. */
static lk_status backward(lk_callback *callback, lk_runner *runner)
{
    histogram_context *context = callback->context;
    const lk_step *step = runner->step;
    void *data;
    double scale;
    int64_t left = runner->loader_batch_len - runner->loader_batch_step;
    if (!step || !step->update_due || !is_due(context, runner)) return LK_OK;
    if (left >= (step->options.accumulation_steps > 1 ? step->options.accumulation_steps : 1)) return LK_OK;
    LKI_TRY(lki_gradients(runner->step, &data, &scale));
    if (!data) return LK_OK;
    for (int i = 0; i < step->flat.slice_count; i++) {
        const lki_slice *slice = &step->flat.slices[i];
        const char *begin = (const char *)data + (size_t)slice->offset * lk_dtype_nbytes(step->flat.dtype);
        LKI_TRY(
            report(context, runner, "gradients", slice->path, step->flat.dtype, begin, slice->count, scale));
    }
    return LK_OK;
}

/* ---- Its life ---- */

static void free_context(lk_callback *callback)
{
    histogram_context *context = callback->context;
    lk_param_list_free(&context->params);
    lki_free(context->limits);
    lki_free(context->counts);
    lki_callback_free_context(callback);
}

lk_callback *lk_histogram_callback_with(const lk_histogram_callback_options *given)
{
    LKI_TAKE(lk_histogram_callback_options, options, given, NULL);
    static const lk_callback_ops weights = {LK_SIZE(lk_callback_ops), .name = "Histogram",
                                            .on_experiment_start = start, .on_loader_end = loader_end,
                                            .free = free_context};
    static const lk_callback_ops both = {LK_SIZE(lk_callback_ops),     .name = "Histogram",
                                         .on_experiment_start = start, .on_backward = backward,
                                         .on_loader_end = loader_end,  .free = free_context};
    if (options.every < 0)
        return lki_fail_null(LK_ERR_INVALID, "Histogram: every is %d, but must be at least 1", options.every);
    if (options.bins < 0 || options.bins > MOST_BINS)
        return lki_fail_null(LK_ERR_INVALID, "Histogram: bins is %d, but must be from 1 to %d", options.bins,
                             MOST_BINS);
    if (options.no_weights && !options.gradients)
        return lki_fail_null(LK_ERR_INVALID, "Histogram: neither weights nor gradients are wanted");
    /* Behind the weight decay, as the norm of the gradients. */
    lk_callback *callback = lki_callback_new(options.gradients ? &both : &weights, sizeof(histogram_context),
                                             LK_ORDER_BACKWARD + 1);
    if (!callback) return NULL;
    histogram_context *context = callback->context;
    context->every = options.every ? options.every : 1;
    context->bins = options.bins ? options.bins : DEFAULT_BINS;
    context->weights = !options.no_weights;
    context->gradients = options.gradients;
    context->limits = LKI_NEW_ARRAY(double, context->bins);
    context->counts = LKI_NEW_ARRAY(double, context->bins);
    if (context->limits && context->counts) return callback;
    lk_callback_free(callback);
    return NULL;
}
