/* EfficientNet-B0, with torchvision's names and first weights. */
#include "models/models.h"

#include "base/arguments.h"
#include "base/status.h"
#include "base/take.h"
#include "graph/graph.h"

#include <math.h>

typedef struct mbconv {
    bool is_residual;
    double drop; /* the share of samples that skip the block in training */
} mbconv;

/* Whole samples of y become 0 in training, and the others grow, so that the mean stays. */
static lk_value *drop_samples(lk_value *y, double p)
{
    if (!y || p <= 0 || !lk_graph_is_training(lk_value_graph(y))) return y;
    lk_value *keep = lk_op_bernoulli(lk_value_graph(y), LK_SHAPE(lk_value_shape(y).dim[0], 1, 1, 1), 1 - p,
                                     lk_value_dtype(y));
    return lk_op_mul(y, p < 1 ? lk_op_mul_scalar(keep, 1 / (1 - p)) : keep);
}

static lk_value *mbconv_forward(lk_module *module, lk_value *x)
{
    const mbconv *own = module->context;
    lk_value *y = lki_model_run(module, "block", x);
    return own->is_residual ? lk_op_add(drop_samples(y, own->drop), x) : y;
}

typedef struct stage {
    int64_t factor, kernel, stride, in, out;
    int count;
} stage;

static lk_module *make_block(stage own, double drop)
{
    int64_t expanded = lki_divisible((double)(own.in * own.factor));
    int index = 0;
    mbconv context = {own.stride == 1 && own.in == own.out, drop};
    lk_module *chain = lki_model_chain();
    if (expanded != own.in)
        lki_model_add_at(chain, index++,
                         lki_make_conv_norm((lki_conv_norm){own.in, expanded, 1, .activation = lk_silu}));
    lki_model_add_at(chain, index++,
                     lki_make_conv_norm((lki_conv_norm){expanded, expanded, own.kernel, .stride = own.stride,
                                                        .groups = expanded, .activation = lk_silu}));
    lki_model_add_at(chain, index++,
                     lki_make_squeeze(expanded, own.in < 4 ? 1 : own.in / 4, lk_op_silu, lk_op_sigmoid));
    lki_model_add_at(chain, index++, lki_make_conv_norm((lki_conv_norm){expanded, own.out, .kernel = 1}));
    lk_module *module = lki_module_create("MBConv", mbconv_forward, &context, sizeof context);
    lki_model_add(module, "block", lki_module_checked(chain));
    return lki_module_checked(module);
}

static lk_module *make_features(const lk_efficientnet_options *options, double depth_prob, int64_t last)
{
    static const stage stages[] = {{1, 3, 1, 32, 16, 1},  {6, 3, 2, 16, 24, 2},  {6, 5, 2, 24, 40, 2},
                                   {6, 3, 2, 40, 80, 3},  {6, 5, 1, 80, 112, 3}, {6, 5, 2, 112, 192, 4},
                                   {6, 3, 1, 192, 320, 1}};
    double width = options->width_mult;
    lk_module *features = lki_model_chain();
    int done = 0, total = 16;
    lki_model_add_at(features, 0,
                     lki_make_conv_norm((lki_conv_norm){options->in_channels, lki_divisible(32 * width), 3,
                                                        .stride = 2, .activation = lk_silu}));
    int64_t out = 0;
    for (int i = 0; i < 7; i++) {
        stage own = stages[i];
        lk_module *chain = lki_model_chain();
        own.in = lki_divisible((double)own.in * width);
        out = own.out = lki_divisible((double)own.out * width);
        for (int k = 0; k < stages[i].count; k++, done++) {
            lki_model_add_at(chain, k, make_block(own, depth_prob * done / total));
            own.in = own.out;
            own.stride = 1;
        }
        lki_model_add_at(features, i + 1, lki_module_checked(chain));
    }
    lki_model_add_at(features, 8, lki_make_conv_norm((lki_conv_norm){out, last, 1, .activation = lk_silu}));
    return lki_module_checked(features);
}

/* torchvision takes the square root of the number of outputs. */
static lk_status init_linear(lk_module *linear)
{
    lk_param *weight = lki_module_own_param(linear, "weight");
    double range = 1 / sqrt((double)weight->value->shape.dim[0]);
    LKI_TRY(lk_init_uniform(weight, -range, range));
    return lk_init_constant(lki_module_own_param(linear, "bias"), 0);
}

static lk_value *net_forward(lk_module *module, lk_value *x)
{
    x = lki_model_run(module, "features", x);
    return lki_model_run(module, "classifier", lk_op_mean(x, LK_AXES(2, 3), false));
}

lk_module *lk_efficientnet_b0_with(const lk_efficientnet_options *given)
{
    LKI_TAKE(lk_efficientnet_options, options, given, NULL);
    if (lki_size_or("EfficientNet", "num_classes", options.num_classes, 1000, &options.num_classes) ||
        lki_size_or("EfficientNet", "in_channels", options.in_channels, 3, &options.in_channels))
        return NULL;
    if (!options.width_mult) options.width_mult = 1;
    double depth_prob = lki_number_or(options.stochastic_depth_prob, 0.2);
    if (!(options.width_mult > 0) || !(depth_prob >= 0 && depth_prob <= 1))
        return lki_fail_null(LK_ERR_INVALID,
                             "EfficientNet: expected a width_mult of more than 0 and a probability, found %g "
                             "and %g",
                             options.width_mult, depth_prob);
    double dropout = lki_number_or(options.dropout, 0.2);
    int64_t last = 4 * lki_divisible(320 * options.width_mult);
    lk_module *module = lki_module_create("EfficientNet", net_forward, NULL, 0);
    lki_model_add(module, "features", make_features(&options, depth_prob, last));
    lki_model_add(
        module, "classifier",
        lk_sequential(lk_dropout(.p = dropout ? dropout : LK_ZERO), lk_linear(last, options.num_classes)));
    lki_model_each(module, "Conv2d", lki_init_conv);
    lki_model_each(module, "Linear", init_linear);
    return lki_module_checked(module);
}
