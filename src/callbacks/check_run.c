/* A few batches of each loader and a few epochs: does the run go through at all? */
#include "base/status.h"
#include "callbacks/callbacks.h"

typedef struct check_context {
    int batch_count, epoch_count;
} check_context;

static lk_status start(lk_callback *callback, lk_runner *runner)
{
    const check_context *context = callback->context;
    runner->run->loaders.batch_limit = context->batch_count;
    if (runner->num_epochs > context->epoch_count) runner->num_epochs = context->epoch_count;
    return LK_OK;
}

lk_callback *lk_check_run_callback(int batch_count, int epoch_count)
{
    static const lk_callback_ops ops = {
        LK_SIZE(lk_callback_ops),
        .name = "CheckRun",
        .on_experiment_start = start,
        .free = lki_callback_free_context,
    };
    if (batch_count < 1 || epoch_count < 1)
        return lki_fail_null(LK_ERR_INVALID,
                             "CheckRunCallback: expected at least 1 batch and 1 epoch, found %d and %d",
                             batch_count, epoch_count);
    lk_callback *callback = lki_callback_new(&ops, sizeof(check_context), LK_ORDER_INTERNAL);
    if (!callback) return NULL;
    *(check_context *)callback->context = (check_context){batch_count, epoch_count};
    return callback;
}
