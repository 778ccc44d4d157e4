/* ResNet-18 to ResNet-152, with torchvision's names and first weights. */
#include "models/models.h"

#include "base/status.h"
#include "base/take.h"
#include "graph/graph.h"

#include <stdio.h>

/* act(bn3(conv3(act(bn2(conv2(act(bn1(conv1(x)))))))) + downsample(x)); two convolutions below depth 50. */
static lk_value *block_forward(lk_module *module, lk_value *x)
{
    static const char *const convs[] = {"conv1", "conv2", "conv3"}, *const norms[] = {"bn1", "bn2", "bn3"};
    int count = lki_model_has(module, "conv3") ? 3 : 2;
    lk_value *y = x;
    for (int i = 0; i < count; i++) {
        y = lki_model_run(module, norms[i], lki_model_run(module, convs[i], y));
        if (i < count - 1) y = lk_op_relu(y);
    }
    if (lki_model_has(module, "downsample")) x = lki_model_run(module, "downsample", x);
    return lk_op_relu(lk_op_add(y, x));
}

typedef struct block {
    int64_t in, planes, out, inner, stride, groups;
    bool is_bottleneck;
} block;

static lk_module *make_downsample(block own)
{
    if (own.stride == 1 && own.in == own.out) return NULL;
    lk_module *chain = lki_model_chain();
    lki_model_add(chain, "0", lk_conv2d(own.in, own.out, 1, .stride = own.stride, .no_bias = true));
    lki_model_add(chain, "1", lk_batch_norm2d(own.out));
    return chain;
}

static lk_module *conv3x3(int64_t in, int64_t out, int64_t stride, int64_t groups)
{
    return lk_conv2d(in, out, 3, .stride = stride, .padding = 1, .groups = groups, .no_bias = true);
}

static lk_module *make_block(block own)
{
    lk_module *downsample = make_downsample(own); /* torchvision draws it first */
    lk_module *module =
        lki_module_create(own.is_bottleneck ? "Bottleneck" : "BasicBlock", block_forward, NULL, 0);
    if (own.is_bottleneck) {
        lki_model_add(module, "conv1", lk_conv2d(own.in, own.inner, 1, .no_bias = true));
        lki_model_add(module, "bn1", lk_batch_norm2d(own.inner));
        lki_model_add(module, "conv2", conv3x3(own.inner, own.inner, own.stride, own.groups));
        lki_model_add(module, "bn2", lk_batch_norm2d(own.inner));
        lki_model_add(module, "conv3", lk_conv2d(own.inner, own.out, 1, .no_bias = true));
        lki_model_add(module, "bn3", lk_batch_norm2d(own.out));
    } else {
        lki_model_add(module, "conv1", conv3x3(own.in, own.planes, own.stride, 1));
        lki_model_add(module, "bn1", lk_batch_norm2d(own.planes));
        lki_model_add(module, "conv2", conv3x3(own.planes, own.planes, 1, 1));
        lki_model_add(module, "bn2", lk_batch_norm2d(own.planes));
    }
    if (own.stride != 1 || own.in != own.out) lki_model_add(module, "downsample", downsample);
    return lki_module_checked(module);
}

static lk_module *make_stage(const lk_resnet_options *options, bool is_bottleneck, int stage, int count,
                             int64_t *channels)
{
    lk_module *chain = lki_model_chain();
    int64_t planes = options->width << stage;
    block own = {.planes = planes,
                 .out = planes * (is_bottleneck ? 4 : 1),
                 .inner = planes * options->width_per_group / 64 * options->groups,
                 .groups = options->groups,
                 .is_bottleneck = is_bottleneck};
    for (int i = 0; i < count; i++) {
        own.in = *channels;
        own.stride = i == 0 && stage > 0 ? 2 : 1;
        lki_model_add_at(chain, i, make_block(own));
        *channels = own.out;
    }
    return lki_module_checked(chain);
}

static lk_value *resnet_forward(lk_module *module, lk_value *x)
{
    x = lk_op_relu(lki_model_run(module, "bn1", lki_model_run(module, "conv1", x)));
    if (lki_model_has(module, "maxpool")) x = lki_model_run(module, "maxpool", x);
    for (int i = 1; i <= 4; i++) {
        char name[16];
        snprintf(name, sizeof name, "layer%d", i);
        x = lki_model_run(module, name, x);
    }
    return lki_model_run(module, "fc", lk_op_mean(x, LK_AXES(2, 3), false));
}

/* The last norm of each block begins at 0. */
static lk_status zero_last_norm(lk_module *block_module)
{
    const char *path = lki_model_has(block_module, "bn3") ? "bn3.weight" : "bn2.weight";
    return lk_init_constant(lki_module_param(block_module, path), 0);
}

static lk_status take_options(int depth, lk_resnet_options *options)
{
    LKI_TRY(lki_size_or("ResNet", "num_classes", options->num_classes, 1000, &options->num_classes));
    LKI_TRY(lki_size_or("ResNet", "in_channels", options->in_channels, 3, &options->in_channels));
    LKI_TRY(lki_size_or("ResNet", "width", options->width, 64, &options->width));
    LKI_TRY(lki_size_or("ResNet", "groups", options->groups, 1, &options->groups));
    LKI_TRY(
        lki_size_or("ResNet", "width_per_group", options->width_per_group, 64, &options->width_per_group));
    if (depth < 50 && (options->groups != 1 || options->width_per_group != 64))
        return lki_fail(LK_ERR_INVALID, "ResNet-%d: groups and width_per_group are for depths from 50 on",
                        depth);
    return LK_OK;
}

/* Blocks per stage; NULL for a depth that there is not. */
static const int *stages_of(int depth)
{
    static const struct {
        int depth, blocks[4];
    } known[] = {{18, {2, 2, 2, 2}},
                 {34, {3, 4, 6, 3}},
                 {50, {3, 4, 6, 3}},
                 {101, {3, 4, 23, 3}},
                 {152, {3, 8, 36, 3}}};
    for (int i = 0; i < 5; i++)
        if (known[i].depth == depth) return known[i].blocks;
    lki_fail(LK_ERR_INVALID, "ResNet: expected a depth of 18, 34, 50, 101 or 152, found %d", depth);
    return NULL;
}

lk_module *lk_resnet_with(int depth, const lk_resnet_options *given)
{
    LKI_TAKE(lk_resnet_options, options, given, NULL);
    const int *blocks = stages_of(depth);
    if (!blocks || take_options(depth, &options) != LK_OK) return NULL;
    lk_module *module = lki_module_create("ResNet", resnet_forward, NULL, 0);
    int64_t channels = options.width;
    lki_model_add(module, "conv1",
                  options.small_input ? conv3x3(options.in_channels, channels, 1, 1)
                                      : lk_conv2d(options.in_channels, channels, 7, .stride = 2, .padding = 3,
                                                  .no_bias = true));
    lki_model_add(module, "bn1", lk_batch_norm2d(channels));
    if (!options.small_input) lki_model_add(module, "maxpool", lk_max_pool2d(3, .stride = 2, .padding = 1));
    for (int i = 0; i < 4; i++) {
        char name[16];
        snprintf(name, sizeof name, "layer%d", i + 1);
        lki_model_add(module, name, make_stage(&options, depth >= 50, i, blocks[i], &channels));
    }
    lki_model_add(module, "fc", lk_linear(channels, options.num_classes));
    lki_model_each(module, "Conv2d", lki_init_conv);
    if (options.zero_init_residual) {
        lki_model_each(module, "Bottleneck", zero_last_norm);
        lki_model_each(module, "BasicBlock", zero_last_norm);
    }
    return lki_module_checked(module);
}
