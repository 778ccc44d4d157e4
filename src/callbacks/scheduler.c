/* Moves the scheduler: after every training batch, or at the end of the epoch, with a metric where it wants
 * one. */
#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "callbacks/callbacks.h"
#include "optim/scheduler.h"

#include <string.h>

typedef struct scheduler_context {
    bool every_batch, mode_given;
    char *loader_key, *metric_key;
} scheduler_context;

/* Who counts what among a schedule and its parts; NULL: nobody. */
typedef struct counters {
    const char *batches, *epochs;
} counters;

/* One-cycle and cyclic schedules are made for batches; PyTorch's documentation steps them so. Those that warm
 * up count whatever the schedule after them does. */
static void add_counters(counters *counters, const lk_scheduler *scheduler)
{
    const char *name = lk_scheduler_name(scheduler);
    if (strcmp(name, "OneCycleLR") == 0 || strcmp(name, "CyclicLR") == 0)
        counters->batches = name;
    else if (!scheduler->part_count && strcmp(name, "LinearLR") != 0 && strcmp(name, "ConstantLR") != 0)
        counters->epochs = name;
    for (int i = 0; i < scheduler->part_count; i++) add_counters(counters, scheduler->parts[i]);
}

static lk_status choose_mode(scheduler_context *context, const lk_scheduler *scheduler)
{
    counters counters = {0};
    if (context->mode_given) return LK_OK;
    add_counters(&counters, scheduler);
    context->every_batch = counters.batches != NULL;
    if (!counters.batches || !counters.epochs) return LK_OK;
    return lki_fail(LK_ERR_INVALID,
                    "SchedulerCallback: in this %s %s counts batches and %s epochs: say which with mode, "
                    "\"batch\" or \"epoch\"",
                    lk_scheduler_name(scheduler), counters.batches, counters.epochs);
}

static lk_status start(lk_callback *callback, lk_runner *runner)
{
    scheduler_context *context = callback->context;
    if (!runner->scheduler) return lki_fail(LK_ERR_INVALID, "SchedulerCallback: the run has no scheduler");
    LKI_TRY(choose_mode(context, runner->scheduler));
    if (context->every_batch && lk_scheduler_needs_metric(runner->scheduler))
        return lki_fail(LK_ERR_INVALID,
                        "SchedulerCallback: %s looks at the epoch's metric and cannot step every batch",
                        lk_scheduler_name(runner->scheduler));
    callback->may_lag = !context->every_batch;
    if (!lk_scheduler_needs_metric(runner->scheduler)) return LK_OK;
    return lki_metric_names_watch(runner, "SchedulerCallback", context->loader_key, context->metric_key);
}

static lk_status batch_end(lk_callback *callback, lk_runner *runner)
{
    scheduler_context *context = callback->context;
    return context->every_batch && runner->is_train_loader ? lk_scheduler_step(runner->scheduler) : LK_OK;
}

static lk_status epoch_end(lk_callback *callback, lk_runner *runner)
{
    scheduler_context *context = callback->context;
    if (context->every_batch) return LK_OK;
    if (!lk_scheduler_needs_metric(runner->scheduler)) return lk_scheduler_step(runner->scheduler);
    double metric;
    const char *loader = context->loader_key ? context->loader_key : runner->valid_loader;
    if (!lk_runner_loader_metrics(runner, loader) && lki_run_find_loader(&runner->run->loaders, loader) >= 0)
        return LK_OK; /* that loader rested in this epoch */
    if (!lki_callback_metric(runner, context->loader_key, context->metric_key, &metric))
        return lki_callback_no_metric(runner, "SchedulerCallback", context->loader_key, context->metric_key);
    return lk_scheduler_step_metric(runner->scheduler, metric);
}

static void free_context(lk_callback *callback)
{
    scheduler_context *context = callback->context;
    lki_free(context->loader_key);
    lki_free(context->metric_key);
    lki_free(context);
}

lk_callback *lk_scheduler_callback_with(const lk_scheduler_callback_options *given)
{
    LKI_TAKE(lk_scheduler_callback_options, options, given, NULL);
    static const lk_callback_ops ops = {
        LK_SIZE(lk_callback_ops),  .name = "Scheduler",       .on_experiment_start = start,
        .on_batch_end = batch_end, .on_epoch_end = epoch_end, .free = free_context,
    };
    if (options.mode && strcmp(options.mode, "batch") != 0 && strcmp(options.mode, "epoch") != 0)
        return lki_fail_null(LK_ERR_INVALID, "SchedulerCallback: mode is \"batch\" or \"epoch\", not \"%s\"",
                             options.mode);
    lk_callback *callback = lki_callback_new(&ops, sizeof(scheduler_context), LK_ORDER_SCHEDULER);
    if (!callback) return NULL;
    scheduler_context *context = callback->context;
    context->mode_given = options.mode != NULL;
    context->every_batch = options.mode && strcmp(options.mode, "batch") == 0;
    context->loader_key = lki_strdup(options.loader_key);
    context->metric_key = lki_strdup(options.metric_key);
    if ((options.loader_key && !context->loader_key) || (options.metric_key && !context->metric_key)) {
        lk_callback_free(callback);
        return NULL;
    }
    return callback;
}
