/* The public reductions. */
#include "graph/record_util.h"

#include <math.h>

/* The axes as bits; none given stands for all. False with the recording failed where they make no set. */
static bool axes_of(uint32_t *out, lk_value *x, lk_op op, const int *axes, int axis_count)
{
    *out = axis_count ? 0 : (1u << x->shape.rank) - 1;
    for (int i = 0; i < axis_count; i++) {
        int axis = lki_normal_axis(axes[i], x->shape.rank);
        if (axis < 0 || *out >> axis & 1) {
            lki_graph_fail(x->graph, LK_ERR_RANGE, "%s: axis %d is %s shape %s", lk_op_name(op), axes[i],
                           axis < 0 ? "outside of" : "given twice for", LKI_SHOW(x->shape));
            return false;
        }
        *out |= 1u << axis;
    }
    return true;
}

static lk_value *reduce(lk_op op, lk_value *x, const int *axes, int axis_count, bool keep_dims,
                        int correction)
{
    lk_attr attr = {.reduce = {.keep_dims = keep_dims, .correction = correction}};
    if (!x || !axes_of(&attr.reduce.axes, x, op, axes, axis_count)) return NULL;
    return LKI_EMIT(op, &attr, x);
}

lk_value *lk_op_sum(lk_value *x, const int *axes, int axis_count, bool keep_dims)
{
    return reduce(LK_OP_SUM, x, axes, axis_count, keep_dims, 0);
}

lk_value *lk_op_mean(lk_value *x, const int *axes, int axis_count, bool keep_dims)
{
    return reduce(LK_OP_MEAN, x, axes, axis_count, keep_dims, 0);
}

lk_value *lk_op_max(lk_value *x, const int *axes, int axis_count, bool keep_dims)
{
    return reduce(LK_OP_MAX, x, axes, axis_count, keep_dims, 0);
}

lk_value *lk_op_var(lk_value *x, const int *axes, int axis_count, bool keep_dims, int correction)
{
    return reduce(LK_OP_VAR, x, axes, axis_count, keep_dims, correction);
}

lk_value *lk_op_argmax(lk_value *x, int axis, bool keep_dims)
{
    return LKI_EMIT(LK_OP_ARGMAX, LKI_ATTR(.axis = {.axis = axis, .keep_dims = keep_dims}), x);
}

lk_value *lk_op_softmax(lk_value *x, int axis)
{
    return LKI_EMIT(LK_OP_SOFTMAX, LKI_ATTR(.axis.axis = axis), x);
}

lk_value *lk_op_log_softmax(lk_value *x, int axis)
{
    return LKI_EMIT(LK_OP_LOG_SOFTMAX, LKI_ATTR(.axis.axis = axis), x);
}

lk_value *lk_op_argmin(lk_value *x, int axis, bool keep_dims)
{
    return lk_op_argmax(lk_op_neg(x), axis, keep_dims);
}

lk_value *lk_op_min(lk_value *x, const int *axes, int axis_count, bool keep_dims)
{
    return lk_op_neg(lk_op_max(lk_op_neg(x), axes, axis_count, keep_dims));
}

/* m + log(sum(exp(x - m))), where m is the maximum, or 0 where that is not finite: an infinite x then gives
 * its infinity, and a NaN itself. */
lk_value *lk_op_logsumexp(lk_value *x, const int *axes, int axis_count, bool keep_dims)
{
    lk_value *most = lk_op_detach(lk_op_max(x, axes, axis_count, true));
    if (!most) return NULL;
    lk_value *finite = lk_op_less(lk_op_abs(most), lki_scalar_like(most, INFINITY));
    most = lk_op_where(finite, most, lki_scalar_like(most, 0));
    lk_value *sum = lk_op_sum(lk_op_exp(lk_op_sub(x, most)), axes, axis_count, keep_dims);
    return sum ? lk_op_add(lk_op_log(sum), lki_reshaped(most, sum->shape)) : NULL;
}

/* sqrt(sum(x^2)), whose gradient is 0, not NaN, where all of x is 0. */
static lk_value *euclidean(lk_value *x, const int *axes, int axis_count, bool keep_dims)
{
    lk_value *square = lk_op_sum(lk_op_mul(x, x), axes, axis_count, keep_dims);
    if (!square) return NULL;
    lk_value *zero = lki_scalar_like(square, 0), *one = lki_scalar_like(square, 1);
    lk_value *is_zero = lk_op_equal(square, zero);
    return lk_op_where(is_zero, zero, lk_op_sqrt(lk_op_where(is_zero, one, square)));
}

/* x^p of x >= 0, whose gradient is 0, not infinite, where x is 0. */
static lk_value *power_of(lk_value *x, double p)
{
    if (!x) return NULL;
    lk_value *zero = lki_scalar_like(x, 0), *one = lki_scalar_like(x, 1);
    lk_value *is_zero = lk_op_equal(x, zero);
    return lk_op_where(is_zero, zero, lk_op_pow_scalar(lk_op_where(is_zero, one, x), p));
}

lk_value *lk_op_norm(lk_value *x, double p, const int *axes, int axis_count, bool keep_dims)
{
    if (!x) return NULL;
    if (!(p >= 0))
        return lki_graph_fail(x->graph, LK_ERR_INVALID, "norm: p must be at least 0 or INFINITY, not %g", p);
    if (p == 2) return euclidean(x, axes, axis_count, keep_dims);
    lk_value *size = lk_op_abs(x);
    if (p == INFINITY) return lk_op_max(size, axes, axis_count, keep_dims);
    if (p == 1) return lk_op_sum(size, axes, axis_count, keep_dims);
    if (p == 0)
        return lk_op_sum(lk_op_cast(lk_op_not_equal(x, lki_scalar_like(x, 0)), x->dtype), axes, axis_count,
                         keep_dims);
    lk_value *power = p < 1 ? power_of(size, p) : lk_op_pow_scalar(size, p);
    return power_of(lk_op_sum(power, axes, axis_count, keep_dims), 1 / p);
}

/* How many elements are (or are not) 0, as f32: exact enough to be told from 0. */
static lk_value *count(lk_value *x, bool zeros, const int *axes, int axis_count, bool keep_dims)
{
    if (!x) return NULL;
    lk_value *is_zero = lk_op_equal(x, lki_scalar_like(x, 0));
    if (!zeros) is_zero = lk_op_logical_not(is_zero);
    return lk_op_sum(lk_op_cast(is_zero, LK_F32), axes, axis_count, keep_dims);
}

lk_value *lk_op_any(lk_value *x, const int *axes, int axis_count, bool keep_dims)
{
    lk_value *found = count(x, false, axes, axis_count, keep_dims);
    return found ? lk_op_greater(found, lki_scalar_like(found, 0)) : NULL;
}

lk_value *lk_op_all(lk_value *x, const int *axes, int axis_count, bool keep_dims)
{
    lk_value *found = count(x, true, axes, axis_count, keep_dims);
    return found ? lk_op_equal(found, lki_scalar_like(found, 0)) : NULL;
}

lk_value *lk_op_cumsum(lk_value *x, int axis)
{
    return LKI_EMIT(LK_OP_CUMSUM, LKI_ATTR(.scan.axis = axis), x);
}

lk_value *lk_op_cumprod(lk_value *x, int axis)
{
    return LKI_EMIT(LK_OP_CUMPROD, LKI_ATTR(.scan.axis = axis), x);
}

static lk_value *sort(lk_value *x, lk_sort_attr attr, lk_value **index)
{
    lk_value *values = LKI_EMIT(LK_OP_SORT, LKI_ATTR(.sort = attr), x);
    if (index) *index = lki_output_of(values, 1);
    return values;
}

lk_value *lk_op_sort(lk_value *x, int axis, bool descending, lk_value **index)
{
    return sort(x, (lk_sort_attr){.axis = axis, .descending = descending}, index);
}

lk_value *lk_op_argsort(lk_value *x, int axis, bool descending)
{
    lk_value *index;
    lk_op_sort(x, axis, descending, &index);
    return index;
}

lk_value *lk_op_topk(lk_value *x, int64_t k, int axis, bool largest, lk_value **index)
{
    if (x && k < 1) {
        if (index) *index = NULL;
        return lki_graph_fail(x->graph, LK_ERR_RANGE, "topk: k must be at least 1, not %lld", (long long)k);
    }
    return sort(x, (lk_sort_attr){.axis = axis, .descending = largest, .count = k}, index);
}
