/* Torchbearer's L1 and L2 weight decay: rate * |w| of every parameter, added through the gradients. */
#include "base/status.h"
#include "callbacks/callbacks.h"
#include "callbacks/gradients.h"
#include "tensor/element.h"

#include <math.h>

/* A slice of the flat buffers. */
typedef struct slice {
    lk_dtype dtype;
    char *grad;
    const char *value;
    int64_t count;
} slice;

/* d|w|_1 / dw = sign(w) */
static void add_l1(slice s, double rate)
{
    for (int64_t i = 0; i < s.count; i++) {
        double w = lki_load(s.dtype, s.value, i);
        lki_store(s.dtype, s.grad, i, lki_load(s.dtype, s.grad, i) + rate * ((w > 0) - (w < 0)));
    }
}

/* d|w|_2 / dw = w / |w|_2 */
static void add_l2(slice s, double rate)
{
    double square = 0;
    for (int64_t i = 0; i < s.count; i++) {
        double w = lki_load(s.dtype, s.value, i);
        square += w * w;
    }
    if (square == 0) return;
    double factor = rate / sqrt(square);
    for (int64_t i = 0; i < s.count; i++)
        lki_store(s.dtype, s.grad, i, lki_load(s.dtype, s.grad, i) + factor * lki_load(s.dtype, s.value, i));
}

static lk_status add_decay(lk_runner *runner, double rate, void (*add)(slice s, double rate))
{
    void *grads;
    double scale;
    LKI_TRY(lki_gradients(runner->step, &grads, &scale));
    if (!grads) return LK_OK;
    LKI_TRY(lki_backend_pull(runner->step->backend));
    const lki_flat *flat = &runner->step->flat;
    const char *values = lki_buffer_data(flat->values);
    for (int i = 0; i < flat->slice_count; i++) {
        int64_t offset = flat->slices[i].offset * (int64_t)lk_dtype_nbytes(flat->dtype);
        add((slice){flat->dtype, (char *)grads + offset, values + offset, flat->slices[i].count},
            rate * scale);
    }
    return lki_backend_push_block(runner->step->backend, grads);
}

static lk_status l1_backward(lk_callback *callback, lk_runner *runner)
{
    return add_decay(runner, *(double *)callback->context, add_l1);
}

static lk_status l2_backward(lk_callback *callback, lk_runner *runner)
{
    return add_decay(runner, *(double *)callback->context, add_l2);
}

static lk_callback *create(const lk_callback_ops *ops, double rate)
{
    if (!(rate >= 0) || isinf(rate))
        return lki_fail_null(LK_ERR_INVALID, "%s: the rate must not be negative", ops->name);
    lk_callback *callback = lki_callback_new(ops, sizeof rate, LK_ORDER_BACKWARD);
    if (callback) *(double *)callback->context = rate;
    return callback;
}

lk_callback *lk_l1_weight_decay_callback(double rate)
{
    static const lk_callback_ops ops = {LK_SIZE(lk_callback_ops), .name = "L1WeightDecay",
                                        .on_backward = l1_backward, .free = lki_callback_free_context};
    return create(&ops, rate);
}

lk_callback *lk_l2_weight_decay_callback(double rate)
{
    static const lk_callback_ops ops = {LK_SIZE(lk_callback_ops), .name = "L2WeightDecay",
                                        .on_backward = l2_backward, .free = lki_callback_free_context};
    return create(&ops, rate);
}
