/* Torchbearer's once_per_epoch: each slot of the wrapped callback is called at its first chance in an epoch.
 */
#include "base/memory.h"
#include "base/status.h"
#include "callbacks/callbacks.h"

typedef struct once_context {
    int64_t last_epoch[LKI_MOMENT_COUNT]; /* in which each slot was called */
} once_context;

static bool wants(lki_wrapper *wrapper, lk_runner *runner, lki_moment moment)
{
    once_context *context = wrapper->context;
    if (moment == LKI_MOMENT_settled && !runner->batch) return true; /* the epoch settles once */
    if (context->last_epoch[moment] == runner->epoch_step) return false;
    context->last_epoch[moment] = runner->epoch_step;
    return true;
}

/* A run that goes on inside an epoch must not call again what it has called. */
static lk_status save_state(lki_wrapper *wrapper, lk_state_dict *state, const char *prefix)
{
    once_context *context = wrapper->context;
    LKI_SCOPED char *name = lki_format("%sonce", prefix);
    if (!name) return LK_ERR_NOMEM;
    return lk_state_dict_put(state, name,
                             lk_tensor_from(LK_I64, LK_SHAPE(LKI_MOMENT_COUNT), context->last_epoch));
}

static lk_status load_state(lki_wrapper *wrapper, const lk_state_dict *state, const char *prefix)
{
    once_context *context = wrapper->context;
    LKI_SCOPED char *name = lki_format("%sonce", prefix);
    const lk_tensor *saved = name ? lk_state_dict_get(state, name) : NULL;
    if (!saved) return lki_last_status();
    if (lk_tensor_count(saved) != LKI_MOMENT_COUNT)
        return lki_fail(LK_ERR_FORMAT, "once_per_epoch: the saved state has another size");
    for (int i = 0; i < LKI_MOMENT_COUNT; i++) context->last_epoch[i] = (int64_t)lk_tensor_get(saved, i);
    return LK_OK;
}

lk_callback *lk_once_per_epoch(lk_callback *callback)
{
    static const lki_wrapper_ops ops = {.wants = wants, .save_state = save_state, .load_state = load_state};
    once_context *context = LKI_NEW(once_context);
    if (!context) {
        lk_callback_free(callback);
        return NULL;
    }
    return lki_wrapper_create(&ops, callback, context);
}
