/* Torchbearer's only_if: the wrapped callback is called where a condition of the user's holds. */
#include "base/memory.h"
#include "base/status.h"
#include "callbacks/callbacks.h"

typedef struct condition_context {
    bool (*condition)(lk_runner *runner, void *context);
    void *context;
} condition_context;

static bool wants(lki_wrapper *wrapper, lk_runner *runner, lki_moment moment)
{
    const condition_context *context = wrapper->context;
    (void)moment;
    return context->condition(runner, context->context);
}

lk_callback *lk_only_if(lk_callback *callback, bool (*condition)(lk_runner *runner, void *context),
                        void *context)
{
    static const lki_wrapper_ops ops = {.wants = wants};
    condition_context *own = LKI_NEW(condition_context);
    if (!own || !condition) {
        if (own) lki_fail(LK_ERR_INVALID, "only_if: there is no condition");
        lki_free(own);
        lk_callback_free(callback);
        return NULL;
    }
    *own = (condition_context){condition, context};
    return lki_wrapper_create(&ops, callback, own);
}
