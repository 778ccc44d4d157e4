/* Layers that draw numbers in training: dropout for SELU, and a ReLU with random slopes. */
#include "nn/module.h"

#include "base/status.h"
#include "base/take.h"
#include "graph/graph.h"
#include "graph/record_util.h"

#include <math.h>

/* ---- Alpha dropout ---- */

static const double SELU_LIMIT = 1.7580993408473766; /* of SELU far below zero, with its sign changed */

typedef struct alpha_dropout {
    double p;
    bool of_channels;
} alpha_dropout;

/* a (x mask - limit (1 - mask)) + a limit p: what is dropped becomes SELU's limit, and then all are scaled so
 * that mean and variance stay. As in PyTorch, p = 0 and p = 1 draw no numbers. */
static lk_value *alpha_dropout_forward(lk_module *module, lk_value *x)
{
    const alpha_dropout *own = module->context;
    lk_graph *graph = lk_value_graph(x);
    lk_shape shape = lk_value_shape(x);
    if (own->of_channels && shape.rank < 2)
        return lki_graph_fail(graph, LK_ERR_SHAPE, "expected an input of 2 or more dimensions, found %s",
                              LKI_SHOW(shape));
    if (!lk_graph_is_training(graph) || own->p == 0) return x;
    if (own->p == 1) return lk_op_mul_scalar(x, 0);
    for (int i = 2; own->of_channels && i < shape.rank; i++) shape.dim[i] = 1;
    double scale = 1 / sqrt((SELU_LIMIT * SELU_LIMIT * own->p + 1) * (1 - own->p));
    lk_value *mask = lk_op_bernoulli(graph, shape, 1 - own->p, lk_value_dtype(x));
    lk_value *shift = lk_op_mul_scalar(lk_op_add_scalar(mask, -1), SELU_LIMIT * scale);
    shift = lk_op_add_scalar(shift, SELU_LIMIT * scale * own->p);
    return lk_op_add(lk_op_mul(x, lk_op_mul_scalar(mask, scale)), shift);
}

static lk_module *create_alpha_dropout(const char *type, bool of_channels, const lk_dropout_options *options)
{
    alpha_dropout own = {lki_number_or(options->p, 0.5), of_channels};
    if (!(own.p >= 0 && own.p <= 1))
        return lki_fail_null(LK_ERR_INVALID, "%s: p: expected a probability, found %g", type, own.p);
    return lki_module_create(type, alpha_dropout_forward, &own, sizeof own);
}

lk_module *lk_alpha_dropout_with(const lk_dropout_options *given)
{
    LKI_TAKE(lk_dropout_options, options, given, NULL);
    return create_alpha_dropout("AlphaDropout", false, &options);
}

lk_module *lk_feature_alpha_dropout_with(const lk_dropout_options *given)
{
    LKI_TAKE(lk_dropout_options, options, given, NULL);
    return create_alpha_dropout("FeatureAlphaDropout", true, &options);
}

/* ---- Random slopes ---- */

typedef struct rrelu {
    double lower, upper;
} rrelu;

static lk_value *rrelu_forward(lk_module *module, lk_value *x)
{
    const rrelu *own = module->context;
    if (!lk_graph_is_training(lk_value_graph(x))) return lk_op_leaky_relu(x, (own->lower + own->upper) / 2);
    lk_value *slopes =
        lk_op_uniform(lk_value_graph(x), lk_value_shape(x), own->lower, own->upper, lk_value_dtype(x));
    lk_value *is_below = lk_op_less_equal(x, lki_scalar_like(x, 0));
    return lk_op_mul(x, lk_op_where(is_below, slopes, lki_scalar_like(x, 1)));
}

lk_module *lk_rrelu_with(const lk_rrelu_options *given)
{
    LKI_TAKE(lk_rrelu_options, options, given, NULL);
    rrelu own = {lki_number_or(options.lower, 1.0 / 8), lki_number_or(options.upper, 1.0 / 3)};
    if (!isfinite(own.lower) || !isfinite(own.upper) || own.lower > own.upper)
        return lki_fail_null(LK_ERR_INVALID, "RReLU: expected lower to be at most upper, found %g and %g",
                             own.lower, own.upper);
    return lki_module_create("RReLU", rrelu_forward, &own, sizeof own);
}
