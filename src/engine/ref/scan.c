/* Ops that walk along the lines of one axis: running sums and products, and sorting. */
#include "engine/ref/ref.h"

#include <math.h>

/* The lines of x along an axis: `count` of them, of `length` elements that lie `stride` apart. */
typedef struct lines {
    int64_t count, length, stride;
} lines;

static lines lines_of(lk_shape shape, int axis)
{
    if (!shape.rank) return (lines){1, 1, 1};
    int64_t stride = lki_ref_span(shape, axis + 1, shape.rank);
    return (lines){lki_ref_span(shape, 0, axis) * stride, shape.dim[axis], stride};
}

/* Where element k of line i lies. */
static int64_t place(const lines *l, int64_t i, int64_t k)
{
    return i / l->stride * l->length * l->stride + i % l->stride + k * l->stride;
}

static lk_status scan(const lk_call *call, bool multiplies)
{
    const lk_tensor *x = &call->in[0], *y = &call->out[0];
    lines l = lines_of(x->shape, call->attr->scan.axis);
    for (int64_t i = 0; i < l.count; i++) {
        double sum = multiplies ? 1 : 0;
        for (int64_t j = 0; j < l.length; j++) {
            int64_t at = place(&l, i, call->attr->scan.reverse ? l.length - 1 - j : j);
            double value = lki_ref_get(x, at);
            sum = multiplies ? sum * value : sum + value;
            lki_ref_set(y, at, sum);
        }
    }
    return LK_OK;
}

lk_status lki_ref_cumsum(const lk_call *call)
{
    return scan(call, false);
}

lk_status lki_ref_cumprod(const lk_call *call)
{
    return scan(call, true);
}

/* dx_k = the product of x before k times s_k, with s_k = dy_k + x_(k+1) s_(k+1): no division, so a zero is as
 * good as any number. s is kept in dx until the products come. */
lk_status lki_ref_cumprod_grad(const lk_call *call)
{
    const lk_tensor *dy = &call->in[0], *x = &call->in[1], *dx = &call->out[0];
    lines l = lines_of(x->shape, call->attr->scan.axis);
    bool reverse = call->attr->scan.reverse;
    for (int64_t i = 0; i < l.count; i++) {
        double after = 0, before = 1;
        for (int64_t j = l.length - 1; j >= 0; j--) {
            int64_t at = place(&l, i, reverse ? l.length - 1 - j : j);
            after += lki_ref_get(dy, at);
            lki_ref_set(dx, at, after);
            after *= lki_ref_get(x, at);
        }
        for (int64_t j = 0; j < l.length; j++) {
            int64_t at = place(&l, i, reverse ? l.length - 1 - j : j);
            /* what comes after a zero may be infinite by now */
            lki_ref_set(dx, at, before == 0 ? 0 : before * lki_ref_get(dx, at));
            before *= lki_ref_get(x, at);
        }
    }
    return LK_OK;
}

/* Whether a stands before b, where places decide between equals. A NaN is larger than any number. */
static bool is_before(double a, int64_t at_a, double b, int64_t at_b, bool descending)
{
    bool nan_a = isnan(a), nan_b = isnan(b);
    if ((nan_a && nan_b) || a == b) return at_a < at_b;
    bool larger = nan_a || (!nan_b && a > b);
    return larger == descending;
}

/* Every element's rank in its line is the number of those that stand before it. */
lk_status lki_ref_sort(const lk_call *call)
{
    const lk_tensor *x = &call->in[0], *values = lki_ref_out(call, 0), *index = lki_ref_out(call, 1);
    const lk_sort_attr *attr = &call->attr->sort;
    lines l = lines_of(x->shape, attr->axis);
    lines kept = {l.count, attr->count ? attr->count : l.length, l.stride};
    for (int64_t i = 0; i < l.count; i++)
        for (int64_t j = 0; j < l.length; j++) {
            int64_t rank = 0;
            double own = lki_ref_get(x, place(&l, i, j));
            for (int64_t k = 0; k < l.length; k++)
                rank += is_before(lki_ref_get(x, place(&l, i, k)), k, own, j, attr->descending);
            if (rank >= kept.length) continue;
            if (values) lki_ref_move(values, place(&kept, i, rank), x, place(&l, i, j));
            if (index) ((int64_t *)index->data)[place(&kept, i, rank)] = j;
        }
    return LK_OK;
}
