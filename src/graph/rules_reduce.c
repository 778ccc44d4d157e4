/* Reductions over a set of axes, and softmax along one. */
#include "graph/rules.h"

#include "base/status.h"
#include "graph/record_util.h"

/* How many numbers each result is made of. */
static int64_t reduced_count(lk_shape shape, uint32_t axes)
{
    int64_t count = 1;
    for (int i = 0; i < shape.rank; i++)
        if (axes >> i & 1) count *= shape.dim[i];
    return count;
}

lk_status lki_infer_reduce(lki_node *node)
{
    lk_shape shape = node->in[0]->shape;
    uint32_t axes = node->attr.reduce.axes;
    int64_t count = reduced_count(shape, axes);
    LKI_TRY(lki_expect_float(node, 0));
    if (axes >> shape.rank)
        return lki_fail(LK_ERR_RANGE, "%s: an axis is outside of shape %s", lk_op_name(node->op),
                        LKI_SHOW(shape));
    if (count == 0 && node->op != LK_OP_SUM)
        return lki_fail(LK_ERR_SHAPE, "%s: nothing to reduce in shape %s", lk_op_name(node->op),
                        LKI_SHOW(shape));
    if (node->op == LK_OP_VAR && (node->attr.reduce.correction < 0 || count <= node->attr.reduce.correction))
        return lki_fail(LK_ERR_SHAPE, "var: %lld numbers of shape %s have no variance with correction %lld",
                        (long long)count, LKI_SHOW(shape), (long long)node->attr.reduce.correction);
    lki_set_output(node, 0, node->in[0]->dtype, lki_reduced_shape(shape, axes, node->attr.reduce.keep_dims));
    return LK_OK;
}

lk_status lki_infer_max_grad(lki_node *node)
{
    lki_set_output(node, 0, node->in[1]->dtype, node->in[1]->shape);
    return LK_OK;
}

lk_status lki_infer_argmax(lki_node *node)
{
    LKI_TRY(lki_expect_float(node, 0));
    LKI_TRY(lki_complete_axis(node, &node->attr.axis.axis));
    lk_shape shape = node->in[0]->shape;
    if (shape.dim[node->attr.axis.axis] == 0)
        return lki_fail(LK_ERR_SHAPE, "argmax: axis %d of shape %s is empty", node->attr.axis.axis,
                        LKI_SHOW(shape));
    lki_set_output(node, 0, LK_I64,
                   lki_reduced_shape(shape, 1u << node->attr.axis.axis, node->attr.axis.keep_dims));
    return LK_OK;
}

/* softmax, log_softmax (x) and their gradients (dy, y): all of one shape. */
lk_status lki_infer_softmax(lki_node *node)
{
    LKI_TRY(lki_expect_float(node, 0));
    LKI_TRY(lki_complete_axis(node, &node->attr.axis.axis));
    lki_set_output(node, 0, node->in[0]->dtype, node->in[0]->shape);
    return LK_OK;
}

/* A result's gradient with the reduced axes back as axes of 1, so that it broadcasts against x. */
static lk_value *with_axes(lki_node *node, lk_value *value)
{
    return lki_reshaped(value, lki_reduced_shape(node->in[0]->shape, node->attr.reduce.axes, true));
}

static lk_value *expanded(lk_value *value, lk_shape shape)
{
    if (!value || lk_shape_equal(value->shape, shape)) return value;
    return LKI_EMIT(LK_OP_EXPAND, LKI_ATTR(.shape.shape = shape), value);
}

/* dx = dy, at every place that was summed */
lk_status lki_backward_sum(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    grad_in[0] = expanded(with_axes(node, grad_out[0]), node->in[0]->shape);
    return lki_recorded(node);
}

/* dx = dy / n */
lk_status lki_backward_mean(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    lk_shape shape = node->in[0]->shape;
    double count = (double)reduced_count(shape, node->attr.reduce.axes);
    grad_in[0] = expanded(with_axes(node, lki_scaled(grad_out[0], 1 / count)), shape);
    return lki_recorded(node);
}

/* dx = dy / k at the k places that equal the maximum, 0 elsewhere */
lk_status lki_backward_max(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    lk_value *dy = with_axes(node, grad_out[0]), *y = with_axes(node, node->out[0]);
    grad_in[0] = LKI_EMIT(LK_OP_MAX_GRAD, NULL, dy, node->in[0], y);
    return lki_recorded(node);
}

/* dx = dy 2 / (n - correction) (x - mean(x)) */
lk_status lki_backward_var(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    lk_value *x = node->in[0];
    double count =
        (double)reduced_count(x->shape, node->attr.reduce.axes) - (double)node->attr.reduce.correction;
    lk_value *mean =
        LKI_EMIT(LK_OP_MEAN, LKI_ATTR(.reduce = {.axes = node->attr.reduce.axes, .keep_dims = true}), x);
    lk_value *dy = with_axes(node, lki_scaled(grad_out[0], 2 / count));
    grad_in[0] = LKI_EMIT(LK_OP_MUL, NULL, LKI_EMIT(LK_OP_SUB, NULL, x, mean), dy);
    return lki_recorded(node);
}

/* softmax: dx = y (dy - sum(dy y)); log_softmax: dx = dy - exp(y) sum(dy) */
lk_status lki_backward_softmax(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    lk_op op = node->op == LK_OP_SOFTMAX ? LK_OP_SOFTMAX_GRAD : LK_OP_LOG_SOFTMAX_GRAD;
    grad_in[0] = LKI_EMIT(op, LKI_ATTR(.axis.axis = node->attr.axis.axis), grad_out[0], node->out[0]);
    return lki_recorded(node);
}
