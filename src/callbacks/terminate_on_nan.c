/* Ends the run in order where the loss or a metric of a batch is not a number. A loss that is not finite is
 * found before the update: the weights stay as they were. */
#include "base/log.h"
#include "base/status.h"
#include "callbacks/callbacks.h"

#include <math.h>

static lk_status start(lk_callback *callback, lk_runner *runner)
{
    (void)callback;
    runner->run->batch.nan_ends_run = true;
    return LK_OK;
}

static lk_status batch_end(lk_callback *callback, lk_runner *runner)
{
    (void)callback;
    for (int i = 0; i < lk_metrics_count(runner->batch_metrics); i++) {
        if (!isnan(lk_metrics_value(runner->batch_metrics, i)) || runner->need_early_stop) continue;
        lk_status status = lki_fail(LK_ERR_NAN, "%s is not a number in epoch %lld, %s batch %lld",
                                    lk_metrics_name(runner->batch_metrics, i), (long long)runner->epoch_step,
                                    runner->loader_key, (long long)runner->loader_batch_step);
        if (runner->world_size > 1) return status; /* the other ranks would wait for this one */
        lki_log(LKI_LOG_WARNING, "the run ends: %s", lk_error());
        runner->need_early_stop = runner->need_loader_stop = true;
    }
    return LK_OK;
}

lk_callback *lk_terminate_on_nan_callback(void)
{
    static const lk_callback_ops ops = {
        LK_SIZE(lk_callback_ops),
        .name = "TerminateOnNan",
        .on_experiment_start = start,
        .on_batch_end = batch_end,
    };
    return lk_callback_create(&ops, NULL, LK_ORDER_EXTERNAL);
}
