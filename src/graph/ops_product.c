/* The public products, convolutions and poolings. As in PyTorch a vector is a matrix of one row or column,
 * and an input without a batch is a batch of one; the reshapes around them cost nothing. */
#include "graph/ops_resize.h"
#include "graph/record_util.h"

#include <math.h>

lk_value *lk_op_matmul(lk_value *a, lk_value *b)
{
    if (!a || !b) return NULL;
    bool row = a->shape.rank == 1, column = b->shape.rank == 1;
    if (row) a = lki_reshaped(a, LK_SHAPE(1, a->shape.dim[0]));
    if (column) b = lki_reshaped(b, LK_SHAPE(b->shape.dim[0], 1));
    lk_value *y = LKI_EMIT(LK_OP_MATMUL, NULL, a, b);
    if (!y || !(row || column)) return y;
    int rank = y->shape.rank;
    uint32_t gone = (row ? 1u << (rank - 2) : 0) | (column ? 1u << (rank - 1) : 0);
    return lki_reshaped(y, lki_reduced_shape(y->shape, gone, false));
}

lk_value *lk_op_linear(lk_value *x, lk_value *weight, lk_value *bias)
{
    return LKI_EMIT(LK_OP_LINEAR, NULL, x, weight, bias);
}

/* x with a batch axis in front where it has none. */
static lk_value *batched(lk_value *x, int rank, bool *alone)
{
    *alone = x->shape.rank == rank + 1;
    if (!*alone) return x;
    lk_shape shape = {.rank = rank + 2, .dim = {1}};
    for (int i = 0; i <= rank; i++) shape.dim[i + 1] = x->shape.dim[i];
    return lki_reshaped(x, shape);
}

static lk_value *unbatched(lk_value *y, bool alone)
{
    return y && alone ? lki_reshaped(y, lki_reduced_shape(y->shape, 1, false)) : y;
}

static lk_value *convolve(lk_op op, lk_value *x, lk_value *weight, lk_value *bias, lk_window window)
{
    bool alone;
    if (!x || !weight) return NULL;
    if (window.rank == 0) window.rank = weight->shape.rank - 2;
    x = batched(x, window.rank, &alone);
    return unbatched(LKI_EMIT(op, LKI_ATTR(.conv.window = window), x, weight, bias), alone);
}

lk_value *lk_op_conv(lk_value *x, lk_value *weight, lk_value *bias, lk_window window)
{
    return convolve(LK_OP_CONV, x, weight, bias, window);
}

lk_value *lk_op_conv_transpose(lk_value *x, lk_value *weight, lk_value *bias, lk_window window)
{
    return convolve(LK_OP_CONV_TRANSPOSE, x, weight, bias, window);
}

static lk_value *pool(lk_op op, lk_value *x, lk_window window)
{
    bool alone;
    if (!x) return NULL;
    x = batched(x, window.rank, &alone);
    return unbatched(LKI_EMIT(op, LKI_ATTR(.pool.window = window), x), alone);
}

lk_value *lk_op_max_pool(lk_value *x, lk_window window)
{
    return pool(LK_OP_MAX_POOL, x, window);
}

lk_value *lk_op_avg_pool(lk_value *x, lk_window window)
{
    return pool(LK_OP_AVG_POOL, x, window);
}

lk_value *lk_op_adaptive_avg_pool(lk_value *x, const int64_t *output_size, int rank)
{
    bool alone;
    if (!x) return NULL;
    x = batched(x, rank, &alone);
    if (!x) return NULL;
    lk_attr attr = {.pool = {.window = {.rank = rank}, .shape = x->shape}};
    for (int i = 0; i < rank && i + 2 < x->shape.rank; i++) attr.pool.shape.dim[i + 2] = output_size[i];
    return unbatched(LKI_EMIT(LK_OP_ADAPTIVE_AVG_POOL, &attr, x), alone);
}

lk_value *lk_op_upsample(lk_value *x, const int64_t *size, const double *scale, lk_upsample_mode mode,
                         bool align_corners)
{
    if (!x) return NULL;
    if (!size == !scale)
        return lki_graph_fail(x->graph, LK_ERR_INVALID, "upsample: expected either a size or a scale");
    int rank = x->shape.rank - 2;
    if (rank < 1 || rank > 3)
        return lki_graph_fail(x->graph, LK_ERR_SHAPE,
                              "upsample: input %s: expected 3 to 5 dimensions, (batch, channels, ...)",
                              LKI_SHOW(x->shape));
    lk_attr attr = {
        .upsample = {.rank = rank, .mode = mode, .align_corners = align_corners, .shape = x->shape}};
    for (int i = 0; i < rank; i++) {
        if (scale && !(scale[i] > 0 && scale[i] < 1e9))
            return lki_graph_fail(x->graph, LK_ERR_INVALID, "upsample: the scale must be above 0, but is %g",
                                  scale[i]);
        if (scale) attr.upsample.scale[i] = scale[i];
        attr.upsample.shape.dim[i + 2] =
            scale ? (int64_t)floor((double)x->shape.dim[i + 2] * scale[i]) : size[i];
    }
    if (mode == LK_UPSAMPLE_BICUBIC || mode == LK_UPSAMPLE_NEAREST_EXACT)
        return lki_resize_by_index(x, &attr.upsample);
    return LKI_EMIT(LK_OP_UPSAMPLE, &attr, x);
}
