/* The progress bar of each loader, on a terminal. */
#include "logger/progress.h"

#include "base/status.h"
#include "callbacks/callbacks.h"

#include <stdio.h>
#include <unistd.h>

static lk_status begin(lk_callback *callback, lk_runner *runner)
{
    char label[96];
    if (!runner->is_master) return LK_OK;
    snprintf(label, sizeof label, "%lld/%lld * Epoch (%s)", (long long)runner->epoch_step,
             (long long)runner->num_epochs, runner->loader_key);
    fflush(stdout);
    int fd = isatty(STDOUT_FILENO) ? STDOUT_FILENO : -1;
    lki_progress_begin(callback->context, fd, label, runner->loader_batch_len, runner->loss_key);
    if (fd < 0) lki_run_rest(runner, callback, LKI_MOMENT_batch_end);
    return LK_OK;
}

static lk_status update(lk_callback *callback, lk_runner *runner)
{
    lki_progress *progress = callback->context;
    if (progress->fd >= 0)
        lki_progress_update(progress, runner->loader_batch_step,
                            lk_metrics_get(runner->batch_metrics, runner->loss_key));
    return LK_OK;
}

static lk_status end(lk_callback *callback, lk_runner *runner)
{
    if (runner->is_master) lki_progress_end(callback->context);
    return LK_OK;
}

static lk_status exception(lk_callback *callback, lk_runner *runner)
{
    return runner->loader_key ? end(callback, runner) : LK_OK;
}

lk_callback *lk_progress_callback(void)
{
    static const lk_callback_ops ops = {
        LK_SIZE(lk_callback_ops),
        .name = "Progress",
        .on_loader_start = begin,
        .on_batch_end = update,
        .on_loader_end = end,
        .on_exception = exception,
        .free = lki_callback_free_context,
    };
    lk_callback *callback = lki_callback_new(&ops, sizeof(lki_progress), LK_ORDER_EXTERNAL);
    if (!callback) return NULL;
    ((lki_progress *)callback->context)->fd = -1;
    callback->may_lag = true;
    return callback;
}
