/* Loaders that run in every few epochs only. */
#include "base/memory.h"
#include "base/status.h"
#include "callbacks/callbacks.h"

#include <string.h>

typedef struct periodic_context {
    lk_loader_period *periods; /* their keys are copies */
    int count;
    lki_deciding decides; /* its texts are copies */
} periodic_context;

static lk_status choose(const periodic_context *context, lk_runner *runner)
{
    lki_run *run = runner->run;
    bool any = false;
    for (int i = 0; i < context->count; i++) {
        int64_t period = context->periods[i].period;
        lki_run_loader *loader =
            &run->loaders.items[lki_run_find_loader(&run->loaders, context->periods[i].loader_key)];
        loader->skip = period == 0 || runner->epoch_step % period != 0;
    }
    for (int i = 0; i < run->loaders.count; i++) any = any || !run->loaders.items[i].skip;
    if (any) return LK_OK;
    return lki_fail(
        LK_ERR_INVALID,
        "PeriodicLoaderCallback: no loader runs in epoch %lld: at least one must run in each epoch",
        (long long)runner->epoch_step);
}

/* Catalyst's callback is told a second time what decides in the run; both must say the same. */
static lk_status check_decides(const lki_deciding *decides, const lk_runner *runner)
{
    const char *loader = decides->loader_key, *metric = decides->metric_key;
    if (loader && strcmp(loader, runner->valid_loader) != 0)
        return lki_fail(LK_ERR_CONFIG,
                        "PeriodicLoaderCallback: valid_loader_key is \"%s\", but the run's valid_loader is "
                        "\"%s\": write valid_loader: %s in the call of train",
                        loader, runner->valid_loader, loader);
    if (metric && strcmp(metric, runner->valid_metric) != 0)
        return lki_fail(LK_ERR_CONFIG,
                        "PeriodicLoaderCallback: valid_metric_key is \"%s\", but the run's valid_metric is "
                        "\"%s\": write valid_metric: %s in the call of train",
                        metric, runner->valid_metric, metric);
    if (decides->says_minimize && decides->minimize != runner->minimize_valid_metric)
        return lki_fail(
            LK_ERR_CONFIG,
            "PeriodicLoaderCallback: minimize differs from the run's: write minimize_valid_metric: %s "
            "in the call of train",
            decides->minimize ? "y" : "n");
    return LK_OK;
}

/* Behind the checkpoint, so that a run that goes on inside an epoch knows which one. */
static lk_status start(lk_callback *callback, lk_runner *runner)
{
    const periodic_context *context = callback->context;
    for (int i = 0; i < context->count; i++)
        LKI_TRY(lki_run_check_loader(&runner->run->loaders, "PeriodicLoaderCallback",
                                     context->periods[i].loader_key));
    LKI_TRY(check_decides(&context->decides, runner));
    return runner->run->resuming.inside_epoch ? choose(context, runner) : LK_OK;
}

static lk_status epoch_start(lk_callback *callback, lk_runner *runner)
{
    return choose(callback->context, runner);
}

static void free_context(lk_callback *callback)
{
    periodic_context *context = callback->context;
    for (int i = 0; i < context->count; i++) lki_free((char *)context->periods[i].loader_key);
    lki_free(context->periods);
    lki_free((char *)context->decides.loader_key);
    lki_free((char *)context->decides.metric_key);
    lki_free(context);
}

lk_status lki_periodic_loader_expect(lk_callback *callback, const lki_deciding *decides)
{
    periodic_context *context = callback->context;
    context->decides = *decides;
    context->decides.loader_key = lki_strdup(decides->loader_key);
    context->decides.metric_key = lki_strdup(decides->metric_key);
    bool has_both = (!decides->loader_key || context->decides.loader_key) &&
                    (!decides->metric_key || context->decides.metric_key);
    return has_both ? LK_OK : LK_ERR_NOMEM;
}

lk_callback *lk_periodic_loader_callback_with(const lk_loader_period *periods, int count)
{
    static const lk_callback_ops ops = {
        LK_SIZE(lk_callback_ops),      .name = "PeriodicLoader", .on_experiment_start = start,
        .on_epoch_start = epoch_start, .free = free_context,
    };
    if (count < 1) return lki_fail_null(LK_ERR_INVALID, "PeriodicLoaderCallback: no loader is named");
    for (int i = 0; i < count; i++)
        if (periods[i].period < 0 || !periods[i].loader_key)
            return lki_fail_null(
                LK_ERR_INVALID,
                "PeriodicLoaderCallback: a loader's key and a period of 0 or more are needed");
    lk_callback *callback = lki_callback_new(&ops, sizeof(periodic_context), LK_ORDER_EXTERNAL);
    if (!callback) return NULL;
    periodic_context *context = callback->context;
    context->periods = LKI_NEW_ARRAY(lk_loader_period, count);
    for (; context->periods && context->count < count; context->count++) {
        char *key = lki_strdup(periods[context->count].loader_key);
        if (!key) break;
        context->periods[context->count] = (lk_loader_period){key, periods[context->count].period};
    }
    if (context->count < count) {
        lk_callback_free(callback);
        return NULL;
    }
    return callback;
}
