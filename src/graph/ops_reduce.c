/* The public reductions. */
#include "graph/record_util.h"

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
