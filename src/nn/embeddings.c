#include "nn/embeddings.h"

#include "base/memory.h"
#include "base/status.h"
#include "graph/graph.h"
#include "graph/record_util.h"

#include <math.h>
#include <string.h>

lk_status lki_check_embeddings(lk_value *x, lk_value *labels)
{
    lk_shape shape = lk_value_shape(x), of_labels = lk_value_shape(labels);
    if (shape.rank == 2 && of_labels.rank == 1 && of_labels.dim[0] == shape.dim[0]) return LK_OK;
    char mine[128], theirs[128];
    lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE,
                   "expected embeddings (samples, width) and a class for each, found %s and %s",
                   lk_shape_format(mine, sizeof mine, shape),
                   lk_shape_format(theirs, sizeof theirs, of_labels));
    return LK_ERR_SHAPE;
}

lk_value *lki_same_labels(lk_value *labels, lk_dtype dtype)
{
    lk_value *same = lk_op_equal(lk_op_unsqueeze(labels, 1), lk_op_unsqueeze(labels, 0));
    return lk_op_cast(same, dtype);
}

lk_value *lki_identity_like(lk_value *square)
{
    return lk_op_tril(lk_op_triu(lk_op_ones_like(square), 0), 0);
}

lk_value *lki_squared_distances(lk_value *a, lk_value *b)
{
    lk_value *difference = lk_op_sub(lk_op_unsqueeze(a, 1), lk_op_unsqueeze(b, 0));
    return lk_op_sum(lk_op_mul(difference, difference), LK_AXES(2), false);
}

lk_value *lki_normalized(lk_value *x, int axis, double eps)
{
    lk_value *norm = lk_op_norm(x, 2, LK_AXES(axis), true);
    return lk_op_div(x, lk_op_clamp(norm, eps, INFINITY));
}

lk_value *lki_weighted_mean(lk_value *x, lk_value *weights)
{
    lk_value *sum = lk_op_sum(lk_op_mul(x, weights), LK_ALL_AXES, false);
    lk_value *whole = lk_op_sum(weights, LK_ALL_AXES, false);
    if (!sum || !whole) return NULL;
    lk_value *is_empty = lk_op_equal(whole, lki_scalar_like(whole, 0));
    return lk_op_div(sum, lk_op_where(is_empty, lki_scalar_like(whole, 1), whole));
}

lk_value *lki_reduced(lk_value *each, lk_reduction reduction)
{
    if (reduction == LK_REDUCTION_NONE) return each;
    return reduction == LK_REDUCTION_SUM ? lk_op_sum(each, LK_ALL_AXES, false)
                                         : lk_op_mean(each, LK_ALL_AXES, false);
}

lk_status lki_check_reduction(const char *type, lk_reduction reduction)
{
    if ((int)reduction >= LK_REDUCTION_MEAN && reduction <= LK_REDUCTION_NONE) return LK_OK;
    return lki_fail(LK_ERR_INVALID, "%s: reduction: expected mean, sum or none", type);
}

lk_value *lki_target_like(lk_value *x, lk_value *target)
{
    char mine[128], theirs[128];
    if (!x || !target) return NULL;
    if (!lk_shape_equal(lk_value_shape(x), lk_value_shape(target)))
        return lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE, "the prediction is %s and the target %s",
                              lk_shape_format(mine, sizeof mine, lk_value_shape(x)),
                              lk_shape_format(theirs, sizeof theirs, lk_value_shape(target)));
    return lk_value_dtype(target) == lk_value_dtype(x) ? target : lk_op_cast(target, lk_value_dtype(x));
}

lk_value *lki_where_index(lk_value *condition, lk_value *index, double other)
{
    lk_value *numbers = lk_op_cast(index, LK_F64);
    if (!numbers) return NULL;
    return lk_op_cast(lk_op_where(condition, numbers, lki_scalar_like(numbers, other)), LK_I64);
}

lk_criterion *lki_contrib_criterion(const char *type, lk_criterion_function forward, const void *context,
                                    size_t context_nbytes)
{
    void *own = context_nbytes ? lki_calloc(context_nbytes, type) : NULL;
    if (context_nbytes && !own) return NULL;
    if (own) memcpy(own, context, context_nbytes);
    return lk_custom_criterion(.type = type, .forward = forward, .context = own, .free_context = lki_free);
}

lk_criterion *lki_several_criterion(const char *type, lk_criterion_call_function call, int inputs,
                                    const void *context, size_t context_nbytes)
{
    void *own = lki_calloc(context_nbytes, type);
    if (!own) return NULL;
    memcpy(own, context, context_nbytes);
    return lk_custom_criterion(.type = type, .call = call, .inputs = inputs, .context = own,
                               .free_context = lki_free);
}
