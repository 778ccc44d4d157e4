/* The public ops that take tensors apart and put them together, all made of others. */
#include "graph/record_util.h"

#include "base/memory.h"
#include "base/status.h"

/* The axis counted from the front; fails the recording and returns -1 if it is outside of `rank`. */
static int checked_axis(lk_value *x, const char *name, int axis, int rank)
{
    int normal = lki_normal_axis(axis, rank);
    if (normal < 0)
        lki_graph_fail(x->graph, LK_ERR_RANGE, "%s: axis %d is outside of shape %s", name, axis,
                       LKI_SHOW(x->shape));
    return normal;
}

lk_value *lk_op_unsqueeze(lk_value *x, int axis)
{
    if (!x) return NULL;
    lk_shape shape = x->shape;
    int at = checked_axis(x, "unsqueeze", axis, shape.rank + 1);
    if (at < 0) return NULL;
    if (shape.rank == LK_MAX_DIMS)
        return lki_graph_fail(x->graph, LK_ERR_SHAPE, "unsqueeze: shape %s has no room for another axis",
                              LKI_SHOW(shape));
    for (int i = shape.rank++; i > at; i--) shape.dim[i] = shape.dim[i - 1];
    shape.dim[at] = 1;
    return lk_op_reshape(x, shape);
}

lk_value *lk_op_squeeze(lk_value *x, int axis)
{
    if (!x) return NULL;
    lk_shape shape = x->shape;
    int at = checked_axis(x, "squeeze", axis, shape.rank);
    if (at < 0) return NULL;
    if (shape.dim[at] != 1) return x;
    for (int i = at; i + 1 < shape.rank; i++) shape.dim[i] = shape.dim[i + 1];
    shape.dim[--shape.rank] = 0;
    return lk_op_reshape(x, shape);
}

lk_value *lk_op_stack(lk_value *const *values, int count, int axis)
{
    if (count < 1 || !values[0]) return NULL;
    lk_graph *graph = values[0]->graph;
    lk_value **wide = LKI_ARENA_NEW_ARRAY(&graph->arena, lk_value *, count);
    if (!wide) return lki_graph_fail(graph, LK_ERR_NOMEM, "stack: out of memory");
    int at = checked_axis(values[0], "stack", axis, values[0]->shape.rank + 1);
    if (at < 0) return NULL;
    for (int i = 0; i < count; i++) {
        if (values[i] && !lk_shape_equal(values[i]->shape, values[0]->shape))
            return lki_graph_fail(graph, LK_ERR_SHAPE, "stack: shapes %s and %s differ",
                                  LKI_SHOW(values[0]->shape), LKI_SHOW(values[i]->shape));
        wide[i] = lk_op_unsqueeze(values[i], at);
    }
    return lk_op_concat(wide, count, at);
}

/* Fails the recording, and gives nothing. */
static lk_status give_up(lk_value **out, int count, const lk_graph *graph)
{
    for (int i = 0; i < count; i++) out[i] = NULL;
    return graph && graph->status ? graph->status : LK_ERR_INVALID;
}

static lk_status fail_count(lk_value **out, int count, lk_value *x, const char *name, int axis, int64_t found)
{
    lki_graph_fail(x->graph, LK_ERR_SHAPE, "%s: axis %d of shape %s gives %lld parts, not %d", name, axis,
                   LKI_SHOW(x->shape), (long long)found, count);
    return give_up(out, count, x->graph);
}

lk_status lk_op_split_sizes(lk_value **out, const int64_t *sizes, int count, lk_value *x, int axis)
{
    int64_t begin = 0, total = 0;
    int at = x ? checked_axis(x, "split", axis, x->shape.rank) : -1;
    if (at < 0) return give_up(out, count, x ? x->graph : NULL);
    for (int i = 0; i < count; i++) {
        if (sizes[i] < 0) {
            lki_graph_fail(x->graph, LK_ERR_SHAPE, "split: size %lld is negative", (long long)sizes[i]);
            return give_up(out, count, x->graph);
        }
        total += sizes[i];
    }
    if (total != x->shape.dim[at]) {
        lki_graph_fail(x->graph, LK_ERR_SHAPE,
                       "split: the sizes add up to %lld, which is not axis %d of shape %s", (long long)total,
                       at, LKI_SHOW(x->shape));
        return give_up(out, count, x->graph);
    }
    for (int i = 0; i < count; i++) {
        out[i] = lk_op_slice(x, at, begin, begin + sizes[i], 1);
        begin += sizes[i];
        if (!out[i]) return give_up(out, count, x->graph);
    }
    return LK_OK;
}

static lk_status split(lk_value **out, int count, lk_value *x, int64_t size, int axis, const char *name)
{
    int at = x ? checked_axis(x, name, axis, x->shape.rank) : -1;
    if (at < 0) return give_up(out, count, x ? x->graph : NULL);
    int64_t length = x->shape.dim[at], parts = size > 0 ? length / size + (length % size != 0) : 0;
    if (parts != count) return fail_count(out, count, x, name, at, parts);
    for (int i = 0; i < count; i++) {
        int64_t end = length - i * size < size ? length : (i + 1) * size;
        out[i] = lk_op_slice(x, at, i * size, end, 1);
        if (!out[i]) return give_up(out, count, x->graph);
    }
    return LK_OK;
}

lk_status lk_op_split(lk_value **out, int count, lk_value *x, int64_t size, int axis)
{
    return split(out, count, x, size, axis, "split");
}

lk_status lk_op_chunk(lk_value **out, int count, lk_value *x, int axis)
{
    int at = x ? checked_axis(x, "chunk", axis, x->shape.rank) : -1;
    if (at < 0 || count < 1) return give_up(out, count, x ? x->graph : NULL);
    return split(out, count, x, (x->shape.dim[at] + count - 1) / count, at, "chunk");
}

lk_status lk_op_unbind(lk_value **out, int count, lk_value *x, int axis)
{
    LKI_TRY(split(out, count, x, 1, axis, "unbind"));
    int at = lki_normal_axis(axis, x->shape.rank);
    for (int i = 0; i < count; i++) out[i] = lk_op_squeeze(out[i], at);
    return count == 0 || out[count - 1] ? LK_OK : give_up(out, count, x->graph);
}

lk_value *lk_op_flip(lk_value *x, const int *axes, int axis_count)
{
    int count = axis_count ? axis_count : x ? x->shape.rank : 0;
    for (int i = 0; i < count && x; i++) {
        int at = checked_axis(x, "flip", axis_count ? axes[i] : i, x->shape.rank);
        if (at < 0) return NULL;
        int64_t length = x->shape.dim[at];
        if (length > 1)
            x = lk_op_index_select(x, at, lk_op_arange(x->graph, (double)length - 1, -1, -1, LK_I64));
    }
    return x;
}

lk_value *lk_op_roll(lk_value *x, int64_t shift, int axis)
{
    if (!x) return NULL;
    int at = checked_axis(x, "roll", axis, x->shape.rank);
    if (at < 0) return NULL;
    int64_t length = x->shape.dim[at], split = length ? (length - shift % length) % length : 0;
    if (split == 0) return x;
    lk_value *parts[] = {lk_op_slice(x, at, split, length, 1), lk_op_slice(x, at, 0, split, 1)};
    return lk_op_concat(parts, 2, at);
}

/* (a, b) becomes (1, a, 1, b), is broadcast to (m, a, n, b) and read as (m a, n b). */
lk_value *lk_op_repeat(lk_value *x, const int64_t *repeats, int count)
{
    if (!x) return NULL;
    int rank = x->shape.rank;
    bool fits = count >= rank && count <= LK_MAX_DIMS;
    for (int i = 0; i < count && fits; i++) fits = repeats[i] >= 0;
    if (!fits)
        return lki_graph_fail(x->graph, LK_ERR_INVALID,
                              "repeat: shape %s needs one number per axis, at least 0, not %d of them",
                              LKI_SHOW(x->shape), count);
    lk_shape shape = {.rank = count};
    for (int i = 0; i < count; i++) shape.dim[i] = i < count - rank ? 1 : x->shape.dim[i - (count - rank)];
    x = lk_op_reshape(x, shape);
    for (int i = 0; i < count && x; i++) {
        if (repeats[i] == 1) continue;
        int64_t outer = 1, inner = 1;
        for (int k = 0; k < i; k++) outer *= shape.dim[k];
        for (int k = i; k < count; k++) inner *= shape.dim[k];
        x = lk_op_expand(lk_op_reshape(x, LK_SHAPE(outer, 1, inner)), LK_SHAPE(outer, repeats[i], inner));
        shape.dim[i] *= repeats[i];
        x = lk_op_reshape(x, shape);
    }
    return x;
}

/* A list of numbers as the index of lk_op_gather: the same for every line along the axis. */
static lk_value *spread_index(lk_value *index, lk_shape like, int axis)
{
    lk_shape line = {.rank = like.rank}, whole = like;
    for (int i = 0; i < like.rank; i++) line.dim[i] = 1;
    line.dim[axis] = whole.dim[axis] = index->shape.dim[0];
    return lk_op_expand(lk_op_reshape(index, line), whole);
}

static bool check_list(lk_value *x, lk_value *index, const char *name, int axis, int *at)
{
    *at = checked_axis(x, name, axis, x->shape.rank);
    if (*at < 0) return false;
    if (index->dtype == LK_I64 && index->shape.rank == 1) return true;
    lki_graph_fail(x->graph, LK_ERR_SHAPE, "%s: the index must be i64 of one axis, not %s of shape %s", name,
                   lk_dtype_name(index->dtype), LKI_SHOW(index->shape));
    return false;
}

lk_value *lk_op_index_select(lk_value *x, int axis, lk_value *index)
{
    int at;
    if (!x || !index || !check_list(x, index, "index_select", axis, &at)) return NULL;
    return lk_op_gather(x, at, spread_index(index, x->shape, at));
}

/* The part of the source that the index covers. */
static lk_value *covered(lk_value *source, lk_shape index)
{
    lk_attr attr = {.slice = {.step = {0}}};
    if (!source || source->shape.rank != index.rank || lk_shape_equal(source->shape, index)) return source;
    for (int i = 0; i < index.rank; i++) {
        if (index.dim[i] > source->shape.dim[i] || index.dim[i] == 0) return source;
        attr.slice.end[i] = index.dim[i];
        attr.slice.step[i] = 1;
    }
    return LKI_EMIT(LK_OP_SLICE, &attr, source);
}

static lk_value *scatter(lk_op op, lk_value *x, int axis, lk_value *index, lk_value *source)
{
    if (!x || !index || !source) return NULL;
    return LKI_EMIT(op, LKI_ATTR(.gather.axis = axis), x, index, covered(source, index->shape));
}

lk_value *lk_op_scatter(lk_value *x, int axis, lk_value *index, lk_value *source)
{
    return scatter(LK_OP_SCATTER, x, axis, index, source);
}

lk_value *lk_op_scatter_add(lk_value *x, int axis, lk_value *index, lk_value *source)
{
    return scatter(LK_OP_SCATTER_ADD, x, axis, index, source);
}

lk_value *lk_op_index_add(lk_value *x, int axis, lk_value *index, lk_value *source)
{
    int at;
    if (!x || !index || !source || !check_list(x, index, "index_add", axis, &at)) return NULL;
    lk_value *places = spread_index(index, x->shape, at);
    if (places && !lk_shape_equal(places->shape, source->shape))
        return lki_graph_fail(x->graph, LK_ERR_SHAPE, "index_add: source %s does not fit: expected %s",
                              LKI_SHOW(source->shape), LKI_SHOW(places->shape));
    return LKI_EMIT(LK_OP_SCATTER_ADD, LKI_ATTR(.gather.axis = at), x, places, source);
}
