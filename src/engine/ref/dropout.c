/* Dropout with PyTorch's draws: one double an element, in order. Like PyTorch, nothing is drawn where p is 0
 * or 1. */
#include "engine/ref/ref.h"

#include "base/status.h"

static double scale_of(double p)
{
    return p < 1 ? 1 / (1 - p) : 0;
}

lk_status lki_ref_dropout(const lk_call *call)
{
    const lk_tensor *x = &call->in[0], *y = lki_ref_out(call, 0), *mask = lki_ref_out(call, 1);
    double p = call->attr->dropout.p;
    bool draws = p > 0 && p < 1;
    if (draws && !call->generator) return lki_fail(LK_ERR_INVALID, "dropout has no random generator");
    int64_t count = lk_tensor_count(x);
    for (int64_t i = 0; i < count; i++) {
        bool keep = draws ? lk_generator_f64(call->generator) < 1 - p : p <= 0;
        double value = lki_ref_get(x, i);
        if (y) lki_ref_set(y, i, keep ? value * scale_of(p) : 0);
        if (mask) lki_ref_set(mask, i, keep);
    }
    return LK_OK;
}

/* dx = dy mask / (1 - p) */
lk_status lki_ref_dropout_grad(const lk_call *call)
{
    const lk_tensor *dy = &call->in[0], *mask = &call->in[1];
    int64_t count = lk_tensor_count(dy);
    for (int64_t i = 0; i < count; i++) {
        bool keep = lki_ref_get(mask, i) != 0;
        lki_ref_set(&call->out[0], i, keep ? lki_ref_get(dy, i) * scale_of(call->attr->dropout.p) : 0);
    }
    return LK_OK;
}
