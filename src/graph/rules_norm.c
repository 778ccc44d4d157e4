/* Normalisation and dropout. */
#include "graph/rules.h"

#include "base/status.h"
#include "graph/record_util.h"

static lk_status check_eps(const lki_node *node)
{
    LKI_TRY(lki_expect_float(node, 0));
    if (node->attr.norm.eps >= 0) return LK_OK;
    return lki_fail(LK_ERR_INVALID, "%s: eps must not be negative, but is %g", lk_op_name(node->op),
                    node->attr.norm.eps);
}

/* The channels of (n, c, ...). */
static lk_status check_channels(const lki_node *node, lk_shape *channels)
{
    lk_shape x = node->in[0]->shape;
    if (x.rank < 2)
        return lki_fail(LK_ERR_SHAPE, "%s: input %s: expected at least 2 dimensions, (batch, channels, ...)",
                        lk_op_name(node->op), LKI_SHOW(x));
    *channels = LK_SHAPE(x.dim[1]);
    return LK_OK;
}

/* (x (n, c, ...), weight? (c), bias? (c), running_mean? (c), running_var? (c)) -> y, mean (c), inverse std
 * (c) */
lk_status lki_infer_batch_norm(lki_node *node)
{
    static const char *const names[] = {"input", "weight", "bias", "running mean", "running variance"};
    lk_shape channels, x = node->in[0]->shape;
    LKI_TRY(check_eps(node));
    LKI_TRY(check_channels(node, &channels));
    for (int i = 1; i < 5; i++) LKI_TRY(lki_expect_operand(node, i, names[i], channels));
    if (!node->attr.norm.training && (!lki_has_input(node, 3) || !lki_has_input(node, 4)))
        return lki_fail(LK_ERR_INVALID, "%s: outside of training it needs a running mean and variance",
                        lk_op_name(node->op));
    if (node->attr.norm.training && x.dim[1] > 0 && lk_shape_count(x) / x.dim[1] < 2)
        return lki_fail(LK_ERR_SHAPE, "%s: input %s: training needs more than 1 value per channel",
                        lk_op_name(node->op), LKI_SHOW(x));
    lki_set_output(node, 0, node->in[0]->dtype, x);
    lki_set_output(node, 1, node->in[0]->dtype, channels);
    lki_set_output(node, 2, node->in[0]->dtype, channels);
    return LK_OK;
}

/* (those of batch_norm, addend? of x's shape, its mean? (c), inverse std? (c), weight? (c), bias? (c)) ->
 * those of batch_norm */
lk_status lki_infer_batch_norm_relu(lki_node *node)
{
    static const char *const names[] = {"mean", "inverse std", "weight", "bias"};
    LKI_TRY(lki_infer_batch_norm(node));
    lk_shape x = node->in[0]->shape, channels = LK_SHAPE(x.dim[1]);
    LKI_TRY(lki_expect_operand(node, 5, "addend", x));
    for (int i = 0; i < 4; i++) {
        LKI_TRY(lki_expect_operand(node, 6 + i, names[i], channels));
        if (lki_has_input(node, 6 + i) && !(lki_has_input(node, 6) && lki_has_input(node, 7)))
            return lki_fail(LK_ERR_INVALID,
                            "batch_norm_relu: an addend is normalised by a mean and an inverse "
                            "std, or not at all");
    }
    return LK_OK;
}

/* The last axis_count axes of x, and the axes before them. */
static void split_axes(const lki_node *node, lk_shape x, lk_shape *rows, lk_shape *inner)
{
    int count = node->attr.norm.axis_count;
    *rows = (lk_shape){.rank = x.rank - count};
    *inner = (lk_shape){.rank = count};
    for (int i = 0; i < rows->rank; i++) rows->dim[i] = x.dim[i];
    for (int i = 0; i < count; i++) inner->dim[i] = x.dim[rows->rank + i];
}

/* (x, weight?, bias?) over the last axis_count axes -> y, mean, inverse std, one a row */
lk_status lki_infer_layer_norm(lki_node *node)
{
    lk_shape rows, inner, x = node->in[0]->shape;
    LKI_TRY(check_eps(node));
    if (node->attr.norm.axis_count < 1 || node->attr.norm.axis_count > x.rank)
        return lki_fail(LK_ERR_SHAPE, "layer_norm: input %s has no %d axes to normalise", LKI_SHOW(x),
                        node->attr.norm.axis_count);
    split_axes(node, x, &rows, &inner);
    LKI_TRY(lki_expect_operand(node, 1, "weight", inner));
    LKI_TRY(lki_expect_operand(node, 2, "bias", inner));
    lki_set_output(node, 0, node->in[0]->dtype, x);
    lki_set_output(node, 1, node->in[0]->dtype, rows);
    lki_set_output(node, 2, node->in[0]->dtype, rows);
    return LK_OK;
}

/* (x (n, c, ...), weight? (c), bias? (c)) in group_count groups -> y, mean, inverse std (n, g) */
lk_status lki_infer_group_norm(lki_node *node)
{
    lk_shape channels, x = node->in[0]->shape;
    int64_t groups = node->attr.norm.group_count;
    LKI_TRY(check_eps(node));
    LKI_TRY(check_channels(node, &channels));
    if (groups < 1 || x.dim[1] % groups)
        return lki_fail(LK_ERR_SHAPE,
                        "group_norm: the %lld channels of input %s do not split into %lld groups",
                        (long long)x.dim[1], LKI_SHOW(x), (long long)groups);
    LKI_TRY(lki_expect_operand(node, 1, "weight", channels));
    LKI_TRY(lki_expect_operand(node, 2, "bias", channels));
    lki_set_output(node, 0, node->in[0]->dtype, x);
    lki_set_output(node, 1, node->in[0]->dtype, LK_SHAPE(x.dim[0], groups));
    lki_set_output(node, 2, node->in[0]->dtype, LK_SHAPE(x.dim[0], groups));
    return LK_OK;
}

/* (dy, x, weight?, mean, istd) -> dx, dweight, dbias */
lk_status lki_infer_norm_grad(lki_node *node)
{
    lk_shape rows, x = node->in[1]->shape, inner = LK_SHAPE(x.dim[1]);
    if (node->op == LK_OP_LAYER_NORM_GRAD) split_axes(node, x, &rows, &inner);
    lki_set_output(node, 0, node->in[0]->dtype, x);
    lki_set_output(node, 1, node->in[0]->dtype, inner);
    lki_set_output(node, 2, node->in[0]->dtype, inner);
    return LK_OK;
}

lk_status lki_infer_dropout(lki_node *node)
{
    LKI_TRY(lki_expect_float(node, 0));
    if (!(node->attr.dropout.p >= 0 && node->attr.dropout.p <= 1))
        return lki_fail(LK_ERR_INVALID, "dropout: p must lie between 0 and 1, but is %g",
                        node->attr.dropout.p);
    lki_set_output(node, 0, node->in[0]->dtype, node->in[0]->shape);
    lki_set_output(node, 1, LK_U8, node->in[0]->shape);
    return LK_OK;
}

lk_status lki_infer_dropout_grad(lki_node *node)
{
    lki_set_output(node, 0, node->in[0]->dtype, node->in[0]->shape);
    return LK_OK;
}

/* With h = (x - mean) istd and g = dy weight: dx = istd (g - mean(g) - h mean(g h)), the means over what was
 * normalised together, or dx = istd g where the running values were used; dweight = sum(dy h), dbias =
 * sum(dy) over the rest. */
lk_status lki_backward_norm(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    lk_op op = node->op == LK_OP_BATCH_NORM   ? LK_OP_BATCH_NORM_GRAD
               : node->op == LK_OP_LAYER_NORM ? LK_OP_LAYER_NORM_GRAD
                                              : LK_OP_GROUP_NORM_GRAD;
    lk_value *weight = lki_has_input(node, 1) ? node->in[1] : NULL;
    lk_value *all = LKI_EMIT(op, &node->attr, grad_out[0], node->in[0], weight, node->out[1], node->out[2]);
    for (int i = 0; i < 3; i++)
        if (lki_has_input(node, i) && node->in[i]->needs_grad) grad_in[i] = lki_output_of(all, i);
    return lki_recorded(node);
}

/* dx = dy / (1 - p) where the element was kept */
lk_status lki_backward_dropout(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    grad_in[0] = LKI_EMIT(LK_OP_DROPOUT_GRAD, &node->attr, grad_out[0], node->out[1]);
    return lki_recorded(node);
}
