/* Normalisation: y = (x - mean) istd w + b, with mean and istd = 1 / sqrt(var + eps) over a set of elements.
 *
 * The three kinds differ in which elements share a mean (a "set") and which share a weight (a "channel"), so
 * each is two functions from the flat index, and one code serves all. With xh = (x - mean) istd and g = dy w,
 * over a set of n elements:
 *
 *     dx = istd (g - sum(g) / n - xh sum(g xh) / n)     dw = sum over the channel of dy xh     db = ... of dy
 */
#include "engine/ref/ref.h"

#include <math.h>

/* An input (outer, channels, inner). batch_norm: a set is a channel. group_norm: a set is a sample's group of
 * channels. layer_norm: (rows, width): a set is a row, and every column has a weight of its own. */
typedef struct norm {
    lk_op kind;
    int64_t outer, channels, inner, groups;
    int64_t set_count, set_size;
} norm;

static norm describe(lk_op kind, const lk_norm_attr *attr, lk_shape shape)
{
    norm v = {.kind = kind, .groups = attr->group_count};
    if (kind == LK_OP_LAYER_NORM) {
        int axis = shape.rank - attr->axis_count;
        v.outer = v.set_count = lki_ref_span(shape, 0, axis);
        v.channels = v.set_size = lki_ref_span(shape, axis, shape.rank);
        v.inner = 1;
        return v;
    }
    v.outer = shape.dim[0];
    v.channels = shape.dim[1];
    v.inner = lki_ref_span(shape, 2, shape.rank);
    v.set_count = kind == LK_OP_BATCH_NORM ? v.channels : v.outer * v.groups;
    v.set_size = kind == LK_OP_BATCH_NORM ? v.outer * v.inner : v.channels / v.groups * v.inner;
    return v;
}

/* Where element j of set s lies. In layer and group norm a set is one run of memory. */
static int64_t place(const norm *v, int64_t s, int64_t j)
{
    if (v->kind != LK_OP_BATCH_NORM) return s * v->set_size + j;
    return (j / v->inner * v->channels + s) * v->inner + j % v->inner;
}

static int64_t set_of(const norm *v, int64_t at)
{
    return v->kind == LK_OP_BATCH_NORM ? at / v->inner % v->channels : at / v->set_size;
}

static int64_t channel_of(const norm *v, int64_t at)
{
    return at / v->inner % v->channels;
}

static double weight_at(const norm *v, const lk_tensor *weight, int64_t at, double otherwise)
{
    return weight ? lki_ref_get(weight, channel_of(v, at)) : otherwise;
}

/* The mean and the biased variance of a set. */
static void moments(const norm *v, const lk_tensor *x, int64_t s, double *mean, double *variance)
{
    double sum = 0, square = 0;
    for (int64_t j = 0; j < v->set_size; j++) sum += lki_ref_get(x, place(v, s, j));
    *mean = sum / (double)v->set_size;
    for (int64_t j = 0; j < v->set_size; j++) {
        double d = lki_ref_get(x, place(v, s, j)) - *mean;
        square += d * d;
    }
    *variance = square / (double)v->set_size;
}

/* batch_norm_relu: what is added, normalised first if its statistics are there. */
static double addend_at(const lk_call *call, const norm *v, int64_t at)
{
    const lk_tensor *addend = lki_ref_in(call, 5), *mean = lki_ref_in(call, 6), *istd = lki_ref_in(call, 7);
    if (!addend) return 0;
    double value = lki_ref_get(addend, at);
    if (!mean) return value;
    double normal = (value - weight_at(v, mean, at, 0)) * weight_at(v, istd, at, 1);
    return normal * weight_at(v, lki_ref_in(call, 8), at, 1) + weight_at(v, lki_ref_in(call, 9), at, 0);
}

/* Normalises one set and keeps what the gradient needs. */
static void normalise(const lk_call *call, const norm *v, int64_t s, double mean, double variance)
{
    const lk_tensor *x = &call->in[0], *weight = lki_ref_in(call, 1), *bias = lki_ref_in(call, 2);
    double istd = 1 / sqrt(variance + call->attr->norm.eps);
    for (int64_t j = 0; lki_ref_out(call, 0) && j < v->set_size; j++) {
        int64_t at = place(v, s, j);
        double y =
            (lki_ref_get(x, at) - mean) * istd * weight_at(v, weight, at, 1) + weight_at(v, bias, at, 0);
        if (call->op == LK_OP_BATCH_NORM_RELU) {
            y += addend_at(call, v, at);
            if (y < 0) y = 0;
        }
        lki_ref_set(&call->out[0], at, y);
    }
    if (lki_ref_out(call, 1)) lki_ref_set(&call->out[1], s, mean);
    if (lki_ref_out(call, 2)) lki_ref_set(&call->out[2], s, istd);
}

static void blend(const lk_tensor *running, int64_t i, double momentum, double fresh)
{
    if (running) lki_ref_set(running, i, (1 - momentum) * lki_ref_get(running, i) + momentum * fresh);
}

lk_status lki_ref_batch_norm(const lk_call *call)
{
    const lk_tensor *running_mean = lki_ref_in(call, 3), *running_var = lki_ref_in(call, 4);
    norm v = describe(LK_OP_BATCH_NORM, &call->attr->norm, call->in[0].shape);
    double n = (double)v.set_size;
    for (int64_t s = 0; s < v.set_count; s++) {
        double mean, variance;
        if (call->attr->norm.training || !running_mean || !running_var) {
            moments(&v, &call->in[0], s, &mean, &variance);
            if (n > 0) { /* an empty batch teaches nothing */
                blend(running_mean, s, call->attr->norm.momentum, mean);
                blend(running_var, s, call->attr->norm.momentum, variance * n / (n - 1));
            }
        } else {
            mean = lki_ref_get(running_mean, s);
            variance = lki_ref_get(running_var, s);
        }
        normalise(call, &v, s, mean, variance);
    }
    return LK_OK;
}

static lk_status by_own_moments(const lk_call *call, lk_op kind)
{
    norm v = describe(kind, &call->attr->norm, call->in[0].shape);
    for (int64_t s = 0; s < v.set_count; s++) {
        double mean, variance;
        moments(&v, &call->in[0], s, &mean, &variance);
        normalise(call, &v, s, mean, variance);
    }
    return LK_OK;
}

lk_status lki_ref_layer_norm(const lk_call *call)
{
    return by_own_moments(call, LK_OP_LAYER_NORM);
}

lk_status lki_ref_group_norm(const lk_call *call)
{
    return by_own_moments(call, LK_OP_GROUP_NORM);
}

/* The operands of a gradient. */
typedef struct backward {
    const lk_tensor *dy, *x, *weight, *mean, *istd;
    bool has_relu; /* batch_norm_relu_grad, with the bias of the norm */
    const lk_tensor *bias;
} backward;

static double normal_at(const norm *v, const backward *b, int64_t at)
{
    int64_t s = set_of(v, at);
    return (lki_ref_get(b->x, at) - lki_ref_get(b->mean, s)) * lki_ref_get(b->istd, s);
}

/* What came back, or 0 if a ReLU let nothing through. */
static double gradient_at(const norm *v, const backward *b, int64_t at)
{
    if (b->has_relu &&
        normal_at(v, b, at) * weight_at(v, b->weight, at, 1) + weight_at(v, b->bias, at, 0) <= 0)
        return 0;
    return lki_ref_get(b->dy, at);
}

/* With constant moments (batch norm outside of training) the two sums do not take part. */
static void input_gradient(const norm *v, const backward *b, const lk_tensor *dx, bool constant)
{
    double n = (double)v->set_size;
    for (int64_t s = 0; s < v->set_count; s++) {
        double sum = 0, product = 0;
        for (int64_t j = 0; j < v->set_size && !constant; j++) {
            int64_t at = place(v, s, j);
            double g = gradient_at(v, b, at) * weight_at(v, b->weight, at, 1);
            sum += g;
            product += g * normal_at(v, b, at);
        }
        for (int64_t j = 0; j < v->set_size; j++) {
            int64_t at = place(v, s, j);
            double g = gradient_at(v, b, at) * weight_at(v, b->weight, at, 1);
            lki_ref_set(dx, at, lki_ref_get(b->istd, s) * (g - sum / n - normal_at(v, b, at) * product / n));
        }
    }
}

static void channel_gradients(const norm *v, const backward *b, const lk_tensor *dweight,
                              const lk_tensor *dbias)
{
    for (int64_t c = 0; c < v->channels; c++) {
        double product = 0, sum = 0;
        for (int64_t j = 0; j < v->outer * v->inner; j++) {
            int64_t at = (j / v->inner * v->channels + c) * v->inner + j % v->inner;
            double dy = gradient_at(v, b, at);
            product += dy * normal_at(v, b, at);
            sum += dy;
        }
        if (dweight) lki_ref_set(dweight, c, product);
        if (dbias) lki_ref_set(dbias, c, sum);
    }
}

static lk_status gradients(const lk_call *call, lk_op kind, bool constant)
{
    backward b = {.dy = &call->in[0],
                  .x = &call->in[1],
                  .weight = lki_ref_in(call, 2),
                  .mean = &call->in[3],
                  .istd = &call->in[4],
                  .has_relu = call->op == LK_OP_BATCH_NORM_RELU_GRAD,
                  .bias = lki_ref_in(call, 5)};
    norm v = describe(kind, &call->attr->norm, b.x->shape);
    /* dx last: it may lie over dy. */
    channel_gradients(&v, &b, lki_ref_out(call, 1), lki_ref_out(call, 2));
    if (lki_ref_out(call, 0)) input_gradient(&v, &b, &call->out[0], constant);
    return LK_OK;
}

lk_status lki_ref_batch_norm_grad(const lk_call *call)
{
    return gradients(call, LK_OP_BATCH_NORM, !call->attr->norm.training);
}

lk_status lki_ref_layer_norm_grad(const lk_call *call)
{
    return gradients(call, LK_OP_LAYER_NORM, false);
}

lk_status lki_ref_group_norm_grad(const lk_call *call)
{
    return gradients(call, LK_OP_GROUP_NORM, false);
}
