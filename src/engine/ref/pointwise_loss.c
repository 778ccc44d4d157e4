/* Losses between numbers: one term an element, then a reduction. */
#include "engine/ref/ref.h"

#include "base/status.h"

#include <math.h>

/* One element's operands; b is the loss's parameter. */
typedef struct term {
    double x, t, weight, pos_weight, b;
} term;

static double softplus(double x)
{
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

static double sign_of(double x)
{
    return (x > 0) - (x < 0);
}

/* PyTorch's bce never lets a logarithm fall below -100. */
static double clamped_log(double x)
{
    return fmax(log(x), -100);
}

static double value_of(lk_pointwise_loss kind, term v)
{
    double d = v.x - v.t, size = fabs(d);
    switch (kind) {
    case LK_LOSS_MSE: return d * d;
    case LK_LOSS_L1: return size;
    case LK_LOSS_SMOOTH_L1: return size < v.b ? 0.5 * d * d / v.b : size - 0.5 * v.b;
    case LK_LOSS_HUBER: return size <= v.b ? 0.5 * d * d : v.b * (size - 0.5 * v.b);
    case LK_LOSS_BCE: return v.weight * ((v.t - 1) * clamped_log(1 - v.x) - v.t * clamped_log(v.x));
    case LK_LOSS_BCE_WITH_LOGITS:
        return v.weight * ((1 - v.t) * v.x + ((v.pos_weight - 1) * v.t + 1) * softplus(-v.x));
    case LK_LOSS_KL_DIV:
        if (v.b != 0) return exp(v.t) * (v.t - v.x);
        return v.t > 0 ? v.t * (log(v.t) - v.x) : 0;
    }
    return NAN;
}

/* d value / d x. */
static double slope_of(lk_pointwise_loss kind, term v)
{
    double d = v.x - v.t;
    switch (kind) {
    case LK_LOSS_MSE: return 2 * d;
    case LK_LOSS_L1: return sign_of(d);
    case LK_LOSS_SMOOTH_L1:
        return d <= -v.b ? -1 : d >= v.b ? 1 : d / v.b; /* -1 at 0 with b = 0, as in PyTorch */
    case LK_LOSS_HUBER: return d <= -v.b ? -v.b : d >= v.b ? v.b : d;
    case LK_LOSS_BCE: return v.weight * d / fmax((1 - v.x) * v.x, 1e-12);
    case LK_LOSS_BCE_WITH_LOGITS:
        return v.weight * ((1 - v.t) - ((v.pos_weight - 1) * v.t + 1) / (1 + exp(v.x)));
    case LK_LOSS_KL_DIV:
        if (v.b != 0) return -exp(v.t);
        return v.t > 0 ? -v.t : 0;
    }
    return NAN;
}

/* The operands start at input `first`: x, target, weight?, pos_weight?. */
static term term_at(const lk_call *call, int first, int64_t i)
{
    const lk_tensor *weight = lki_ref_in(call, first + 2), *pos_weight = lki_ref_in(call, first + 3);
    return (term){
        .x = lki_ref_get(&call->in[first], i),
        .t = lki_ref_get(&call->in[first + 1], i),
        .weight = weight ? lki_ref_get(weight, i) : 1,
        .pos_weight = pos_weight ? lki_ref_get(pos_weight, i) : 1,
        .b = call->attr->pointwise_loss.parameter,
    };
}

static double divisor(const lk_pointwise_loss_attr *attr, lk_shape shape)
{
    if (attr->reduction == LK_REDUCTION_MEAN) return (double)lk_shape_count(shape);
    if (attr->reduction == LK_REDUCTION_BATCH_MEAN) return shape.rank ? (double)shape.dim[0] : 1;
    return 1;
}

lk_status lki_ref_pointwise_loss(const lk_call *call)
{
    const lk_tensor *x = &call->in[0], *out = lki_ref_out(call, 0);
    const lk_tensor *dx = call->output_count > 1 ? lki_ref_out(call, 1) : NULL;
    lk_pointwise_loss kind = call->attr->pointwise_loss.kind;
    bool whole = call->attr->pointwise_loss.reduction != LK_REDUCTION_NONE;
    int64_t count = lk_tensor_count(x);
    double sum = 0, total = divisor(&call->attr->pointwise_loss, x->shape);
    for (int64_t i = 0; i < count; i++) {
        term v = term_at(call, 0, i);
        if (kind == LK_LOSS_BCE && !(v.x >= 0 && v.x <= 1))
            return lki_fail(LK_ERR_RANGE, "probability %g at position %lld is outside of 0..1", v.x,
                            (long long)i);
        double value = value_of(kind, v);
        if (!whole) lki_ref_set(out, i, value);
        if (dx) lki_ref_set(dx, i, slope_of(kind, v) / total);
        sum += value;
    }
    if (whole && out) lki_ref_set(out, 0, sum / total);
    return LK_OK;
}

lk_status lki_ref_pointwise_loss_grad(const lk_call *call)
{
    const lk_tensor *dloss = &call->in[0], *x = &call->in[1], *dx = &call->out[0];
    lk_pointwise_loss kind = call->attr->pointwise_loss.kind;
    bool whole = call->attr->pointwise_loss.reduction != LK_REDUCTION_NONE;
    int64_t count = lk_tensor_count(x);
    double total = divisor(&call->attr->pointwise_loss, x->shape);
    for (int64_t i = 0; i < count; i++) {
        double g = lki_ref_get(dloss, whole ? 0 : i) / total;
        lki_ref_set(dx, i, g * slope_of(kind, term_at(call, 1, i)));
    }
    return LK_OK;
}
