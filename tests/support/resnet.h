/* Residual networks with torchvision's layers and parameter names, whose first weights are drawn in its way.
 * tests/oracle/models.py has the same. */
#ifndef LKT_RESNET_H
#define LKT_RESNET_H

#include <lockstep/nn.h>

static inline lk_value *resnet_pass(lk_module *module, const char *child, lk_value *x)
{
    return lk_module_forward(lk_module_child(module, child), x);
}

/* relu(y + x), x through "downsample" where shape or channels change. */
static inline lk_value *resnet_join(lk_module *module, lk_value *y, lk_value *x)
{
    if (lk_module_context(module)) x = resnet_pass(module, "downsample", x);
    return lk_op_relu(lk_op_add(y, x));
}

static inline lk_value *resnet_basic_forward(lk_module *module, lk_value *x)
{
    lk_value *y = lk_op_relu(resnet_pass(module, "bn1", resnet_pass(module, "conv1", x)));
    return resnet_join(module, resnet_pass(module, "bn2", resnet_pass(module, "conv2", y)), x);
}

static inline lk_value *resnet_bottleneck_forward(lk_module *module, lk_value *x)
{
    lk_value *y = lk_op_relu(resnet_pass(module, "bn1", resnet_pass(module, "conv1", x)));
    y = lk_op_relu(resnet_pass(module, "bn2", resnet_pass(module, "conv2", y)));
    return resnet_join(module, resnet_pass(module, "bn3", resnet_pass(module, "conv3", y)), x);
}

static inline lk_module *resnet_conv(int64_t in, int64_t out, int64_t kernel, int64_t stride)
{
    return lk_conv2d(in, out, kernel, .stride = stride, .padding = kernel / 2, .no_bias = true);
}

/* A block of two 3 x 3 convolutions, or of one between two of 1 x 1 that widen fourfold. The context says
 * whether there is a "downsample". */
static inline lk_module *resnet_block(int64_t in, int64_t width, int64_t stride, bool bottleneck)
{
    static char marker;
    int64_t out = bottleneck ? 4 * width : width;
    bool changes = in != out || stride != 1;
    lk_module *block =
        bottleneck
            ? lk_custom_module(.type = "Bottleneck", .forward = resnet_bottleneck_forward,
                               .context = changes ? &marker : NULL,
                               .children = lk_children(
                                   {"conv1", resnet_conv(in, width, 1, 1)}, {"bn1", lk_batch_norm2d(width)},
                                   {"conv2", resnet_conv(width, width, 3, stride)},
                                   {"bn2", lk_batch_norm2d(width)}, {"conv3", resnet_conv(width, out, 1, 1)},
                                   {"bn3", lk_batch_norm2d(out)}))
            : lk_custom_module(.type = "BasicBlock", .forward = resnet_basic_forward,
                               .context = changes ? &marker : NULL,
                               .children = lk_children(
                                   {"conv1", resnet_conv(in, out, 3, stride)}, {"bn1", lk_batch_norm2d(out)},
                                   {"conv2", resnet_conv(out, out, 3, 1)}, {"bn2", lk_batch_norm2d(out)}));
    if (!block || !changes) return block;
    lk_module *downsample = lk_sequential(resnet_conv(in, out, 1, stride), lk_batch_norm2d(out));
    if (lk_module_add_child(block, "downsample", downsample) == LK_OK) return block;
    lk_module_free(block);
    return NULL;
}

static inline lk_module *resnet_layer(int64_t in, int64_t width, int64_t stride, bool bottleneck, int count)
{
    lk_module *blocks[8] = {0};
    for (int i = 0; i < count; i++) {
        blocks[i] = resnet_block(in, width, stride, bottleneck);
        in = bottleneck ? 4 * width : width;
        stride = 1;
    }
    return lk_sequential_with(blocks, count);
}

/* He's initialisation of every convolution, as torchvision draws it after all layers are made. */
static inline lk_module *resnet_draw(lk_module *model)
{
    lk_param_list list = {0};
    lk_status status = model ? lk_module_params(model, &list) : LK_ERR_INVALID;
    for (int i = 0; i < list.count && status == LK_OK; i++)
        if (list.items[i].param->value->shape.rank == 4)
            status = lk_init_kaiming_normal(list.items[i].param, .fan_out = true,
                                            .nonlinearity = LK_NONLINEARITY_RELU);
    lk_param_list_free(&list);
    if (status == LK_OK) return model;
    lk_module_free(model);
    return NULL;
}

static inline lk_module *resnet(const int counts[4], bool bottleneck, int64_t classes)
{
    int64_t times = bottleneck ? 4 : 1;
    return resnet_draw(
        lk_named_sequential({"conv1", lk_conv2d(3, 64, 7, .stride = 2, .padding = 3, .no_bias = true)},
                            {"bn1", lk_batch_norm2d(64)}, {"relu", lk_relu()},
                            {"maxpool", lk_max_pool2d(3, .stride = 2, .padding = 1)},
                            {"layer1", resnet_layer(64, 64, 1, bottleneck, counts[0])},
                            {"layer2", resnet_layer(64 * times, 128, 2, bottleneck, counts[1])},
                            {"layer3", resnet_layer(128 * times, 256, 2, bottleneck, counts[2])},
                            {"layer4", resnet_layer(256 * times, 512, 2, bottleneck, counts[3])},
                            {"avgpool", lk_adaptive_avg_pool2d(1)}, {"flatten", lk_flatten()},
                            {"fc", lk_linear(512 * times, classes)}));
}

/* He's network for pictures of 32 x 32 with one block a stage, PyTorch's own first weights. */
static inline lk_module *resnet_8(void)
{
    return lk_named_sequential(
        {"conv1", resnet_conv(3, 16, 3, 1)}, {"bn1", lk_batch_norm2d(16)}, {"relu", lk_relu()},
        {"layer1", resnet_layer(16, 16, 1, false, 1)}, {"layer2", resnet_layer(16, 32, 2, false, 1)},
        {"layer3", resnet_layer(32, 64, 2, false, 1)}, {"avgpool", lk_adaptive_avg_pool2d(1)},
        {"flatten", lk_flatten()}, {"fc", lk_linear(64, 10)});
}

static inline lk_module *resnet_18(int64_t classes)
{
    return resnet((const int[]){2, 2, 2, 2}, false, classes);
}

static inline lk_module *resnet_50(int64_t classes)
{
    return resnet((const int[]){3, 4, 6, 3}, true, classes);
}

#endif
