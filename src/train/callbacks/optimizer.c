/* How updates are made (accumulation, clipping), and the learning rate and momentum among the metrics. */
#include "base/status.h"
#include "train/callbacks/callbacks.h"

#include <stdio.h>

static lk_status start(lk_callback *callback, lk_runner *runner)
{
    const lk_optimizer_callback_options *options = callback->context;
    lk_step_options *step = &runner->run->step_options;
    /* What one leaves open another may say: Catalyst clips in one callback and accumulates in the other. */
    if (options->accumulation_steps) step->accumulation_steps = options->accumulation_steps;
    if (options->clip_norm > 0) step->clip_norm = options->clip_norm;
    if (options->clip_value > 0) step->clip_value = options->clip_value;
    return LK_OK;
}

/* Those of the first group, as Catalyst does; the rates of all of them if there are several. */
static lk_status put_numbers(lk_metrics *metrics, const lk_optimizer *optimizer)
{
    int groups = lk_optimizer_group_count(optimizer);
    LKI_TRY(lk_metrics_set(metrics, "lr", lk_optimizer_lr(optimizer, 0)));
    LKI_TRY(lk_metrics_set(metrics, "momentum", lk_optimizer_momentum(optimizer, 0)));
    for (int i = 0; groups > 1 && i < groups; i++) {
        char name[64];
        snprintf(name, sizeof name, "lr/group_%02d", i);
        LKI_TRY(lk_metrics_set(metrics, name, lk_optimizer_lr(optimizer, i)));
    }
    return LK_OK;
}

static lk_status report_batch(lk_callback *callback, lk_runner *runner)
{
    (void)callback;
    if (!runner->is_train_loader || !runner->optimizer || !runner->run->wants_batch_metrics) return LK_OK;
    return put_numbers(runner->batch_metrics, runner->optimizer);
}

static lk_status report_loader(lk_callback *callback, lk_runner *runner)
{
    (void)callback;
    if (!runner->is_train_loader || !runner->optimizer) return LK_OK;
    return put_numbers(runner->loader_metrics, runner->optimizer);
}

lk_callback *lk_optimizer_callback_create(lk_optimizer_callback_options options)
{
    static const lk_callback_ops ops = {
        .name = "Optimizer",
        .on_experiment_start = start,
        .on_batch_end = report_batch,
        .on_loader_end = report_loader,
        .free = lki_callback_free_context,
    };
    if (options.accumulation_steps < 0 || options.clip_norm < 0 || options.clip_value < 0)
        return lki_fail_null(LK_ERR_INVALID,
                             "OptimizerCallback: accumulation_steps and clipping must not be negative");
    lk_callback *callback = lki_callback_new(&ops, sizeof options, LK_ORDER_OPTIMIZER);
    if (!callback) return NULL;
    *(lk_optimizer_callback_options *)callback->context = options;
    callback->may_lag = true; /* who changes the numbers between batches does not */
    return callback;
}
