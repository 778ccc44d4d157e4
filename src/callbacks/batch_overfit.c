/* The first batches of a loader over and over: every epoch sees the same samples in the same order. */
#include "base/memory.h"
#include "base/status.h"
#include "callbacks/callbacks.h"

#include <math.h>

typedef struct overfit_context {
    lk_loader_portion *portions; /* their keys are copies */
    int count;
} overfit_context;

static lk_status start(lk_callback *callback, lk_runner *runner)
{
    const overfit_context *context = callback->context;
    lki_run *run = runner->run;
    for (int i = 0; i < context->count; i++) {
        const char *key = context->portions[i].loader_key;
        LKI_TRY(lki_run_check_loader(&run->loaders, "BatchOverfitCallback", key));
        int index = lki_run_find_loader(&run->loaders, key);
        run->loaders.items[index].portion = context->portions[i].portion;
        run->loaders.items[index].repeat = true;
    }
    return LK_OK;
}

static void free_context(lk_callback *callback)
{
    overfit_context *context = callback->context;
    for (int i = 0; i < context->count; i++) lki_free((char *)context->portions[i].loader_key);
    lki_free(context->portions);
    lki_free(context);
}

lk_callback *lk_batch_overfit_callback_with(const lk_loader_portion *portions, int count)
{
    static const lk_callback_ops ops = {
        LK_SIZE(lk_callback_ops),
        .name = "BatchOverfit",
        .on_experiment_start = start,
        .free = free_context,
    };
    if (count < 1) return lki_fail_null(LK_ERR_INVALID, "BatchOverfitCallback: no loader is named");
    for (int i = 0; i < count; i++)
        if (!(portions[i].portion > 0) || isinf(portions[i].portion) || !portions[i].loader_key)
            return lki_fail_null(LK_ERR_INVALID, "BatchOverfitCallback: a loader's key and a number of "
                                                 "batches, or a share of them, are needed");
    lk_callback *callback = lki_callback_new(&ops, sizeof(overfit_context), LK_ORDER_INTERNAL);
    if (!callback) return NULL;
    overfit_context *context = callback->context;
    context->portions = LKI_NEW_ARRAY(lk_loader_portion, count);
    for (; context->portions && context->count < count; context->count++) {
        char *key = lki_strdup(portions[context->count].loader_key);
        if (!key) break;
        context->portions[context->count] = (lk_loader_portion){key, portions[context->count].portion};
    }
    if (context->count < count) {
        lk_callback_free(callback);
        return NULL;
    }
    return callback;
}
