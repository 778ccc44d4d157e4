/* catalyst.contrib's layers that are one function of their input, and its small models. */
#include <lockstep/contrib.h>

#include "base/arguments.h"
#include "base/status.h"
#include "base/take.h"
#include "graph/graph.h"
#include "nn/module.h"

#include <math.h>

static lk_value *lambda_forward(lk_module *module, lk_value *x)
{
    return lki_module_chain(module, x);
}

lk_module *lk_lambda_module(lk_module *function)
{
    if (!function) return NULL;
    if (function->param_count > 0 || function->child_count > 0) {
        lki_fail(LK_ERR_INVALID, "Lambda: a function has neither parameters nor children: use %s itself",
                 lk_module_type(function));
        lk_module_free(function);
        return NULL;
    }
    lk_module *module = lki_module_create("Lambda", lambda_forward, NULL, 0);
    if (!module) {
        lk_module_free(function);
        return NULL;
    }
    lki_module_note(module, lk_module_add_child(module, "lambda_fn", function));
    return lki_module_checked(module);
}

typedef struct normalize_context {
    double p, eps;
    int axis;
} normalize_context;

static lk_value *normalize_forward(lk_module *module, lk_value *x)
{
    const normalize_context *own = module->context;
    lk_value *norm = lk_op_norm(x, own->p, &own->axis, 1, true);
    return lk_op_div(x, lk_op_clamp(norm, own->eps, INFINITY));
}

lk_module *lk_normalize_layer_with(const lk_normalize_layer_options *given)
{
    LKI_TAKE(lk_normalize_layer_options, options, given, NULL);
    normalize_context own = {lki_number_or(options.p, 2), lki_number_or(options.eps, 1e-12), 0};
    int64_t axis;
    if (lki_whole_or(options.dim, 1, "Normalize", "dim", &axis)) return NULL;
    if (!(own.p >= 0) || !(own.eps >= 0))
        return lki_fail_null(LK_ERR_INVALID, "Normalize: p and eps: expected at least 0, found %g and %g",
                             own.p, own.eps);
    own.axis = (int)axis;
    return lki_module_create("Normalize", normalize_forward, &own, sizeof own);
}

/* Catalyst keeps the layers in a child of its own. */
static lk_module *net(const char *type, lk_module *layers)
{
    return lk_custom_module(.type = type, .forward = lki_module_chain,
                            .children = lk_children({"_net", layers}));
}

lk_module *lk_mnist_simple_net_with(int64_t out_features, const lk_mnist_net_options *given)
{
    LKI_TAKE(lk_mnist_net_options, options, given, NULL);
    lk_module *layers =
        lk_sequential(lk_conv2d(1, 32, 3), lk_relu(), lk_conv2d(32, 64, 3), lk_relu(), lk_max_pool2d(2),
                      lk_flatten(), lk_linear(9216, 128), lk_relu(), lk_linear(128, out_features));
    if (layers && !options.no_normalize) {
        lki_module_note(layers, lk_module_add_child(layers, "9", lk_normalize_layer()));
        layers = lki_module_checked(layers);
    }
    return layers ? net("MnistSimpleNet", layers) : NULL;
}

lk_module *lk_mnist_batch_norm_net(int64_t out_features)
{
    lk_module *layers = lk_sequential(lk_conv2d(1, 32, 3), lk_leaky_relu(), lk_batch_norm2d(32),
                                      lk_conv2d(32, 64, 3), lk_leaky_relu(), lk_max_pool2d(2), lk_flatten(),
                                      lk_batch_norm1d(9216), lk_linear(9216, 128), lk_leaky_relu(),
                                      lk_linear(128, out_features), lk_batch_norm1d(out_features));
    return layers ? net("MnistBatchNormNet", layers) : NULL;
}
