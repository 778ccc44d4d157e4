/* The public ops that make values out of numbers: constants, masks, random numbers. */
#include "graph/record_util.h"

#include <math.h>

lk_value *lk_op_full(lk_graph *graph, lk_shape shape, double value, lk_dtype dtype)
{
    lk_attr attr = {.fill = {.value = value, .dtype = dtype, .shape = shape}};
    return graph ? lki_record(graph, LK_OP_FULL, NULL, 0, 0, &attr) : NULL;
}

lk_value *lk_op_zeros(lk_graph *graph, lk_shape shape, lk_dtype dtype)
{
    return lk_op_full(graph, shape, 0, dtype);
}

lk_value *lk_op_ones(lk_graph *graph, lk_shape shape, lk_dtype dtype)
{
    return lk_op_full(graph, shape, 1, dtype);
}

lk_value *lk_op_full_like(lk_value *x, double value)
{
    return x ? lki_full_like(x, value) : NULL;
}

lk_value *lk_op_zeros_like(lk_value *x)
{
    return lk_op_full_like(x, 0);
}

lk_value *lk_op_ones_like(lk_value *x)
{
    return lk_op_full_like(x, 1);
}

/* Hands the tensor over. */
static lk_value *constant(lk_graph *graph, lk_tensor *tensor)
{
    if (!tensor) return lki_graph_fail(graph, LK_ERR_NOMEM, "out of memory for a constant");
    lk_value *value = lk_graph_constant(graph, tensor);
    lk_tensor_free(tensor);
    return value;
}

lk_value *lk_op_arange(lk_graph *graph, double start, double end, double step, lk_dtype dtype)
{
    if (!graph) return NULL;
    double count = ceil((end - start) / step);
    if (!(step != 0) || !(count >= 0) || count > 1e15)
        return lki_graph_fail(graph, LK_ERR_INVALID, "arange: there is no way from %g to %g in steps of %g",
                              start, end, step);
    lk_tensor *tensor = lk_tensor_create(dtype, LK_SHAPE((int64_t)count));
    for (int64_t i = 0; tensor && i < (int64_t)count; i++) lk_tensor_set(tensor, i, start + (double)i * step);
    return constant(graph, tensor);
}

static lk_value *triangle(lk_value *x, int64_t diagonal, bool upper)
{
    if (!x) return NULL;
    int rank = x->shape.rank;
    if (rank < 2)
        return lki_graph_fail(x->graph, LK_ERR_SHAPE, "%s: shape %s has not 2 axes", upper ? "triu" : "tril",
                              LKI_SHOW(x->shape));
    int64_t rows = x->shape.dim[rank - 2], columns = x->shape.dim[rank - 1];
    lk_tensor *mask = lk_tensor_create(LK_BOOL, LK_SHAPE(rows, columns));
    for (int64_t i = 0; mask && i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            lk_tensor_set(mask, i * columns + j, upper ? j - i >= diagonal : j - i <= diagonal);
    return lk_op_where(constant(x->graph, mask), x, lki_scalar_like(x, 0));
}

lk_value *lk_op_triu(lk_value *x, int64_t diagonal)
{
    return triangle(x, diagonal, true);
}

lk_value *lk_op_tril(lk_value *x, int64_t diagonal)
{
    return triangle(x, diagonal, false);
}

lk_value *lk_op_one_hot(lk_value *index, int64_t class_count)
{
    if (!index) return NULL;
    if (index->dtype != LK_I64 || class_count < 1)
        return lki_graph_fail(index->graph, LK_ERR_INVALID,
                              "one_hot: expected i64 and at least 1 class, found %s and %lld",
                              lk_dtype_name(index->dtype), (long long)class_count);
    lk_value *classes = lk_op_arange(index->graph, 0, (double)class_count, 1, LK_I64);
    return lk_op_cast(lk_op_equal(lk_op_unsqueeze(index, -1), classes), LK_I64);
}

lk_value *lk_op_masked_fill(lk_value *x, lk_value *mask, double value)
{
    if (!x || !mask) return NULL;
    return lk_op_where(mask, lki_scalar_like(x, value), x);
}

static lk_value *draw(lk_graph *graph, lk_shape shape, lk_dtype dtype, lk_random_kind kind, double a,
                      double b)
{
    lk_attr attr = {.random = {.kind = kind, .a = a, .b = b, .dtype = dtype, .shape = shape}};
    return graph ? lki_record(graph, LK_OP_RANDOM, NULL, 0, 0, &attr) : NULL;
}

lk_value *lk_op_uniform(lk_graph *graph, lk_shape shape, double from, double to, lk_dtype dtype)
{
    return draw(graph, shape, dtype, LK_RANDOM_UNIFORM, from, to);
}

lk_value *lk_op_normal(lk_graph *graph, lk_shape shape, double mean, double std, lk_dtype dtype)
{
    return draw(graph, shape, dtype, LK_RANDOM_NORMAL, mean, std);
}

lk_value *lk_op_bernoulli(lk_graph *graph, lk_shape shape, double p, lk_dtype dtype)
{
    return draw(graph, shape, dtype, LK_RANDOM_BERNOULLI, p, 0);
}
