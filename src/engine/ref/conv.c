/* Convolutions in one to three dimensions, by the definition:
 *
 *     y[n, o, p] = b[o] + sum_{c, k} x[n, c, p * stride - padding + k * dilation] w[o, c, k]
 *
 * where c runs over the input channels of o's group. The two gradients and the transposed convolution are the
 * same sum with another of its three tensors on the left. */
#include "engine/ref/sliding_window.h"

/* The sizes of one convolution; the transposed one calls its output "input" here and its input "output". */
typedef struct conv {
    lk_window window;
    lki_ref_planes in, out, kernel;
    int64_t batch, in_channels, out_channels; /* of a whole tensor */
    int64_t group_in, group_out;              /* channels of one group */
} conv;

/* in: (n, c, s...), out: (n, o, p...), weight: (o, c / groups, k...) */
static conv describe(const lk_call *call, lk_shape in, lk_shape out, lk_shape weight)
{
    const lk_window *window = &call->attr->conv.window;
    int64_t groups = window->groups > 0 ? window->groups : 1;
    return (conv){
        .window = lki_ref_window(window),
        .in = lki_ref_planes_of(in, window->rank),
        .out = lki_ref_planes_of(out, window->rank),
        .kernel = lki_ref_planes_of(weight, window->rank),
        .batch = in.dim[0],
        .in_channels = in.dim[1],
        .out_channels = out.dim[1],
        .group_in = in.dim[1] / groups,
        .group_out = out.dim[1] / groups,
    };
}

/* The flat index of input channel c (counted within o's group) of sample n. */
static int64_t in_plane(const conv *v, int64_t n, int64_t o, int64_t c)
{
    return (n * v->in_channels + o / v->group_out * v->group_in + c) * v->in.size;
}

/* sum over the taps of one kernel plane. */
static double plane_product(const conv *v, const lk_tensor *x, int64_t x0, const lk_tensor *w, int64_t w0,
                            const int64_t p[3])
{
    double sum = 0;
    for (int64_t k = 0; k < v->kernel.size; k++) {
        int64_t tap[3];
        lki_ref_unflatten(tap, k, v->kernel.dim);
        int64_t from = lki_ref_tap(&v->window, p, tap, v->in.dim);
        if (from >= 0) sum += lki_ref_get(x, x0 + from) * lki_ref_get(w, w0 + k);
    }
    return sum;
}

static double output_at(const conv *v, const lk_tensor *x, const lk_tensor *w, int64_t n, int64_t o,
                        int64_t place)
{
    int64_t p[3];
    lki_ref_unflatten(p, place, v->out.dim);
    double sum = 0;
    for (int64_t c = 0; c < v->group_in; c++)
        sum += plane_product(v, x, in_plane(v, n, o, c), w, (o * v->group_in + c) * v->kernel.size, p);
    return sum;
}

static double activate(const lk_call *call, double value)
{
    return call->attr->conv.activation == LK_ACTIVATION_RELU && value < 0 ? 0 : value;
}

lk_status lki_ref_conv(const lk_call *call)
{
    const lk_tensor *x = &call->in[0], *w = &call->in[1], *b = lki_ref_in(call, 2), *y = &call->out[0];
    conv v = describe(call, x->shape, y->shape, w->shape);
    for (int64_t n = 0; n < v.batch; n++)
        for (int64_t o = 0; o < v.out_channels; o++)
            for (int64_t p = 0; p < v.out.size; p++) {
                double sum = output_at(&v, x, w, n, o, p) + (b ? lki_ref_get(b, o) : 0);
                lki_ref_set(y, (n * v.out_channels + o) * v.out.size + p, activate(call, sum));
            }
    return LK_OK;
}

/* Which output places read input place s by tap k: p = (s + padding - k dilation) / stride where that
 * divides; -1 for none. */
static int64_t reader(const conv *v, const int64_t s[3], const int64_t tap[3])
{
    int64_t p[3];
    for (int i = 0; i < 3; i++) {
        int64_t shifted = s[i] + v->window.padding[i] - tap[i] * v->window.dilation[i];
        if (shifted < 0 || shifted % v->window.stride[i]) return -1;
        p[i] = shifted / v->window.stride[i];
        if (p[i] >= v->out.dim[i]) return -1;
    }
    return lki_ref_flatten(p, v->out.dim);
}

/* dx[n, c, s] = sum_{o, k} dy[n, o, p] w[o, c, k] over the p that read s by k. c counts within its group g.
 */
static double input_gradient_at(const conv *v, const lk_tensor *dy, const lk_tensor *w, int64_t n,
                                int64_t channel, int64_t place)
{
    int64_t group = channel / v->group_in, c = channel % v->group_in, s[3];
    lki_ref_unflatten(s, place, v->in.dim);
    double sum = 0;
    for (int64_t k = 0; k < v->kernel.size; k++) {
        int64_t tap[3];
        lki_ref_unflatten(tap, k, v->kernel.dim);
        int64_t p = reader(v, s, tap);
        for (int64_t o = group * v->group_out; p >= 0 && o < (group + 1) * v->group_out; o++)
            sum += lki_ref_get(dy, (n * v->out_channels + o) * v->out.size + p) *
                   lki_ref_get(w, (o * v->group_in + c) * v->kernel.size + k);
    }
    return sum;
}

static lk_status transposed(const lk_call *call, const lk_tensor *bias)
{
    const lk_tensor *dy = &call->in[0], *w = &call->in[1], *dx = &call->out[0];
    conv v = describe(call, dx->shape, dy->shape, w->shape);
    for (int64_t n = 0; n < v.batch; n++)
        for (int64_t c = 0; c < v.in_channels; c++)
            for (int64_t s = 0; s < v.in.size; s++) {
                double sum = input_gradient_at(&v, dy, w, n, c, s) + (bias ? lki_ref_get(bias, c) : 0);
                lki_ref_set(dx, (n * v.in_channels + c) * v.in.size + s, activate(call, sum));
            }
    return LK_OK;
}

lk_status lki_ref_conv_grad_input(const lk_call *call)
{
    return transposed(call, NULL);
}

/* The gradient of a convolution with respect to its input is the transposed convolution; its weight (c, o /
 * groups, k...) is that convolution's weight as it lies. */
lk_status lki_ref_conv_transpose(const lk_call *call)
{
    return transposed(call, lki_ref_in(call, 2));
}

/* dw[o, c, k] = sum_{n, p} dy[n, o, p] x[n, c, p * stride - padding + k * dilation] */
static double weight_gradient_at(const conv *v, const lk_tensor *dy, const lk_tensor *x, int64_t o, int64_t c,
                                 int64_t k)
{
    int64_t tap[3], p[3];
    lki_ref_unflatten(tap, k, v->kernel.dim);
    double sum = 0;
    for (int64_t n = 0; n < v->batch; n++)
        for (int64_t i = 0; i < v->out.size; i++) {
            lki_ref_unflatten(p, i, v->out.dim);
            int64_t from = lki_ref_tap(&v->window, p, tap, v->in.dim);
            if (from < 0) continue;
            sum += lki_ref_get(dy, (n * v->out_channels + o) * v->out.size + i) *
                   lki_ref_get(x, in_plane(v, n, o, c) + from);
        }
    return sum;
}

/* db[o] = sum_{n, p} dy[n, o, p] */
static double bias_gradient_at(const conv *v, const lk_tensor *dy, int64_t o)
{
    double sum = 0;
    for (int64_t n = 0; n < v->batch; n++)
        for (int64_t i = 0; i < v->out.size; i++)
            sum += lki_ref_get(dy, (n * v->out_channels + o) * v->out.size + i);
    return sum;
}

lk_status lki_ref_conv_grad_weight(const lk_call *call)
{
    const lk_tensor *dy = &call->in[0], *x = &call->in[1];
    const lk_tensor *dw = lki_ref_out(call, 0),
                    *db = call->attr->conv.wants_bias ? lki_ref_out(call, 1) : NULL;
    conv v = describe(call, x->shape, dy->shape, call->out[0].shape);
    for (int64_t o = 0; o < v.out_channels; o++) {
        for (int64_t c = 0; dw && c < v.group_in; c++)
            for (int64_t k = 0; k < v.kernel.size; k++)
                lki_ref_set(dw, (o * v.group_in + c) * v.kernel.size + k,
                            weight_gradient_at(&v, dy, x, o, c, k));
        if (db) lki_ref_set(db, o, bias_gradient_at(&v, dy, o));
    }
    return LK_OK;
}
