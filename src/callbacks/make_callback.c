/* Making and freeing callbacks. */
#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "callbacks/callbacks.h"

#include <string.h>

/* The library's copy of the slots lies behind the callback, in one block: lk_callback_free frees both. */
typedef struct created_callback {
    lk_callback callback;
    lk_callback_ops ops;
} created_callback;

#undef lk_callback_create /* the header fills in a size that is missing */
lk_callback *lk_callback_create(const lk_callback_ops *given, void *context, int order)
{
    if (!given) return lki_fail_null(LK_ERR_INVALID, "lk_callback_create: ops is NULL");
    LKI_TAKE(lk_callback_ops, ops, given, NULL);
    created_callback *made = LKI_NEW(created_callback);
    if (!made) return NULL;
    if (!ops.name) ops.name = "Function";
    made->ops = ops;
    made->callback = (lk_callback){.ops = &made->ops, .context = context, .order = order};
    return &made->callback;
}

void lk_callback_free(lk_callback *callback)
{
    if (!callback) return;
    if (callback->ops->free) callback->ops->free(callback);
    lki_free(callback);
}

lk_callback *lki_callback_new(const lk_callback_ops *ops, size_t context_nbytes, int order)
{
    void *context = lki_calloc(context_nbytes, ops->name);
    lk_callback *callback = context ? lk_callback_create(ops, context, order) : NULL;
    if (callback)
        callback->declares_metrics = true;
    else
        lki_free(context);
    return callback;
}

void lki_callback_free_context(lk_callback *callback)
{
    lki_free(callback->context);
}

static bool has_slot(const lk_callback_ops *ops)
{
#define X(moment)                                                                                            \
    if (ops->on_##moment) return true;
    LK_MOMENT_LIST(X)
#undef X
    return false;
}

#undef lk_function_callback /* the header fills in a size that is missing */
lk_callback *lk_function_callback(const lk_callback_ops *given, void *context)
{
    LKI_TAKE(lk_callback_ops, ops, given, NULL);
    if (!has_slot(&ops))
        return lki_fail_null(LK_ERR_INVALID, "%s: a callback needs a function in at least one slot",
                             ops.name ? ops.name : "lk_function_callback");
    return lk_callback_create(given, context, LK_ORDER_EXTERNAL);
}

lk_status lki_callback_declare_mean(lk_runner *runner, const char *name)
{
    LKI_TRY(lki_metric_names_declare(runner, NULL, name, NULL));
    LKI_TRY(lki_metric_names_declare(runner, NULL, name, "/mean"));
    return lki_metric_names_declare(runner, NULL, name, "/std");
}

bool lki_callback_metric(const lk_runner *runner, const char *loader_key, const char *metric_key, double *out)
{
    const lk_metrics *metrics =
        lk_runner_loader_metrics(runner, loader_key ? loader_key : runner->valid_loader);
    const char *name = metric_key ? metric_key : runner->valid_metric;
    if (!metrics || !lk_metrics_has(metrics, name)) return false;
    *out = lk_metrics_get(metrics, name);
    return true;
}

lk_status lki_callback_no_metric(const lk_runner *runner, const char *who, const char *loader_key,
                                 const char *metric_key)
{
    return lki_fail(LK_ERR_NOT_FOUND, "%s: loader \"%s\" reports no metric \"%s\"", who,
                    loader_key ? loader_key : runner->valid_loader,
                    metric_key ? metric_key : runner->valid_metric);
}
