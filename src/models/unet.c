/* The U-Net with padded convolutions and batch norms. */
#include "models/models.h"

#include "base/status.h"
#include "base/take.h"
#include "graph/graph.h"

#include <stdio.h>

static lk_value *double_conv_forward(lk_module *module, lk_value *x)
{
    return lki_model_run(module, "double_conv", x);
}

static lk_module *make_double_conv(int64_t in, int64_t middle, int64_t out)
{
    lk_module *module = lki_module_create("DoubleConv", double_conv_forward, NULL, 0);
    lki_model_add(module, "double_conv",
                  lk_sequential(lk_conv2d(in, middle, 3, .padding = 1, .no_bias = true),
                                lk_batch_norm2d(middle), lk_relu(),
                                lk_conv2d(middle, out, 3, .padding = 1, .no_bias = true),
                                lk_batch_norm2d(out), lk_relu()));
    return lki_module_checked(module);
}

static lk_value *down_forward(lk_module *module, lk_value *x)
{
    return lki_model_run(module, "maxpool_conv", x);
}

static lk_module *make_down(int64_t in, int64_t out)
{
    lk_module *module = lki_module_create("Down", down_forward, NULL, 0);
    lki_model_add(module, "maxpool_conv", lk_sequential(lk_max_pool2d(2), make_double_conv(in, out, out)));
    return lki_module_checked(module);
}

/* x1 grows to the size of x2; what a height or width that is odd leaves over is zero. */
static lk_value *up_forward(lk_module *module, lk_value *x1, lk_value *x2)
{
    x1 = lki_model_run(module, "up", x1);
    if (!x1 || !x2) return NULL;
    lk_shape small = lk_value_shape(x1), large = lk_value_shape(x2);
    int64_t before[4] = {0}, after[4] = {0};
    for (int i = 2; i < 4; i++) {
        before[i] = (large.dim[i] - small.dim[i]) / 2;
        after[i] = large.dim[i] - small.dim[i] - before[i];
    }
    if (after[2] || after[3]) x1 = lk_op_pad(x1, before, after, LK_PAD_CONSTANT, 0);
    return lki_model_run(module, "conv", lk_op_concat((lk_value *const[]){x2, x1}, 2, 1));
}

static lk_module *make_up(int64_t in, int64_t out, bool bilinear)
{
    lk_module *module = lki_module_create("Up", NULL, NULL, 0);
    lki_model_add(module, "up",
                  bilinear ? lk_upsample(.scale_factor = 2, .mode = LK_UPSAMPLE_LINEAR, .align_corners = true)
                           : lk_conv_transpose2d(in, in / 2, 2, .stride = 2));
    lki_model_add(module, "conv", make_double_conv(in, bilinear ? in / 2 : out, out));
    return lki_module_checked(module);
}

static lk_value *unet_forward(lk_module *module, lk_value *x)
{
    static const char *const downs[] = {"down1", "down2", "down3", "down4"};
    static const char *const ups[] = {"up1", "up2", "up3", "up4"};
    lk_graph *graph = lk_value_graph(x);
    lk_value *sizes[5] = {lki_model_run(module, "inc", x)};
    for (int i = 0; i < 4; i++) sizes[i + 1] = lki_model_run(module, downs[i], sizes[i]);
    lk_value *y = sizes[4];
    for (int i = 0; i < 4; i++) {
        lk_module *up = lki_model_child(module, ups[i]);
        lki_module_enter(up, graph);
        y = lki_module_leave(up, graph, up_forward(up, y, sizes[3 - i]));
    }
    y = lki_model_run(module, "outc", y);
    return y;
}

static lk_value *out_forward(lk_module *module, lk_value *x)
{
    return lki_model_run(module, "conv", x);
}

lk_module *lk_unet_with(const lk_unet_options *given)
{
    LKI_TAKE(lk_unet_options, options, given, NULL);
    int64_t in, classes, width, factor = options.bilinear ? 2 : 1;
    if (lki_size_or("UNet", "in_channels", options.in_channels, 3, &in) ||
        lki_size_or("UNet", "num_classes", options.num_classes, 2, &classes) ||
        lki_size_or("UNet", "width", options.width, 64, &width))
        return NULL;
    lk_module *module = lki_module_create("UNet", unet_forward, NULL, 0);
    lki_model_add(module, "inc", make_double_conv(in, width, width));
    for (int i = 1; i <= 4; i++) {
        char name[16];
        snprintf(name, sizeof name, "down%d", i);
        lki_model_add(module, name, make_down(width << (i - 1), (width << i) / (i == 4 ? factor : 1)));
    }
    for (int i = 1; i <= 4; i++) {
        char name[16];
        int64_t from = width << (5 - i);
        snprintf(name, sizeof name, "up%d", i);
        lki_model_add(module, name, make_up(from, i == 4 ? width : from / 2 / factor, options.bilinear));
    }
    lk_module *out = lki_module_create("OutConv", out_forward, NULL, 0);
    lki_model_add(out, "conv", lk_conv2d(width, classes, 1));
    lki_model_add(module, "outc", lki_module_checked(out));
    return lki_module_checked(module);
}
