/* Modules of two inputs: how alike they are, and a bilinear form. */
#include "nn/init.h"
#include "nn/nodes.h"

#include "base/status.h"
#include "base/take.h"
#include "graph/graph.h"
#include "graph/record_util.h"

#include <math.h>

typedef struct similarity {
    int64_t dim;
    double p, eps;
    bool keep_dims;
} similarity;

/* x / max(|x|, eps). As in PyTorch, the gradient of a norm below eps is that of the norm. */
static lk_value *direction(lk_value *x, int axis, double eps)
{
    lk_value *norm = lk_op_norm(x, 2, LK_AXES(axis), true);
    lk_value *moved = lk_op_detach(lk_op_sub(lk_op_clamp(norm, eps, INFINITY), norm));
    return lk_op_div(x, lk_op_add(norm, moved));
}

static lk_status cosine_call(lk_module *module, lk_value *const *inputs, int count, lk_value **outputs,
                             int output_count)
{
    const similarity *own = module->context;
    (void)count, (void)output_count;
    lk_graph *graph = lk_value_graph(inputs[0]);
    lk_shape common;
    if (lki_broadcast(&common, lk_value_shape(inputs[0]), lk_value_shape(inputs[1]))) {
        lki_graph_fail(graph, LK_ERR_SHAPE, "%s and %s do not broadcast", LKI_SHOW(lk_value_shape(inputs[0])),
                       LKI_SHOW(lk_value_shape(inputs[1])));
        return LK_ERR_SHAPE;
    }
    int axis = lki_normal_axis((int)own->dim, common.rank);
    if (axis < 0) {
        lki_graph_fail(graph, LK_ERR_RANGE, "dim: %s has no axis %lld", LKI_SHOW(common),
                       (long long)own->dim);
        return LK_ERR_RANGE;
    }
    lk_value *a = lk_op_expand(inputs[0], common), *b = lk_op_expand(inputs[1], common);
    lk_value *product = lk_op_mul(direction(a, axis, own->eps), direction(b, axis, own->eps));
    outputs[0] = lk_op_sum(product, LK_AXES(axis), false);
    return LK_OK;
}

static lk_status distance_call(lk_module *module, lk_value *const *inputs, int count, lk_value **outputs,
                               int output_count)
{
    const similarity *own = module->context;
    (void)count, (void)output_count;
    lk_value *apart = lk_op_add_scalar(lk_op_sub(inputs[0], inputs[1]), own->eps);
    outputs[0] = lk_op_norm(apart, own->p, LK_AXES(-1), own->keep_dims);
    return LK_OK;
}

static lk_status check_eps(const char *type, double eps)
{
    if (eps >= 0 && !isinf(eps)) return LK_OK;
    return lki_fail(LK_ERR_INVALID, "%s: eps: expected 0 or more, found %g", type, eps);
}

lk_module *lk_cosine_similarity_with(const lk_similarity_options *given)
{
    LKI_TAKE(lk_similarity_options, options, given, NULL);
    similarity own = {.eps = lki_number_or(options.eps, 1e-8)};
    if (lki_whole_or(options.dim, 1, "CosineSimilarity", "dim", &own.dim) ||
        check_eps("CosineSimilarity", own.eps))
        return NULL;
    if (lki_number_given(options.p) || options.keepdim)
        return lki_fail_null(LK_ERR_INVALID, "CosineSimilarity: p and keepdim belong to PairwiseDistance");
    return lki_module_of_named("CosineSimilarity", cosine_call, "x1 x2", 2, &own, sizeof own);
}

lk_module *lk_pairwise_distance_with(const lk_similarity_options *given)
{
    LKI_TAKE(lk_similarity_options, options, given, NULL);
    similarity own = {.p = lki_number_or(options.p, 2),
                      .eps = lki_number_or(options.eps, 1e-6),
                      .keep_dims = options.keepdim};
    if (check_eps("PairwiseDistance", own.eps)) return NULL;
    if (!(own.p >= 0))
        return lki_fail_null(LK_ERR_INVALID, "PairwiseDistance: p: expected 0 or more, found %g", own.p);
    if (lki_number_given(options.dim))
        return lki_fail_null(LK_ERR_INVALID, "PairwiseDistance: dim belongs to CosineSimilarity");
    return lki_module_of_named("PairwiseDistance", distance_call, "x1 x2", 2, &own, sizeof own);
}

/* ---- Bilinear ---- */

/* W (out, in1, in2) as (out in2, in1): one product gives x1 W_k for each k, and a second one its product with
 * x2. */
static lk_status bilinear_call(lk_module *module, lk_value *const *inputs, int count, lk_value **outputs,
                               int output_count)
{
    lk_value *weight = lki_module_value(module, inputs[0], "weight"),
             *bias = lki_module_value(module, inputs[0], "bias");
    lk_shape w = lk_value_shape(weight), a = lk_value_shape(inputs[0]), b = lk_value_shape(inputs[1]);
    (void)count, (void)output_count;
    bool fits =
        a.rank == b.rank && a.rank >= 1 && a.dim[a.rank - 1] == w.dim[1] && b.dim[a.rank - 1] == w.dim[2];
    for (int i = 0; fits && i < a.rank - 1; i++) fits = a.dim[i] == b.dim[i];
    if (!fits) {
        lki_graph_fail(lk_value_graph(inputs[0]), LK_ERR_SHAPE,
                       "expected inputs (..., %lld) and (..., %lld), found %s and %s", (long long)w.dim[1],
                       (long long)w.dim[2], LKI_SHOW(a), LKI_SHOW(b));
        return LK_ERR_SHAPE;
    }
    int64_t rows = lk_shape_count(a) / w.dim[1];
    lk_value *flat = lk_op_reshape(lk_op_transpose(weight, 1, 2), LK_SHAPE(w.dim[0] * w.dim[2], w.dim[1]));
    lk_value *half = lk_op_linear(lk_op_reshape(inputs[0], LK_SHAPE(rows, w.dim[1])), flat, NULL);
    half = lk_op_reshape(half, LK_SHAPE(rows, w.dim[0], w.dim[2]));
    lk_value *other = lk_op_reshape(inputs[1], LK_SHAPE(rows, w.dim[2], 1));
    lk_shape shape = a;
    shape.dim[a.rank - 1] = w.dim[0];
    lk_value *y = lk_op_reshape(lk_op_matmul(half, other), shape);
    outputs[0] = bias ? lk_op_add(y, bias) : y;
    return LK_OK;
}

lk_module *lk_bilinear_with(int64_t in1_features, int64_t in2_features, int64_t out_features,
                            const lk_linear_options *given)
{
    LKI_TAKE(lk_linear_options, options, given, NULL);
    if (in1_features < 1 || in2_features < 1 || out_features < 1)
        return lki_fail_null(LK_ERR_INVALID,
                             "Bilinear: expected at least 1 feature in and out, found %lld, %lld and %lld",
                             (long long)in1_features, (long long)in2_features, (long long)out_features);
    lk_module *module = lki_module_of_named("Bilinear", bilinear_call, "x1 x2", 2, NULL, 0);
    double bound = 1 / sqrt((double)in1_features);
    lk_param *weight =
        lki_module_new_param(module, "weight", LK_SHAPE(out_features, in1_features, in2_features));
    lk_param *bias = options.no_bias ? NULL : lki_module_new_param(module, "bias", LK_SHAPE(out_features));
    if (weight) lki_module_note(module, lk_init_uniform(weight, -bound, bound));
    if (bias) lki_module_note(module, lk_init_uniform(bias, -bound, bound));
    return lki_module_checked(module);
}
