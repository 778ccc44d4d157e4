/* MobileNetV2 and MobileNetV3, with torchvision's names and first weights. */
#include "models/models.h"

#include "base/arguments.h"
#include "base/status.h"
#include "base/take.h"
#include "graph/graph.h"

static lk_status take_options(lk_mobilenet_options *options, const char *model)
{
    LKI_TRY(lki_size_or(model, "num_classes", options->num_classes, 1000, &options->num_classes));
    LKI_TRY(lki_size_or(model, "in_channels", options->in_channels, 3, &options->in_channels));
    if (!options->width_mult) options->width_mult = 1;
    if (!(options->width_mult > 0))
        return lki_fail(LK_ERR_INVALID, "%s: width_mult: expected more than 0, found %g", model,
                        options->width_mult);
    options->dropout = lki_number_or(options->dropout, 0.2);
    if (!options->dropout) options->dropout = LK_ZERO;
    return LK_OK;
}

static lk_value *net_forward(lk_module *module, lk_value *x)
{
    x = lki_model_run(module, "features", x);
    return lki_model_run(module, "classifier", lk_op_mean(x, LK_AXES(2, 3), false));
}

/* Children "conv" or "block"; the context says whether x is added. */
static lk_value *inverted_forward(lk_module *module, lk_value *x)
{
    const bool *is_residual = module->context;
    lk_value *y = lk_module_forward(module->children[0].module, x);
    return *is_residual ? lk_op_add(x, y) : y;
}

static lk_module *make_inverted(const char *name, lk_module *chain, bool is_residual)
{
    lk_module *module =
        lki_module_create("InvertedResidual", inverted_forward, &is_residual, sizeof is_residual);
    lki_model_add(module, name, lki_module_checked(chain));
    return lki_module_checked(module);
}

static void init_all(lk_module *module)
{
    lki_model_each(module, "Conv2d", lki_init_conv);
    lki_model_each(module, "Linear", lki_init_linear_001);
}

/* ---- V2 ---- */

static lk_module *make_v2_block(int64_t in, int64_t out, int64_t stride, int64_t factor)
{
    lk_module *chain = lki_model_chain();
    int64_t hidden = in * factor;
    int index = 0;
    if (factor != 1)
        lki_model_add_at(chain, index++,
                         lki_make_conv_norm((lki_conv_norm){in, hidden, 1, .activation = lk_relu6}));
    lki_model_add_at(chain, index++,
                     lki_make_conv_norm((lki_conv_norm){hidden, hidden, 3, .stride = stride, .groups = hidden,
                                                        .activation = lk_relu6}));
    lki_model_add_at(chain, index++, lk_conv2d(hidden, out, 1, .no_bias = true));
    lki_model_add_at(chain, index++, lk_batch_norm2d(out));
    return make_inverted("conv", chain, stride == 1 && in == out);
}

static lk_module *make_v2_features(const lk_mobilenet_options *options, int64_t last)
{
    static const struct {
        int64_t factor, channels, count, stride;
    } stages[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                  {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
    lk_module *chain = lki_model_chain();
    int64_t in = lki_divisible(32 * options->width_mult);
    int index = 0;
    lki_model_add_at(chain, index++,
                     lki_make_conv_norm(
                         (lki_conv_norm){options->in_channels, in, 3, .stride = 2, .activation = lk_relu6}));
    for (int stage = 0; stage < 7; stage++) {
        int64_t out = lki_divisible((double)stages[stage].channels * options->width_mult);
        for (int i = 0; i < stages[stage].count; i++, in = out)
            lki_model_add_at(chain, index++,
                             make_v2_block(in, out, i == 0 ? stages[stage].stride : 1, stages[stage].factor));
    }
    lki_model_add_at(chain, index, lki_make_conv_norm((lki_conv_norm){in, last, 1, .activation = lk_relu6}));
    return lki_module_checked(chain);
}

lk_module *lk_mobilenet_v2_with(const lk_mobilenet_options *given)
{
    LKI_TAKE(lk_mobilenet_options, options, given, NULL);
    if (take_options(&options, "MobileNetV2") != LK_OK) return NULL;
    int64_t last = lki_divisible(1280 * (options.width_mult > 1 ? options.width_mult : 1));
    lk_module *module = lki_module_create("MobileNetV2", net_forward, NULL, 0);
    lki_model_add(module, "features", make_v2_features(&options, last));
    lki_model_add(module, "classifier",
                  lk_sequential(lk_dropout(.p = options.dropout), lk_linear(last, options.num_classes)));
    init_all(module);
    return lki_module_checked(module);
}

/* ---- V3 ---- */

typedef struct v3_block {
    int64_t in, kernel, expanded, out;
    bool squeezes, is_hardswish;
    int64_t stride;
} v3_block;

static const v3_block small_blocks[] = {
    {16, 3, 16, 16, true, false, 2}, {16, 3, 72, 24, false, false, 2}, {24, 3, 88, 24, false, false, 1},
    {24, 5, 96, 40, true, true, 2},  {40, 5, 240, 40, true, true, 1},  {40, 5, 240, 40, true, true, 1},
    {40, 5, 120, 48, true, true, 1}, {48, 5, 144, 48, true, true, 1},  {48, 5, 288, 96, true, true, 2},
    {96, 5, 576, 96, true, true, 1}, {96, 5, 576, 96, true, true, 1},
};
static const v3_block large_blocks[] = {
    {16, 3, 16, 16, false, false, 1},  {16, 3, 64, 24, false, false, 2},  {24, 3, 72, 24, false, false, 1},
    {24, 5, 72, 40, true, false, 2},   {40, 5, 120, 40, true, false, 1},  {40, 5, 120, 40, true, false, 1},
    {40, 3, 240, 80, false, true, 2},  {80, 3, 200, 80, false, true, 1},  {80, 3, 184, 80, false, true, 1},
    {80, 3, 184, 80, false, true, 1},  {80, 3, 480, 112, true, true, 1},  {112, 3, 672, 112, true, true, 1},
    {112, 5, 672, 160, true, true, 2}, {160, 5, 960, 160, true, true, 1}, {160, 5, 960, 160, true, true, 1},
};

/* V3's norms. */
static lk_module *conv_norm(lki_conv_norm own)
{
    own.eps = 0.001;
    own.momentum = 0.01;
    return lki_make_conv_norm(own);
}

static lk_module *make_v3_block(v3_block own, double width)
{
    lk_module *chain = lki_model_chain(), *(*activation)(void) = own.is_hardswish ? lk_hardswish : lk_relu;
    int64_t in = lki_divisible((double)own.in * width), out = lki_divisible((double)own.out * width),
            expanded = lki_divisible((double)own.expanded * width);
    int index = 0;
    if (expanded != in)
        lki_model_add_at(chain, index++,
                         conv_norm((lki_conv_norm){in, expanded, 1, .activation = activation}));
    lki_model_add_at(chain, index++,
                     conv_norm((lki_conv_norm){expanded, expanded, own.kernel, .stride = own.stride,
                                               .groups = expanded, .activation = activation}));
    if (own.squeezes)
        lki_model_add_at(
            chain, index++,
            lki_make_squeeze(expanded, lki_divisible((double)(expanded / 4)), lk_op_relu, lki_hardsigmoid));
    lki_model_add_at(chain, index++, conv_norm((lki_conv_norm){expanded, out, .kernel = 1}));
    return make_inverted("block", chain, own.stride == 1 && in == out);
}

static lk_module *make_v3(lk_mobilenet_options options, const v3_block *blocks, int count, int64_t last)
{
    lk_module *module = lki_module_create("MobileNetV3", net_forward, NULL, 0), *chain = lki_model_chain();
    int64_t first = lki_divisible((double)blocks[0].in * options.width_mult),
            in = lki_divisible((double)blocks[count - 1].out * options.width_mult);
    last = lki_divisible((double)last * options.width_mult);
    lki_model_add_at(
        chain, 0,
        conv_norm((lki_conv_norm){options.in_channels, first, 3, .stride = 2, .activation = lk_hardswish}));
    for (int i = 0; i < count; i++)
        lki_model_add_at(chain, i + 1, make_v3_block(blocks[i], options.width_mult));
    lki_model_add_at(chain, count + 1, conv_norm((lki_conv_norm){in, 6 * in, 1, .activation = lk_hardswish}));
    lki_model_add(module, "features", lki_module_checked(chain));
    lki_model_add(module, "classifier",
                  lk_sequential(lk_linear(6 * in, last), lk_hardswish(), lk_dropout(.p = options.dropout),
                                lk_linear(last, options.num_classes)));
    init_all(module);
    return lki_module_checked(module);
}

lk_module *lk_mobilenet_v3_small_with(const lk_mobilenet_options *given)
{
    LKI_TAKE(lk_mobilenet_options, options, given, NULL);
    if (take_options(&options, "MobileNetV3") != LK_OK) return NULL;
    return make_v3(options, small_blocks, (int)(sizeof small_blocks / sizeof *small_blocks), 1024);
}

lk_module *lk_mobilenet_v3_large_with(const lk_mobilenet_options *given)
{
    LKI_TAKE(lk_mobilenet_options, options, given, NULL);
    if (take_options(&options, "MobileNetV3") != LK_OK) return NULL;
    return make_v3(options, large_blocks, (int)(sizeof large_blocks / sizeof *large_blocks), 1280);
}
