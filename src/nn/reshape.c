/* Flatten and Unflatten. */
#include "nn/module.h"

#include "base/status.h"
#include "base/take.h"
#include "graph/graph.h"

typedef struct flatten_context {
    int start, end;
} flatten_context;

static lk_value *flatten_forward(lk_module *module, lk_value *x)
{
    const flatten_context *own = module->context;
    lk_shape shape = lk_value_shape(x), flat = {0};
    int start = own->start < 0 ? own->start + shape.rank : own->start;
    int end = own->end < 0 ? own->end + shape.rank : own->end;
    if (start < 0 || end >= shape.rank || start > end) {
        char text[128];
        return lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE, "cannot flatten axes %d to %d of %s",
                              own->start, own->end, lk_shape_format(text, sizeof text, shape));
    }
    for (int i = 0; i < start; i++) flat.dim[flat.rank++] = shape.dim[i];
    int64_t joined = 1;
    for (int i = start; i <= end; i++) joined *= shape.dim[i];
    flat.dim[flat.rank++] = joined;
    for (int i = end + 1; i < shape.rank; i++) flat.dim[flat.rank++] = shape.dim[i];
    return lk_op_reshape(x, flat);
}

lk_module *lk_flatten_with(const lk_flatten_options *given)
{
    LKI_TAKE(lk_flatten_options, options, given, NULL);
    int64_t start, end;
    if (lki_whole_or(options.start_dim, 1, "Flatten", "start_dim", &start)) return NULL;
    if (lki_whole_or(options.end_dim, -1, "Flatten", "end_dim", &end)) return NULL;
    flatten_context own = {(int)start, (int)end};
    return lki_module_create("Flatten", flatten_forward, &own, sizeof own);
}

typedef struct unflatten_context {
    int axis;
    lk_shape sizes;
} unflatten_context;

static lk_value *unflatten_forward(lk_module *module, lk_value *x)
{
    const unflatten_context *own = module->context;
    lk_shape shape = lk_value_shape(x), sizes = own->sizes, full = {0};
    int axis = own->axis < 0 ? own->axis + shape.rank : own->axis;
    char of[128], into[128];
    if (axis < 0 || axis >= shape.rank || shape.rank - 1 + sizes.rank > LK_MAX_DIMS)
        return lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE, "there is no axis %d to unflatten in %s",
                              own->axis, lk_shape_format(of, sizeof of, shape));
    int64_t known = 1;
    for (int i = 0; i < sizes.rank; i++) known *= sizes.dim[i] < 0 ? 1 : sizes.dim[i];
    for (int i = 0; i < sizes.rank; i++)
        if (sizes.dim[i] < 0) sizes.dim[i] = known > 0 ? shape.dim[axis] / known : 0;
    if (lk_shape_count(sizes) != shape.dim[axis])
        return lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE, "axis %d of %s does not unflatten into %s",
                              own->axis, lk_shape_format(of, sizeof of, shape),
                              lk_shape_format(into, sizeof into, own->sizes));
    for (int i = 0; i < axis; i++) full.dim[full.rank++] = shape.dim[i];
    for (int i = 0; i < sizes.rank; i++) full.dim[full.rank++] = sizes.dim[i];
    for (int i = axis + 1; i < shape.rank; i++) full.dim[full.rank++] = shape.dim[i];
    return lk_op_reshape(x, full);
}

lk_module *lk_unflatten(int dim, lk_shape sizes)
{
    int open_count = 0;
    for (int i = 0; i < sizes.rank; i++) {
        if (sizes.dim[i] < -1)
            return lki_fail_null(LK_ERR_INVALID, "Unflatten: a size must be positive or -1");
        open_count += sizes.dim[i] == -1;
    }
    if (sizes.rank < 1 || open_count > 1)
        return lki_fail_null(LK_ERR_INVALID, "Unflatten: expected sizes of which at most one is -1");
    return lki_module_create("Unflatten", unflatten_forward, &(unflatten_context){dim, sizes},
                             sizeof(unflatten_context));
}
