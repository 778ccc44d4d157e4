/* Ops that move data: shapes, places, parts. */
#include "graph/rules.h"

#include "base/status.h"
#include "graph/record_util.h"

/* Fills in the one dimension given as -1. */
static lk_status complete_reshape(lk_shape *shape, lk_shape from)
{
    int unknown = -1;
    int64_t known = 1, total = lk_shape_count(from);
    for (int i = 0; i < shape->rank; i++) {
        bool wild = shape->dim[i] == -1;
        if (shape->dim[i] < -1 || (wild && unknown >= 0))
            return lki_fail(LK_ERR_INVALID, "reshape: %s is no shape; one dimension may be -1",
                            LKI_SHOW(*shape));
        if (wild)
            unknown = i;
        else if (__builtin_mul_overflow(known, shape->dim[i], &known))
            known = -1;
    }
    lk_shape wanted = *shape;
    if (unknown >= 0 && known > 0 && total % known == 0) shape->dim[unknown] = total / known;
    if (known < 0 || (unknown >= 0 && shape->dim[unknown] < 0) || lk_shape_count(*shape) != total)
        return lki_fail(LK_ERR_SHAPE, "reshape: cannot view shape %s as %s", LKI_SHOW(from),
                        LKI_SHOW(wanted));
    return LK_OK;
}

lk_status lki_infer_reshape(lki_node *node)
{
    LKI_TRY(complete_reshape(&node->attr.shape.shape, node->in[0]->shape));
    lki_set_output(node, 0, node->in[0]->dtype, node->attr.shape.shape);
    return LK_OK;
}

/* A dimension of -1 stands for the one that x has there. */
lk_status lki_infer_expand(lki_node *node)
{
    lk_shape from = node->in[0]->shape, *to = &node->attr.shape.shape, together;
    int added = to->rank - from.rank;
    for (int i = added > 0 ? added : 0; i < to->rank; i++)
        if (to->dim[i] == -1 && added >= 0) to->dim[i] = from.dim[i - added];
    if (added < 0 || lki_broadcast(&together, from, *to) || !lk_shape_equal(together, *to))
        return lki_fail(LK_ERR_SHAPE, "expand: shape %s does not broadcast to %s", LKI_SHOW(from),
                        LKI_SHOW(*to));
    for (int i = 0; i < to->rank; i++)
        if (to->dim[i] < 0) return lki_fail(LK_ERR_SHAPE, "expand: %s is no shape", LKI_SHOW(*to));
    lki_set_output(node, 0, node->in[0]->dtype, *to);
    return LK_OK;
}

lk_status lki_infer_permute(lki_node *node)
{
    lk_shape from = node->in[0]->shape, to = from;
    unsigned seen = 0;
    for (int i = 0; i < from.rank; i++) {
        int axis = lki_normal_axis(node->attr.permute.order[i], from.rank);
        if (axis < 0 || seen >> axis & 1)
            return lki_fail(LK_ERR_INVALID, "permute: the order is no permutation of the axes of shape %s",
                            LKI_SHOW(from));
        seen |= 1u << axis;
        node->attr.permute.order[i] = axis;
        to.dim[i] = from.dim[axis];
    }
    lki_set_output(node, 0, node->in[0]->dtype, to);
    return LK_OK;
}

lk_status lki_infer_slice(lki_node *node)
{
    lk_shape shape = node->in[0]->shape;
    for (int i = 0; i < shape.rank; i++) {
        const lk_slice_attr *slice = &node->attr.slice;
        int64_t begin = slice->begin[i], end = slice->end[i], step = slice->step[i];
        if (step < 1)
            return lki_fail(LK_ERR_INVALID, "slice: the step must be at least 1, not %lld", (long long)step);
        if (begin < 0 || begin >= end || end > node->in[0]->shape.dim[i])
            return lki_fail(LK_ERR_RANGE, "slice: [%lld, %lld) of axis %d is empty or outside of shape %s",
                            (long long)begin, (long long)end, i, LKI_SHOW(node->in[0]->shape));
        shape.dim[i] = (end - begin + step - 1) / step;
    }
    lki_set_output(node, 0, node->in[0]->dtype, shape);
    return LK_OK;
}

/* The shape that a family's gradients say their result has. */
static lk_shape said_shape(const lki_node *node)
{
    switch (lk_op_family_of(node->op)) {
    case LK_FAMILY_SLICE: return node->attr.slice.shape;
    case LK_FAMILY_SLICES: return node->attr.slices.shape;
    case LK_FAMILY_PAD: return node->attr.pad.shape;
    case LK_FAMILY_GATHER: return node->attr.gather.shape;
    case LK_FAMILY_EMBEDDING: return node->attr.embedding.shape;
    case LK_FAMILY_CONV: return node->attr.conv.shape;
    case LK_FAMILY_POOL: return node->attr.pool.shape;
    default: return node->attr.upsample.shape;
    }
}

/* Ops that undo another: the result has the dtype of the first operand. */
lk_status lki_infer_to_shape(lki_node *node)
{
    lki_set_output(node, 0, node->in[0]->dtype, said_shape(node));
    return LK_OK;
}

lk_status lki_infer_concat(lki_node *node)
{
    LKI_TRY(lki_complete_axis(node, &node->attr.axis.axis));
    int axis = node->attr.axis.axis;
    lk_shape first = node->in[0]->shape, shape = first;
    for (int i = 1; i < node->input_count; i++) {
        LKI_TRY(lki_expect_same_dtype(node, 0, i));
        lk_shape other = node->in[i]->shape;
        bool fits = other.rank == first.rank;
        for (int k = 0; fits && k < first.rank; k++) fits = k == axis || other.dim[k] == first.dim[k];
        if (!fits)
            return lki_fail(LK_ERR_SHAPE, "concat: shapes %s and %s differ outside of axis %d",
                            LKI_SHOW(first), LKI_SHOW(other), axis);
        shape.dim[axis] += other.dim[axis];
    }
    lki_set_output(node, 0, node->in[0]->dtype, shape);
    return LK_OK;
}

lk_status lki_infer_pad(lki_node *node)
{
    lk_shape from = node->in[0]->shape, to = from;
    int mode = (int)node->attr.pad.mode;
    if (mode < LK_PAD_CONSTANT || mode > LK_PAD_REPLICATE)
        return lki_fail(LK_ERR_INVALID, "pad: there is no mode %d", mode);
    for (int i = 0; i < from.rank; i++) {
        int64_t before = node->attr.pad.before[i], after = node->attr.pad.after[i];
        int64_t largest = before > after ? before : after;
        if (before < 0 || after < 0)
            return lki_fail(
                LK_ERR_INVALID,
                "pad: %lld before and %lld after axis %d of shape %s: expected no negative number",
                (long long)before, (long long)after, i, LKI_SHOW(from));
        if ((mode == LK_PAD_REFLECT && largest > 0 && largest >= from.dim[i]) ||
            (mode == LK_PAD_CIRCULAR && largest > from.dim[i]) ||
            (mode == LK_PAD_REPLICATE && largest > 0 && from.dim[i] == 0))
            return lki_fail(LK_ERR_SHAPE, "pad: %lld is too much for axis %d of shape %s in %s mode",
                            (long long)largest, i, LKI_SHOW(from),
                            mode == LK_PAD_REFLECT    ? "reflect"
                            : mode == LK_PAD_CIRCULAR ? "circular"
                                                      : "replicate");
        to.dim[i] += before + after;
    }
    lki_set_output(node, 0, node->in[0]->dtype, to);
    return LK_OK;
}

lk_status lki_infer_gather(lki_node *node)
{
    LKI_TRY(lki_complete_axis(node, &node->attr.gather.axis));
    LKI_TRY(lki_expect_dtype(node, 1, LK_I64));
    int axis = node->attr.gather.axis;
    lk_shape shape = node->in[0]->shape, index = node->in[1]->shape;
    bool fits = shape.rank == index.rank;
    for (int i = 0; fits && i < shape.rank; i++) fits = i == axis || index.dim[i] <= shape.dim[i];
    if (!fits)
        return lki_fail(LK_ERR_SHAPE, "%s: index %s does not fit input %s along axis %d",
                        lk_op_name(node->op), LKI_SHOW(index), LKI_SHOW(shape), axis);
    lki_set_output(node, 0, node->in[0]->dtype, index);
    return LK_OK;
}

/* (x, index, source of the index's shape) -> the shape of x */
lk_status lki_infer_scatter(lki_node *node)
{
    LKI_TRY(lki_expect_float(node, 0));
    LKI_TRY(lki_expect_same_dtype(node, 0, 2));
    LKI_TRY(lki_infer_gather(node));
    if (!lk_shape_equal(node->in[1]->shape, node->in[2]->shape))
        return lki_fail(LK_ERR_SHAPE, "%s: source %s does not fit index %s", lk_op_name(node->op),
                        LKI_SHOW(node->in[2]->shape), LKI_SHOW(node->in[1]->shape));
    lki_set_output(node, 0, node->in[0]->dtype, node->in[0]->shape);
    return LK_OK;
}

lk_status lki_infer_embedding(lki_node *node)
{
    LKI_TRY(lki_expect_float(node, 0));
    LKI_TRY(lki_expect_dtype(node, 1, LK_I64));
    lk_shape weight = node->in[0]->shape, shape = node->in[1]->shape;
    if (weight.rank != 2)
        return lki_fail(LK_ERR_SHAPE, "embedding: weight %s has not 2 dimensions", LKI_SHOW(weight));
    if (shape.rank == LK_MAX_DIMS)
        return lki_fail(LK_ERR_SHAPE, "embedding: index %s has too many dimensions", LKI_SHOW(shape));
    if (node->attr.embedding.padding_index < -1 || node->attr.embedding.padding_index >= weight.dim[0])
        return lki_fail(LK_ERR_RANGE, "embedding: the padding index %lld is outside of weight %s",
                        (long long)node->attr.embedding.padding_index, LKI_SHOW(weight));
    shape.dim[shape.rank++] = weight.dim[1];
    lki_set_output(node, 0, node->in[0]->dtype, shape);
    return LK_OK;
}

/* dx = dy in the shape of x */
lk_status lki_backward_reshape(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    grad_in[0] = lki_reshaped(grad_out[0], node->in[0]->shape);
    return lki_recorded(node);
}

/* dx = dy summed over the places that x was copied to */
lk_status lki_backward_expand(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    grad_in[0] = lki_sum_to(grad_out[0], node->in[0]->shape);
    return lki_recorded(node);
}

/* dx = dy in the inverse order */
lk_status lki_backward_permute(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    lk_attr attr = {.permute = {{0}}};
    for (int i = 0; i < node->in[0]->shape.rank; i++) attr.permute.order[node->attr.permute.order[i]] = i;
    grad_in[0] = LKI_EMIT(LK_OP_PERMUTE, &attr, grad_out[0]);
    return lki_recorded(node);
}

/* dx = dy at its places, 0 outside of the slice */
lk_status lki_backward_slice(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    lk_attr attr = node->attr;
    attr.slice.shape = node->in[0]->shape;
    grad_in[0] = LKI_EMIT(LK_OP_SLICE_GRAD, &attr, grad_out[0]);
    return lki_recorded(node);
}

/* dx_i = the part of dy that came from x_i */
lk_status lki_backward_concat(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    int64_t begin = 0;
    int axis = node->attr.axis.axis;
    for (int i = 0; i < node->input_count; i++) {
        lk_shape shape = node->in[i]->shape;
        lk_attr attr = {.slice = {.step = {0}}};
        for (int k = 0; k < shape.rank; k++) {
            attr.slice.end[k] = shape.dim[k];
            attr.slice.step[k] = 1;
        }
        attr.slice.begin[axis] = begin;
        begin += shape.dim[axis];
        attr.slice.end[axis] = begin;
        /* An operand of no elements has no gradient to cut out. */
        if (node->in[i]->needs_grad && lk_shape_count(shape) > 0)
            grad_in[i] = LKI_EMIT(LK_OP_SLICE, &attr, grad_out[0]);
    }
    return lki_recorded(node);
}

/* dx = the sum of dy over all places that were filled from x */
lk_status lki_backward_pad(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    lk_attr attr = node->attr;
    attr.pad.shape = node->in[0]->shape;
    grad_in[0] = LKI_EMIT(LK_OP_PAD_GRAD, &attr, grad_out[0]);
    return lki_recorded(node);
}

/* dx = 0, then dx[index] += dy */
lk_status lki_backward_gather(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    lk_attr attr = {.gather = {.axis = node->attr.gather.axis, .shape = node->in[0]->shape}};
    grad_in[0] = LKI_EMIT(LK_OP_GATHER_GRAD, &attr, grad_out[0], node->in[1]);
    return lki_recorded(node);
}

/* scatter_add: dx = dy, dsource = dy[index]. scatter: dx is 0 at the places that were written; what a later
 * element wrote over is still given dy there, as in PyTorch. */
lk_status lki_backward_scatter(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    lk_value *dy = grad_out[0], *index = node->in[1];
    lk_attr attr = {.gather.axis = node->attr.gather.axis};
    if (node->in[0]->needs_grad && node->op == LK_OP_SCATTER)
        grad_in[0] = LKI_EMIT(LK_OP_SCATTER, &attr, dy, index, lki_full_like(node->in[2], 0));
    else if (node->in[0]->needs_grad)
        grad_in[0] = dy;
    if (node->in[2]->needs_grad) grad_in[2] = LKI_EMIT(LK_OP_GATHER, &attr, dy, index);
    return lki_recorded(node);
}

/* dweight = 0, then dweight[index] += dy, but not for the padding row */
lk_status lki_backward_embedding(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    lk_attr attr = node->attr;
    attr.embedding.shape = node->in[0]->shape;
    grad_in[0] = LKI_EMIT(LK_OP_EMBEDDING_GRAD, &attr, grad_out[0], node->in[1]);
    return lki_recorded(node);
}
