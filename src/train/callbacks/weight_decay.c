/* Torchbearer's L1 and L2 weight decay: rate * |w| of every parameter, added through the gradients. */
#include "base/status.h"
#include "train/callbacks/callbacks.h"
#include "train/callbacks/gradients.h"

#include <math.h>

/* d|w|_1 / dw = sign(w) */
static void add_l1(float *grad, const float *value, int64_t count, double rate)
{
    for (int64_t i = 0; i < count; i++) grad[i] += (float)rate * (float)((value[i] > 0) - (value[i] < 0));
}

/* d|w|_2 / dw = w / |w|_2 */
static void add_l2(float *grad, const float *value, int64_t count, double rate)
{
    double square = 0;
    for (int64_t i = 0; i < count; i++) square += (double)value[i] * value[i];
    if (square == 0) return;
    float factor = (float)(rate / sqrt(square));
    for (int64_t i = 0; i < count; i++) grad[i] += factor * value[i];
}

static lk_status add_decay(lk_runner *runner, double rate,
                           void (*add)(float *grad, const float *value, int64_t count, double rate))
{
    float *grads;
    double scale;
    LKI_TRY(lki_gradients(runner->step, &grads, &scale));
    if (!grads) return LK_OK;
    LKI_TRY(lki_mirror_pull(runner->step->mirror));
    const lki_flat *flat = &runner->step->flat;
    const float *values = lki_buffer_data(flat->values);
    for (int i = 0; i < flat->slice_count; i++)
        add(grads + flat->slices[i].offset, values + flat->slices[i].offset, flat->slices[i].count,
            rate * scale);
    return lki_mirror_push_block(runner->step->mirror, grads);
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
    if (!(rate >= 0)) return lki_fail_null(LK_ERR_INVALID, "%s: the rate must not be negative", ops->name);
    lk_callback *callback = lki_callback_new(ops, sizeof rate, LK_ORDER_BACKWARD);
    if (callback) *(double *)callback->context = rate;
    return callback;
}

lk_callback *lk_l1_weight_decay_callback(double rate)
{
    static const lk_callback_ops ops = {
        .name = "L1WeightDecay", .on_backward = l1_backward, .free = lki_callback_free_context};
    return create(&ops, rate);
}

lk_callback *lk_l2_weight_decay_callback(double rate)
{
    static const lk_callback_ops ops = {
        .name = "L2WeightDecay", .on_backward = l2_backward, .free = lki_callback_free_context};
    return create(&ops, rate);
}
