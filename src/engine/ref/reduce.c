/* Reductions over any set of axes.
 *
 * The axes of x are split into those that stay and those that go; a result is a walk over the second kind at
 * one place of the first. */
#include "engine/ref/ref.h"

#include "tensor/buffer.h"

#include <math.h>

/* Two strided views over x: `kept` has one element a result, `gone` the elements of one result from its first
 * on. */
typedef struct reduction {
    lk_tensor kept, gone;
    int64_t kept_count, gone_count;
} reduction;

static void add_axis(lk_tensor *view, int64_t dim, int64_t stride)
{
    int axis = view->shape.rank++;
    view->shape.dim[axis] = dim;
    view->stride[axis] = stride;
}

static reduction split(const lk_tensor *x, uint32_t axes)
{
    lk_tensor dense = *x;
    lki_tensor_set_contiguous(&dense);
    reduction r = {.kept = dense, .gone = dense};
    r.kept.shape.rank = r.gone.shape.rank = 0;
    for (int i = 0; i < dense.shape.rank; i++)
        add_axis(axes & (1u << i) ? &r.gone : &r.kept, dense.shape.dim[i], dense.stride[i]);
    r.kept_count = lk_tensor_count(&r.kept);
    r.gone_count = lk_tensor_count(&r.gone);
    return r;
}

/* Where element j of result i lies in x. */
static int64_t place(const reduction *r, int64_t i, int64_t j)
{
    return lki_ref_offset(&r->kept, i) + lki_ref_offset(&r->gone, j);
}

static double sum_of(const lk_tensor *x, const reduction *r, int64_t i)
{
    double sum = 0;
    for (int64_t j = 0; j < r->gone_count; j++) sum += lki_ref_get(x, place(r, i, j));
    return sum;
}

lk_status lki_ref_sum(const lk_call *call)
{
    reduction r = split(&call->in[0], call->attr->reduce.axes);
    for (int64_t i = 0; i < r.kept_count; i++) lki_ref_set(&call->out[0], i, sum_of(&call->in[0], &r, i));
    return LK_OK;
}

lk_status lki_ref_mean(const lk_call *call)
{
    reduction r = split(&call->in[0], call->attr->reduce.axes);
    for (int64_t i = 0; i < r.kept_count; i++)
        lki_ref_set(&call->out[0], i, sum_of(&call->in[0], &r, i) / (double)r.gone_count);
    return LK_OK;
}

/* A NaN is larger than any number, as in PyTorch. */
static bool is_larger(double x, double largest)
{
    return x > largest || (isnan(x) && !isnan(largest));
}

lk_status lki_ref_max(const lk_call *call)
{
    const lk_tensor *x = &call->in[0];
    reduction r = split(x, call->attr->reduce.axes);
    for (int64_t i = 0; i < r.kept_count; i++) {
        double largest = -INFINITY;
        for (int64_t j = 0; j < r.gone_count; j++) {
            double value = lki_ref_get(x, place(&r, i, j));
            if (is_larger(value, largest)) largest = value;
        }
        lki_ref_set(&call->out[0], i, largest);
    }
    return LK_OK;
}

/* sum (x - mean)^2 / max(0, n - correction) */
lk_status lki_ref_var(const lk_call *call)
{
    const lk_tensor *x = &call->in[0];
    reduction r = split(x, call->attr->reduce.axes);
    double divisor = fmax(0, (double)(r.gone_count - call->attr->reduce.correction));
    for (int64_t i = 0; i < r.kept_count; i++) {
        double mean = sum_of(x, &r, i) / (double)r.gone_count, square = 0;
        for (int64_t j = 0; j < r.gone_count; j++) {
            double d = lki_ref_get(x, place(&r, i, j)) - mean;
            square += d * d;
        }
        lki_ref_set(&call->out[0], i, square / divisor);
    }
    return LK_OK;
}

/* dx = dy [x = y] / how many of its group equal y. dy and y have size 1 along the axes that were reduced. */
lk_status lki_ref_max_grad(const lk_call *call)
{
    const lk_tensor *dy = &call->in[0], *x = &call->in[1], *y = &call->in[2], *dx = &call->out[0];
    uint32_t axes = 0;
    for (int i = 0; i < x->shape.rank; i++)
        if (y->shape.dim[i] == 1) axes |= 1u << i;
    reduction r = split(x, axes);
    for (int64_t i = 0; i < r.kept_count; i++) {
        double largest = lki_ref_get(y, i), equal = 0;
        for (int64_t j = 0; j < r.gone_count; j++) equal += lki_ref_get(x, place(&r, i, j)) == largest;
        for (int64_t j = 0; j < r.gone_count; j++) {
            double mask = lki_ref_get(x, place(&r, i, j)) == largest;
            lki_ref_set(dx, place(&r, i, j), lki_ref_get(dy, i) * mask / equal);
        }
    }
    return LK_OK;
}

lk_status lki_ref_argmax(const lk_call *call)
{
    const lk_tensor *x = &call->in[0];
    reduction r = split(x, 1u << call->attr->axis.axis);
    for (int64_t i = 0; i < r.kept_count; i++) {
        int64_t best = 0;
        for (int64_t j = 1; j < r.gone_count; j++)
            if (is_larger(lki_ref_get(x, place(&r, i, j)), lki_ref_get(x, place(&r, i, best)))) best = j;
        ((int64_t *)call->out[0].data)[i] = best;
    }
    return LK_OK;
}
