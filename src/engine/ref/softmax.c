/* Softmax and its logarithm along one axis, and their gradients from (dy, y). */
#include "engine/ref/ref.h"

#include <math.h>

/* x seen as outer by axis by inner; element j of line i lies at first + j * inner. */
typedef struct lines {
    int64_t count, length, inner;
} lines;

static lines lines_of(const lk_call *call)
{
    lk_shape shape = call->in[0].shape;
    int axis = call->attr->axis.axis;
    if (!shape.rank) return (lines){1, 1, 1};
    int64_t inner = lki_ref_span(shape, axis + 1, shape.rank);
    return (lines){lki_ref_span(shape, 0, axis) * inner, shape.dim[axis], inner};
}

static int64_t first_of(lines l, int64_t i)
{
    return i / l.inner * l.length * l.inner + i % l.inner;
}

/* log sum exp(x), by way of the largest so that nothing overflows. */
static double log_sum_exp(const lk_tensor *x, lines l, int64_t first)
{
    double largest = -INFINITY, sum = 0;
    for (int64_t j = 0; j < l.length; j++) largest = fmax(largest, lki_ref_get(x, first + j * l.inner));
    for (int64_t j = 0; j < l.length; j++) sum += exp(lki_ref_get(x, first + j * l.inner) - largest);
    return largest + log(sum);
}

static lk_status forward(const lk_call *call, bool logarithm)
{
    const lk_tensor *x = &call->in[0];
    lines l = lines_of(call);
    for (int64_t i = 0; i < l.count; i++) {
        int64_t first = first_of(l, i);
        double total = log_sum_exp(x, l, first);
        for (int64_t j = 0; j < l.length; j++) {
            double logp = lki_ref_get(x, first + j * l.inner) - total;
            lki_ref_set(&call->out[0], first + j * l.inner, logarithm ? logp : exp(logp));
        }
    }
    return LK_OK;
}

lk_status lki_ref_softmax(const lk_call *call)
{
    return forward(call, false);
}

lk_status lki_ref_log_softmax(const lk_call *call)
{
    return forward(call, true);
}

/* dx = y (dy - sum dy y) */
lk_status lki_ref_softmax_grad(const lk_call *call)
{
    const lk_tensor *dy = &call->in[0], *y = &call->in[1];
    lines l = lines_of(call);
    for (int64_t i = 0; i < l.count; i++) {
        int64_t first = first_of(l, i);
        double sum = 0;
        for (int64_t j = 0; j < l.length; j++)
            sum += lki_ref_get(dy, first + j * l.inner) * lki_ref_get(y, first + j * l.inner);
        for (int64_t j = 0; j < l.length; j++) {
            int64_t at = first + j * l.inner;
            lki_ref_set(&call->out[0], at, lki_ref_get(y, at) * (lki_ref_get(dy, at) - sum));
        }
    }
    return LK_OK;
}

/* dx = dy - exp(y) sum dy */
lk_status lki_ref_log_softmax_grad(const lk_call *call)
{
    const lk_tensor *dy = &call->in[0], *y = &call->in[1];
    lines l = lines_of(call);
    for (int64_t i = 0; i < l.count; i++) {
        int64_t first = first_of(l, i);
        double sum = 0;
        for (int64_t j = 0; j < l.length; j++) sum += lki_ref_get(dy, first + j * l.inner);
        for (int64_t j = 0; j < l.length; j++) {
            int64_t at = first + j * l.inner;
            lki_ref_set(&call->out[0], at, lki_ref_get(dy, at) - exp(lki_ref_get(y, at)) * sum);
        }
    }
    return LK_OK;
}
