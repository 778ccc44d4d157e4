/* PIMLturb: turbulent quantities that are never negative. Convolutions, the square of what they give, a fixed
 * Gaussian over it; the loss also looks at how the values are distributed. */
#include "estimator/estimator.h"

#include "base/memory.h"
#include "base/status.h"

#include <math.h>
#include <string.h>

enum { WIDTH = 16, CDF_POINTS = 32 };

/* ---- The model ---- */

typedef struct piml_context {
    int dims;
    double sigma;
    lk_value *(*activation)(lk_value *x);
} piml_context;

static lk_value *leaky_relu(lk_value *x)
{
    return lk_op_leaky_relu(x, 0.01);
}

static lk_status find_activation(const char *name, lk_value *(**out)(lk_value *x))
{
    static const struct {
        const char *name;
        lk_value *(*function)(lk_value *x);
    } known[] = {
        {"relu", lk_op_relu}, {"tanh", lk_op_tanh}, {"silu", lk_op_silu}, {"leaky_relu", leaky_relu}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, name) == 0) {
            *out = known[i].function;
            return LK_OK;
        }
    return lki_fail(LK_ERR_NOT_FOUND, "activation: expected relu, tanh, silu or leaky_relu, found \"%s\"",
                    name);
}

/* exp(-r^2 / 2 sigma^2) over (2 * radius + 1)^dims points, its sum 1: (1, 1, k...). */
static lk_tensor *gaussian_kernel(int dims, double sigma, int64_t *radius)
{
    *radius = (int64_t)ceil(2 * sigma);
    int64_t width = 2 * *radius + 1, count = dims == 1 ? width : width * width * width;
    lk_shape shape = {.rank = 2 + dims, .dim = {1, 1, width, width, width}};
    lk_tensor *kernel = lk_tensor_create(LK_F32, shape);
    float *values = kernel ? kernel->data : NULL;
    double sum = 0;
    for (int64_t i = 0; values && i < count; i++) {
        double distance = 0;
        for (int64_t d = 0, rest = i; d < dims; d++, rest /= width) {
            double offset = (double)(rest % width - *radius);
            distance += offset * offset;
        }
        values[i] = (float)exp(-distance / (2 * sigma * sigma));
        sum += values[i];
    }
    for (int64_t i = 0; values && i < count; i++) values[i] = (float)(values[i] / sum);
    return kernel;
}

/* Each channel by itself: they are looked at as samples of one channel. */
static lk_value *smooth(lk_value *x, const piml_context *context)
{
    int64_t radius, around[2 + 3] = {0};
    lk_tensor *kernel = x ? gaussian_kernel(context->dims, context->sigma, &radius) : NULL;
    if (!kernel) return NULL;
    lk_shape shape = lk_value_shape(x), single = shape;
    lk_window window = {.rank = context->dims};
    single.dim[0] = shape.dim[0] * shape.dim[1];
    single.dim[1] = 1;
    for (int i = 0; i < context->dims; i++) {
        around[2 + i] = radius;
        window.kernel[i] = 2 * radius + 1;
    }
    lk_value *weight = lk_graph_constant(lk_value_graph(x), kernel);
    lk_tensor_free(kernel);
    x = lk_op_pad(lk_op_reshape(x, single), around, around, LK_PAD_REPLICATE, 0);
    return lk_op_reshape(lk_op_conv(x, weight, NULL, window), shape);
}

static lk_value *piml_forward(lk_module *module, lk_value *x)
{
    const piml_context *context = lk_module_context(module);
    x = context->activation(lk_module_forward(lk_module_child(module, "conv1"), x));
    x = context->activation(lk_module_forward(lk_module_child(module, "conv2"), x));
    x = lk_module_forward(lk_module_child(module, "conv3"), x);
    return smooth(lk_op_mul(x, x), context);
}

static lk_status check_shapes(const lk_estimator *estimator, int dims, int64_t *outputs)
{
    char text[128];
    lk_shape shape = estimator->features;
    int64_t points = 1;
    for (int i = 1; i < shape.rank; i++) points *= shape.dim[i];
    if (shape.rank != 1 + dims)
        return lki_fail(LK_ERR_SHAPE, "features of shape %s: expected (channels, size...) in %d dimension%s",
                        lk_shape_format(text, sizeof text, shape), dims, dims == 1 ? "" : "s");
    *outputs = lk_shape_count(estimator->targets) / points;
    if (*outputs < 1 || *outputs * points != lk_shape_count(estimator->targets))
        return lki_fail(LK_ERR_SHAPE, "targets of shape %s do not lie on the points of the features",
                        lk_shape_format(text, sizeof text, estimator->targets));
    if (!(estimator->config.sigma > 0 && estimator->config.sigma <= 16))
        return lki_fail(LK_ERR_INVALID, "sigma: expected more than 0 and at most 16 points, found %g",
                        estimator->config.sigma);
    return LK_OK;
}

static lk_module *convolution(int dims, int64_t in, int64_t out)
{
    lk_conv_options options = {LK_SIZE(lk_conv_options), .padding = 1, .padding_mode = LK_PAD_REPLICATE};
    return dims == 1 ? lk_conv1d_with(in, out, 3, &options) : lk_conv3d_with(in, out, 3, &options);
}

lk_module *lki_pimlturb_model(const lk_estimator *estimator, int dims)
{
    int64_t outputs = 0, inputs = estimator->features.dim[0];
    if (check_shapes(estimator, dims, &outputs)) return NULL;
    piml_context *context = LKI_NEW(piml_context);
    if (!context) return NULL;
    *context = (piml_context){.dims = dims, .sigma = estimator->config.sigma};
    if (find_activation(estimator->config.activation, &context->activation)) {
        lki_free(context);
        return NULL;
    }
    return lk_custom_module(.type = "PIMLturb", .forward = piml_forward, .context = context,
                            .free_context = lki_free,
                            .children = lk_children({"conv1", convolution(dims, inputs, WIDTH)},
                                                    {"conv2", convolution(dims, WIDTH, WIDTH)},
                                                    {"conv3", convolution(dims, WIDTH, outputs)}));
}

/* ---- The loss ---- */

typedef struct loss_context {
    double l1_weight, ks_weight, beta;
} loss_context;

/* The distribution function of x (count, 1) at points (1, CDF_POINTS), each step softened to a sigmoid. */
static lk_value *soft_cdf(lk_value *x, lk_value *points, lk_value *width)
{
    return lk_op_mean(lk_op_sigmoid(lk_op_div(lk_op_sub(points, x), width)), LK_AXES(0), false);
}

/* The Kolmogorov-Smirnov distance with softened steps: a number that has a gradient. The points at which the
 * two functions are compared span the targets. */
static lk_value *soft_ks(lk_value *prediction, lk_value *target)
{
    float places[CDF_POINTS];
    if (!prediction || !target) return NULL;
    lk_shape column = LK_SHAPE(lk_shape_count(lk_value_shape(prediction)), 1);
    lk_value *x = lk_op_reshape(prediction, column), *y = lk_op_reshape(target, column);
    lk_value *high = lk_op_max(y, LK_AXES(0, 1), true),
             *low = lk_op_neg(lk_op_max(lk_op_neg(y), LK_AXES(0, 1), true));
    lk_value *span = lk_op_add_scalar(lk_op_sub(high, low), 1e-12);
    for (int i = 0; i < CDF_POINTS; i++) places[i] = (float)i / (CDF_POINTS - 1);
    lk_tensor *row = lk_tensor_from(LK_F32, LK_SHAPE(1, CDF_POINTS), places);
    lk_value *grid = row && span ? lk_graph_constant(lk_value_graph(span), row) : NULL;
    lk_tensor_free(row);
    lk_value *points = lk_op_add(low, lk_op_mul(grid, span)),
             *width = lk_op_mul_scalar(span, 1.0 / CDF_POINTS);
    lk_value *gap = lk_op_abs(lk_op_sub(soft_cdf(x, points, width), soft_cdf(y, points, width)));
    return lk_op_max(gap, LK_ALL_AXES, false);
}

static lk_value *piml_loss(lk_value *prediction, lk_value *target, void *context)
{
    const loss_context *weights = context;
    if (!prediction || !target) return NULL;
    target = lk_op_reshape(target, lk_value_shape(prediction));
    lk_value *l1 = lk_op_pointwise_loss(prediction, target, NULL, NULL, LK_LOSS_SMOOTH_L1, weights->beta,
                                        LK_REDUCTION_MEAN);
    if (weights->ks_weight == 0) return lk_op_mul_scalar(l1, weights->l1_weight);
    return lk_op_add(lk_op_mul_scalar(l1, weights->l1_weight),
                     lk_op_mul_scalar(soft_ks(prediction, target), weights->ks_weight));
}

lk_criterion *lki_pimlturb_criterion(const lk_estimator_config *config)
{
    loss_context *context = LKI_NEW(loss_context);
    if (!context) return NULL;
    *context = (loss_context){.l1_weight = config->l1_scale * (1 - config->ks_frac),
                              .ks_weight = config->ks_scale * config->ks_frac,
                              .beta = config->l1_beta};
    return lk_custom_criterion(.type = "SmoothL1_KSLoss", .forward = piml_loss, .context = context,
                               .free_context = lki_free);
}

static lk_estimator *create(const char *name, int dims, lk_loader_list loaders,
                            const lk_estimator_config *config)
{
    lk_estimator *estimator = lki_estimator_new(name, loaders, config);
    if (!estimator) return NULL;
    lk_estimator *made = lki_estimator_with_model(estimator, lki_pimlturb_model(estimator, dims));
    if (made && !made->config.criterion) made->config.criterion = lki_pimlturb_criterion(&made->config);
    return made;
}

lk_estimator *lk_pimlturb1d_with(lk_loader_list loaders, const lk_estimator_config *config)
{
    return create("PIMLturb1D", 1, loaders, config);
}

lk_estimator *lk_pimlturb3d_with(lk_loader_list loaders, const lk_estimator_config *config)
{
    return create("PIMLturb3D", 3, loaders, config);
}
