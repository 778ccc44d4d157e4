/* Times of a batch: waiting for data, computing, all of it, and samples a second, averaged over a loader. */
#include "base/clock.h"
#include "base/status.h"
#include "callbacks/callbacks.h"

typedef struct timer_context {
    double previous_s, start_s; /* the end of the batch before; the start of this one's work */
    double data_s, model_s;     /* sums over the loader */
    int64_t batches, samples;
} timer_context;

static lk_status loader_start(lk_callback *callback, lk_runner *runner)
{
    (void)runner;
    *(timer_context *)callback->context = (timer_context){.previous_s = lki_now_s()};
    return LK_OK;
}

static lk_status batch_start(lk_callback *callback, lk_runner *runner)
{
    timer_context *context = callback->context;
    (void)runner;
    context->start_s = lki_now_s();
    context->data_s += context->start_s - context->previous_s;
    return LK_OK;
}

static lk_status batch_end(lk_callback *callback, lk_runner *runner)
{
    timer_context *context = callback->context;
    context->previous_s = lki_now_s();
    context->model_s += context->previous_s - context->start_s;
    context->batches++;
    context->samples += runner->batch_size;
    return LK_OK;
}

static lk_status loader_end(lk_callback *callback, lk_runner *runner)
{
    timer_context *context = callback->context;
    double batches = context->batches ? (double)context->batches : 1,
           all_s = context->data_s + context->model_s;
    LKI_TRY(lk_metrics_set(runner->loader_metrics, "_timer/_fps",
                           all_s > 0 ? (double)context->samples / all_s : 0));
    LKI_TRY(lk_metrics_set(runner->loader_metrics, "_timer/batch_time", all_s / batches));
    LKI_TRY(lk_metrics_set(runner->loader_metrics, "_timer/data_time", context->data_s / batches));
    return lk_metrics_set(runner->loader_metrics, "_timer/model_time", context->model_s / batches);
}

static lk_status start(lk_callback *callback, lk_runner *runner)
{
    (void)callback;
    return lk_runner_declare_metric(runner, "_timer/*");
}

lk_callback *lk_timer_callback(void)
{
    static const lk_callback_ops ops = {
        LK_SIZE(lk_callback_ops),      .name = "Timer",
        .on_experiment_start = start,  .on_loader_start = loader_start,
        .on_batch_start = batch_start, .on_batch_end = batch_end,
        .on_loader_end = loader_end,   .free = lki_callback_free_context,
    };
    return lki_callback_new(&ops, sizeof(timer_context), LK_ORDER_METRIC + 1);
}
