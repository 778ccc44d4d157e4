/* catalyst.contrib's pools of whole pictures, its blocks of squeeze and excitation, and its RMSNorm. */
#include <lockstep/contrib.h>

#include "base/arguments.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "graph/graph.h"
#include "graph/record_util.h"
#include "nn/module.h"

#include <math.h>

static bool is_pictures(lk_value *x)
{
    lk_shape shape = lk_value_shape(x);
    if (shape.rank == 4) return true;
    lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE,
                   "expected pictures (samples, channels, height, width), found %s", LKI_SHOW(shape));
    return false;
}

/* ---- pools ---- */

static lk_value *average(lk_value *x)
{
    return lk_op_mean(x, LK_AXES(2, 3), true);
}

/* Of equal numbers the first wins, as in PyTorch. */
static lk_value *maximum(lk_value *x)
{
    lk_shape shape = lk_value_shape(x);
    lk_window window = {.rank = 2,
                        .groups = 1,
                        .kernel = {shape.dim[2], shape.dim[3]},
                        .stride = {shape.dim[2], shape.dim[3]},
                        .dilation = {1, 1}};
    return lk_op_max_pool(x, window);
}

static lk_value *average_forward(lk_module *module, lk_value *x)
{
    (void)module;
    return is_pictures(x) ? average(x) : NULL;
}

static lk_value *maximum_forward(lk_module *module, lk_value *x)
{
    (void)module;
    return is_pictures(x) ? maximum(x) : NULL;
}

lk_module *lk_global_avg_pool2d(void)
{
    return lki_module_create("GlobalAvgPool2d", average_forward, NULL, 0);
}

lk_module *lk_global_max_pool2d(void)
{
    return lki_module_create("GlobalMaxPool2d", maximum_forward, NULL, 0);
}

/* What the children make of x, side by side. */
static lk_value *side_by_side(lk_module *module, lk_value *x)
{
    lk_value *values[3] = {0};
    for (int i = 0; i < module->child_count; i++) {
        values[i] = lk_module_forward(module->children[i].module, x);
        if (!values[i]) return NULL;
    }
    return lk_op_concat(values, module->child_count, 1);
}

lk_module *lk_global_concat_pool2d(void)
{
    return lk_custom_module(.type = "GlobalConcatPool2d", .forward = side_by_side,
                            .children = lk_children({"avg", lk_global_avg_pool2d()},
                                                    {"max", lk_global_max_pool2d()}));
}

static lk_value *attention_forward(lk_module *module, lk_value *x)
{
    if (!is_pictures(x)) return NULL;
    lk_value *weights = lk_module_forward(module->children[0].module, x); /* (N, 1, H, W) */
    return lk_op_sum(lk_op_mul(x, weights), LK_AXES(2, 3), true);
}

static lk_module *attention_pool(int64_t in_features, const lk_global_attn_pool2d_options *options)
{
    lk_module *activation = options->activation ? options->activation : lk_sigmoid();
    lk_module *attention = lk_sequential(lk_conv2d(in_features, 1, 1, .no_bias = true), activation);
    return lk_custom_module(.type = "GlobalAttnPool2d", .forward = attention_forward,
                            .children = lk_children({"attn", attention}));
}

lk_module *lk_global_attn_pool2d_with(int64_t in_features, const lk_global_attn_pool2d_options *given)
{
    LKI_TAKE(lk_global_attn_pool2d_options, options, given, NULL);
    return attention_pool(in_features, &options);
}

lk_module *lk_global_avg_attn_pool2d_with(int64_t in_features, const lk_global_attn_pool2d_options *given)
{
    LKI_TAKE(lk_global_attn_pool2d_options, options, given, NULL);
    return lk_custom_module(.type = "GlobalAvgAttnPool2d", .forward = side_by_side,
                            .children = lk_children({"avg", lk_global_avg_pool2d()},
                                                    {"attn", attention_pool(in_features, &options)}));
}

lk_module *lk_global_max_attn_pool2d_with(int64_t in_features, const lk_global_attn_pool2d_options *given)
{
    LKI_TAKE(lk_global_attn_pool2d_options, options, given, NULL);
    return lk_custom_module(.type = "GlobalMaxAttnPool2d", .forward = side_by_side,
                            .children = lk_children({"max", lk_global_max_pool2d()},
                                                    {"attn", attention_pool(in_features, &options)}));
}

lk_module *lk_global_concat_attn_pool2d_with(int64_t in_features, const lk_global_attn_pool2d_options *given)
{
    LKI_TAKE(lk_global_attn_pool2d_options, options, given, NULL);
    return lk_custom_module(.type = "GlobalConcatAttnPool2d", .forward = side_by_side,
                            .children =
                                lk_children({"avg", lk_global_avg_pool2d()}, {"max", lk_global_max_pool2d()},
                                            {"attn", attention_pool(in_features, &options)}));
}

typedef struct gem_context {
    double p, eps;
} gem_context;

/* mean(max(x, eps)^p)^(1 / p) */
static lk_value *gem_forward(lk_module *module, lk_value *x)
{
    const gem_context *own = module->context;
    if (!is_pictures(x)) return NULL;
    if (isinf(own->p)) return maximum(x);
    lk_value *p = lki_module_value(module, x, "p"), *base = lk_op_clamp(x, own->eps, INFINITY);
    if (!p) return lk_op_pow_scalar(average(lk_op_pow_scalar(base, own->p)), 1 / own->p);
    lk_value *mean = average(lk_op_pow(base, p));
    return lk_op_pow(mean, lk_op_pow_scalar(p, -1));
}

lk_module *lk_gem2d_with(const lk_gem2d_options *given)
{
    LKI_TAKE(lk_gem2d_options, options, given, NULL);
    gem_context own = {lki_number_or(options.p, 3), lki_number_or(options.eps, 1e-7)};
    if (isnan(own.p) || own.p == 0 || own.p == -INFINITY)
        return lki_fail_null(LK_ERR_INVALID, "GeM2d: p: expected a number other than 0, found %g", own.p);
    if (!(own.eps >= 0) || isinf(own.eps))
        return lki_fail_null(LK_ERR_INVALID, "GeM2d: eps: expected a number of at least 0, found %g",
                             own.eps);
    lk_module *module = lki_module_create("GeM2d", gem_forward, &own, sizeof own);
    if (options.p_trainable && !isinf(own.p)) {
        lk_param *p = lki_module_new_param(module, "p", LK_SHAPE(1));
        if (p) lki_module_note(module, lk_init_constant(p, own.p));
    }
    return lki_module_checked(module);
}

/* ---- squeeze and excitation ---- */

static lk_value *cse_forward(lk_module *module, lk_value *x)
{
    if (!is_pictures(x)) return NULL;
    lk_value *code = lk_op_mean(x, LK_AXES(2, 3), false); /* (N, C) */
    code = lk_op_relu(lk_module_forward(module->children[0].module, code));
    code = lk_op_sigmoid(lk_module_forward(module->children[1].module, code));
    return lk_op_mul(x, lk_op_unsqueeze(lk_op_unsqueeze(code, -1), -1));
}

lk_module *lk_cse_with(int64_t in_channels, const lk_squeeze_options *given)
{
    LKI_TAKE(lk_squeeze_options, options, given, NULL);
    int64_t r = options.r ? options.r : 16;
    if (r < 1 || in_channels / r < 1)
        return lki_fail_null(LK_ERR_INVALID, "cSE: r: expected 1 to in_channels, %lld, found %lld",
                             (long long)in_channels, (long long)r);
    /* One after the other, because arguments are evaluated in any order and both draw weights. */
    lk_module *squeeze = lk_linear(in_channels, in_channels / r);
    lk_module *excite = lk_linear(in_channels / r, in_channels);
    return lk_custom_module(.type = "cSE", .forward = cse_forward,
                            .children = lk_children({"linear1", squeeze}, {"linear2", excite}));
}

static lk_value *sse_forward(lk_module *module, lk_value *x)
{
    if (!is_pictures(x)) return NULL;
    return lk_op_mul(x, lk_op_sigmoid(lk_module_forward(module->children[0].module, x)));
}

lk_module *lk_sse(int64_t in_channels)
{
    return lk_custom_module(.type = "sSE", .forward = sse_forward,
                            .children = lk_children({"conv", lk_conv2d(in_channels, 1, 1)}));
}

static lk_value *scse_forward(lk_module *module, lk_value *x)
{
    return lk_op_add(lk_module_forward(module->children[0].module, x),
                     lk_module_forward(module->children[1].module, x));
}

lk_module *lk_scse_with(int64_t in_channels, const lk_squeeze_options *given)
{
    LKI_TAKE(lk_squeeze_options, options, given, NULL);
    lk_module *channels = lk_cse_with(in_channels, &options);
    lk_module *places = channels ? lk_sse(in_channels) : NULL;
    return lk_custom_module(.type = "scSE", .forward = scse_forward,
                            .children = lk_children({"cse_block", channels}, {"sse_block", places}));
}

/* ---- RMSNorm ---- */

/* scale x / (sqrt(mean(x^2)) + epsilon) + bias */
static lk_value *rms_forward(lk_module *module, lk_value *x)
{
    double epsilon = *(const double *)module->context;
    lk_value *scale = lki_module_value(module, x, "scale"), *bias = lki_module_value(module, x, "bias");
    lk_shape shape = lk_value_shape(x);
    int64_t dimension = lk_value_shape(scale).dim[0];
    if (shape.rank < 1 || shape.dim[shape.rank - 1] != dimension)
        return lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE,
                              "expected %lld numbers on the last axis, found %s", (long long)dimension,
                              LKI_SHOW(shape));
    lk_value *root = lk_op_sqrt(lk_op_mean(lk_op_mul(x, x), LK_AXES(-1), true));
    lk_value *y = lk_op_mul(scale, lk_op_div(x, lk_op_add_scalar(root, epsilon)));
    return bias ? lk_op_add(y, bias) : y;
}

lk_module *lk_rms_norm_layer_with(int64_t dimension, const lk_rms_norm_layer_options *given)
{
    LKI_TAKE(lk_rms_norm_layer_options, options, given, NULL);
    double epsilon = lki_number_or(options.epsilon, 1e-8);
    if (dimension < 1)
        return lki_fail_null(LK_ERR_INVALID, "RMSNorm: dimension: expected at least 1, found %lld",
                             (long long)dimension);
    if (!(epsilon >= 0) || isinf(epsilon))
        return lki_fail_null(LK_ERR_INVALID, "RMSNorm: epsilon: expected a number of at least 0, found %g",
                             epsilon);
    lk_module *module = lki_module_create("RMSNorm", rms_forward, &epsilon, sizeof epsilon);
    lk_param *scale = lki_module_new_param(module, "scale", LK_SHAPE(dimension));
    if (scale) lki_module_note(module, lk_init_constant(scale, 1));
    if (options.is_bias) lki_module_new_param(module, "bias", LK_SHAPE(dimension));
    return lki_module_checked(module);
}
