/* The public ops that move data. */
#include "graph/record_util.h"

static lk_value *fail_axis(lk_value *x, lk_op op, int axis)
{
    return lki_graph_fail(x->graph, LK_ERR_RANGE, "%s: axis %d is outside of shape %s", lk_op_name(op), axis,
                          LKI_SHOW(x->shape));
}

lk_value *lk_op_reshape(lk_value *x, lk_shape shape)
{
    return LKI_EMIT(LK_OP_RESHAPE, LKI_ATTR(.shape.shape = shape), x);
}

lk_value *lk_op_permute(lk_value *x, const int *order)
{
    lk_attr attr = {.permute = {{0}}};
    if (!x) return NULL;
    for (int i = 0; i < x->shape.rank; i++) attr.permute.order[i] = order[i];
    return LKI_EMIT(LK_OP_PERMUTE, &attr, x);
}

lk_value *lk_op_transpose(lk_value *x, int axis_a, int axis_b)
{
    lk_attr attr = {.permute = {{0}}};
    if (!x) return NULL;
    int a = lki_normal_axis(axis_a, x->shape.rank), b = lki_normal_axis(axis_b, x->shape.rank);
    if (a < 0 || b < 0)
        return lki_graph_fail(x->graph, LK_ERR_RANGE, "transpose: axis %d is outside of shape %s",
                              a < 0 ? axis_a : axis_b, LKI_SHOW(x->shape));
    if (a == b) return x;
    for (int i = 0; i < x->shape.rank; i++) attr.permute.order[i] = i == a ? b : i == b ? a : i;
    return LKI_EMIT(LK_OP_PERMUTE, &attr, x);
}

lk_value *lk_op_expand(lk_value *x, lk_shape shape)
{
    return LKI_EMIT(LK_OP_EXPAND, LKI_ATTR(.shape.shape = shape), x);
}

/* As in Python: negative places count from the end, and places beyond an end mean that end. */
static int64_t place_in(int64_t place, int64_t size)
{
    if (place < 0) place += size;
    return place < 0 ? 0 : place > size ? size : place;
}

lk_value *lk_op_slice(lk_value *x, int axis, int64_t begin, int64_t end, int64_t step)
{
    lk_attr attr = {.slice = {.step = {0}}};
    if (!x) return NULL;
    int sliced = lki_normal_axis(axis, x->shape.rank);
    if (sliced < 0) return fail_axis(x, LK_OP_SLICE, axis);
    for (int i = 0; i < x->shape.rank; i++) {
        attr.slice.end[i] = x->shape.dim[i];
        attr.slice.step[i] = 1;
    }
    attr.slice.begin[sliced] = place_in(begin, x->shape.dim[sliced]);
    attr.slice.end[sliced] = place_in(end, x->shape.dim[sliced]);
    attr.slice.step[sliced] = step;
    return LKI_EMIT(LK_OP_SLICE, &attr, x);
}

lk_value *lk_op_concat(lk_value *const *values, int count, int axis)
{
    return count < 1 ? NULL : lki_emit(LK_OP_CONCAT, LKI_ATTR(.axis.axis = axis), count, values);
}

lk_value *lk_op_pad(lk_value *x, const int64_t *before, const int64_t *after, lk_pad_mode mode, double value)
{
    lk_attr attr = {.pad = {.mode = mode, .value = value}};
    if (!x) return NULL;
    for (int i = 0; i < x->shape.rank; i++) {
        attr.pad.before[i] = before[i];
        attr.pad.after[i] = after[i];
    }
    return LKI_EMIT(LK_OP_PAD, &attr, x);
}

lk_value *lk_op_gather(lk_value *x, int axis, lk_value *index)
{
    return LKI_EMIT(LK_OP_GATHER, LKI_ATTR(.gather.axis = axis), x, index);
}

lk_value *lk_op_embedding(lk_value *weight, lk_value *index, int64_t padding_index)
{
    return LKI_EMIT(LK_OP_EMBEDDING, LKI_ATTR(.embedding.padding_index = padding_index), weight, index);
}
