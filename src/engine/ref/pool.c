/* Pooling over the last one to three axes. A window is cut where it leaves the input. */
#include "engine/ref/sliding_window.h"

#include <math.h>

typedef struct pool {
    lk_window window;
    lki_ref_planes in, out;
} pool;

static pool describe(const lk_call *call, lk_shape in, lk_shape out)
{
    const lk_window *window = &call->attr->pool.window;
    return (pool){
        .window = lki_ref_window(window),
        .in = lki_ref_planes_of(in, window->rank),
        .out = lki_ref_planes_of(out, window->rank),
    };
}

static int64_t tap_count(const lk_window *window)
{
    return window->kernel[0] * window->kernel[1] * window->kernel[2];
}

/* The largest of one window and its place in the plane. The first of equals wins; a NaN wins over any number,
 * the last of several over the others, as in PyTorch. */
static int64_t winner(const pool *v, const lk_tensor *x, int64_t x0, const int64_t p[3], double *largest)
{
    int64_t best = -1, tap[3];
    *largest = -INFINITY;
    for (int64_t k = 0; k < tap_count(&v->window); k++) {
        lki_ref_unflatten(tap, k, v->window.kernel);
        int64_t from = lki_ref_tap(&v->window, p, tap, v->in.dim);
        if (from < 0) continue;
        double value = lki_ref_get(x, x0 + from);
        if (best < 0 || value > *largest || isnan(value)) {
            best = from;
            *largest = value;
        }
    }
    return best;
}

lk_status lki_ref_max_pool(const lk_call *call)
{
    const lk_tensor *x = &call->in[0], *y = &call->out[0], *index = lki_ref_out(call, 1);
    pool v = describe(call, x->shape, y->shape);
    for (int64_t n = 0; n < v.out.count; n++)
        for (int64_t i = 0; i < v.out.size; i++) {
            int64_t p[3];
            double largest;
            lki_ref_unflatten(p, i, v.out.dim);
            int64_t best = winner(&v, x, n * v.in.size, p, &largest);
            if (call->attr->pool.activation == LK_ACTIVATION_RELU && largest <= 0) {
                best = -1;
                if (largest < 0) largest = 0;
            }
            if (lki_ref_out(call, 0)) lki_ref_set(y, n * v.out.size + i, largest);
            if (index) lki_ref_set(index, n * v.out.size + i, (double)best);
        }
    return LK_OK;
}

lk_status lki_ref_max_pool_grad(const lk_call *call)
{
    const lk_tensor *dy = &call->in[0], *index = &call->in[1], *dx = &call->out[0];
    pool v = describe(call, dx->shape, dy->shape);
    lki_ref_fill(dx, 0);
    for (int64_t n = 0; n < v.out.count; n++)
        for (int64_t i = n * v.out.size; i < (n + 1) * v.out.size; i++) {
            int64_t best = lki_ref_get_i64(index, i);
            if (best >= 0) lki_ref_add(dx, n * v.in.size + best, lki_ref_get(dy, i));
        }
    return LK_OK;
}

/* What the sum over a window is divided by: the override; or the window's size, cut at the far edge of the
 * padding; or, with exclude_pad, the number of elements of the input that it covers. */
static double divisor(const pool *v, const int64_t p[3])
{
    if (v->window.divisor) return (double)v->window.divisor;
    int64_t size = 1;
    for (int i = 0; i < 3; i++) {
        int64_t begin = p[i] * v->window.stride[i] - v->window.padding[i], end = begin + v->window.kernel[i];
        int64_t edge = v->in.dim[i] + (v->window.exclude_pad ? 0 : v->window.padding[i]);
        if (v->window.exclude_pad && begin < 0) begin = 0;
        size *= (end < edge ? end : edge) - begin;
    }
    return (double)size;
}

/* avg_pool has no dilation. */
static pool describe_average(const lk_call *call, lk_shape in, lk_shape out)
{
    pool v = describe(call, in, out);
    for (int i = 0; i < 3; i++) v.window.dilation[i] = 1;
    return v;
}

lk_status lki_ref_avg_pool(const lk_call *call)
{
    const lk_tensor *x = &call->in[0], *y = &call->out[0];
    pool v = describe_average(call, x->shape, y->shape);
    for (int64_t n = 0; n < v.out.count; n++)
        for (int64_t i = 0; i < v.out.size; i++) {
            int64_t p[3], tap[3], covered = 0;
            double sum = 0;
            lki_ref_unflatten(p, i, v.out.dim);
            for (int64_t k = 0; k < tap_count(&v.window); k++) {
                lki_ref_unflatten(tap, k, v.window.kernel);
                int64_t from = lki_ref_tap(&v.window, p, tap, v.in.dim);
                if (from >= 0) sum += lki_ref_get(x, n * v.in.size + from), covered++;
            }
            lki_ref_set(y, n * v.out.size + i, covered ? sum / divisor(&v, p) : 0);
        }
    return LK_OK;
}

lk_status lki_ref_avg_pool_grad(const lk_call *call)
{
    const lk_tensor *dy = &call->in[0], *dx = &call->out[0];
    pool v = describe_average(call, dx->shape, dy->shape);
    lki_ref_fill(dx, 0);
    for (int64_t n = 0; n < v.out.count; n++)
        for (int64_t i = 0; i < v.out.size; i++) {
            int64_t p[3], tap[3];
            lki_ref_unflatten(p, i, v.out.dim);
            double share = lki_ref_get(dy, n * v.out.size + i) / divisor(&v, p);
            for (int64_t k = 0; k < tap_count(&v.window); k++) {
                lki_ref_unflatten(tap, k, v.window.kernel);
                int64_t to = lki_ref_tap(&v.window, p, tap, v.in.dim);
                if (to >= 0) lki_ref_add(dx, n * v.in.size + to, share);
            }
        }
    return LK_OK;
}

/* Bin p of an axis covers floor(p in / out) up to ceil((p + 1) in / out). */
static void adaptive_bin(const pool *v, int64_t place, int64_t begin[3], int64_t size[3])
{
    int64_t p[3];
    lki_ref_unflatten(p, place, v->out.dim);
    for (int i = 0; i < 3; i++) {
        begin[i] = p[i] * v->in.dim[i] / v->out.dim[i];
        size[i] = ((p[i] + 1) * v->in.dim[i] + v->out.dim[i] - 1) / v->out.dim[i] - begin[i];
    }
}

static int64_t bin_place(const pool *v, const int64_t begin[3], const int64_t size[3], int64_t k)
{
    int64_t at[3];
    lki_ref_unflatten(at, k, size);
    for (int i = 0; i < 3; i++) at[i] += begin[i];
    return lki_ref_flatten(at, v->in.dim);
}

lk_status lki_ref_adaptive_avg_pool(const lk_call *call)
{
    const lk_tensor *x = &call->in[0], *y = &call->out[0];
    pool v = describe(call, x->shape, y->shape);
    for (int64_t n = 0; n < v.out.count; n++)
        for (int64_t i = 0; i < v.out.size; i++) {
            int64_t begin[3], size[3];
            adaptive_bin(&v, i, begin, size);
            int64_t count = size[0] * size[1] * size[2];
            double sum = 0;
            for (int64_t k = 0; k < count; k++)
                sum += lki_ref_get(x, n * v.in.size + bin_place(&v, begin, size, k));
            lki_ref_set(y, n * v.out.size + i, sum / (double)count);
        }
    return LK_OK;
}

lk_status lki_ref_adaptive_avg_pool_grad(const lk_call *call)
{
    const lk_tensor *dy = &call->in[0], *dx = &call->out[0];
    pool v = describe(call, dx->shape, dy->shape);
    lki_ref_fill(dx, 0);
    for (int64_t n = 0; n < v.out.count; n++)
        for (int64_t i = 0; i < v.out.size; i++) {
            int64_t begin[3], size[3];
            adaptive_bin(&v, i, begin, size);
            int64_t count = size[0] * size[1] * size[2];
            double share = lki_ref_get(dy, n * v.out.size + i) / (double)count;
            for (int64_t k = 0; k < count; k++)
                lki_ref_add(dx, n * v.in.size + bin_place(&v, begin, size, k), share);
        }
    return LK_OK;
}
