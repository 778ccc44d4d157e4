/* Convolutions and transposed convolutions in one to three dimensions. */
#include "nn/init.h"
#include "nn/window_options.h"

#include "base/status.h"
#include "base/take.h"

#include <stdio.h>

typedef struct conv_context {
    lk_window window;
    bool pads_first; /* the padding is a step of its own: another mode than zeros, or unequal sides */
    lk_pad_mode mode;
    int64_t before[3], after[3];
} conv_context;

static lk_value *pad_first(const conv_context *own, lk_value *x)
{
    if (!own->pads_first || !x) return x;
    int64_t before[LK_MAX_DIMS] = {0}, after[LK_MAX_DIMS] = {0};
    int first = lk_value_shape(x).rank - own->window.rank;
    for (int i = 0; i < own->window.rank && first >= 0; i++) {
        before[first + i] = own->before[i];
        after[first + i] = own->after[i];
    }
    return lk_op_pad(x, before, after, own->mode, 0);
}

static lk_value *conv_forward(lk_module *module, lk_value *x)
{
    const conv_context *own = module->context;
    lk_value *weight = lki_module_value(module, x, "weight"), *bias = lki_module_value(module, x, "bias");
    bool was_added;
    x = pad_first(own, lki_batch(x, own->window.rank, &was_added));
    return lki_unbatch(lk_op_conv(x, weight, bias, own->window), was_added);
}

static lk_value *conv_transpose_forward(lk_module *module, lk_value *x)
{
    const conv_context *own = module->context;
    lk_value *weight = lki_module_value(module, x, "weight"), *bias = lki_module_value(module, x, "bias");
    bool was_added;
    x = lki_batch(x, own->window.rank, &was_added);
    return lki_unbatch(lk_op_conv_transpose(x, weight, bias, own->window), was_added);
}

static lk_status check_channels(const char *type, int64_t in, int64_t out, int64_t groups)
{
    if (in < 1 || out < 1)
        return lki_fail(LK_ERR_INVALID, "%s: expected at least 1 channel in and out, found %lld and %lld",
                        type, (long long)in, (long long)out);
    if (groups < 1 || in % groups || out % groups)
        return lki_fail(LK_ERR_INVALID, "%s: %lld groups do not divide %lld channels in and %lld out", type,
                        (long long)groups, (long long)in, (long long)out);
    return LK_OK;
}

static lk_status read_window(const char *type, int rank, int64_t kernel, const lk_conv_options *options,
                             lk_window *window)
{
    *window = (lk_window){.rank = rank, .groups = options->groups ? options->groups : 1};
    lki_spread(window->kernel, rank, kernel, options->kernels, 0);
    lki_spread(window->stride, rank, options->stride, options->strides, 1);
    lki_spread(window->padding, rank, options->padding, options->paddings, 0);
    lki_spread(window->dilation, rank, options->dilation, options->dilations, 1);
    lki_spread(window->output_padding, rank, options->output_padding, options->output_paddings, 0);
    LKI_TRY(lki_check_each(type, "kernel", window->kernel, rank, 1));
    LKI_TRY(lki_check_each(type, "stride", window->stride, rank, 1));
    LKI_TRY(lki_check_each(type, "padding", window->padding, rank, 0));
    LKI_TRY(lki_check_each(type, "dilation", window->dilation, rank, 1));
    return lki_check_each(type, "output_padding", window->output_padding, rank, 0);
}

/* Decides how much goes on each side, and whether the convolution itself can do it. */
static lk_status read_padding(const char *type, const lk_conv_options *options, conv_context *own)
{
    lk_window *window = &own->window;
    own->mode = options->padding_mode;
    own->pads_first = own->mode != LK_PAD_CONSTANT;
    for (int i = 0; i < window->rank; i++) {
        own->before[i] = own->after[i] = window->padding[i];
        if (options->same_padding) {
            if (window->stride[i] != 1)
                return lki_fail(LK_ERR_INVALID, "%s: padding \"same\" needs stride 1, found %lld", type,
                                (long long)window->stride[i]);
            int64_t total = window->dilation[i] * (window->kernel[i] - 1);
            own->before[i] = total / 2;
            own->after[i] = total - total / 2;
        }
        own->pads_first = own->pads_first || own->before[i] != own->after[i];
    }
    for (int i = 0; i < window->rank; i++) window->padding[i] = own->pads_first ? 0 : own->before[i];
    return LK_OK;
}

static lk_module *create_conv(int rank, bool transposed, int64_t in, int64_t out, int64_t kernel,
                              const lk_conv_options *options)
{
    char type[24];
    snprintf(type, sizeof type, "Conv%s%dd", transposed ? "Transpose" : "", rank);
    conv_context own = {0};
    if (read_window(type, rank, kernel, options, &own.window) != LK_OK) return NULL;
    if (check_channels(type, in, out, own.window.groups) != LK_OK) return NULL;
    if (!transposed && read_padding(type, options, &own) != LK_OK) return NULL;
    if (!transposed && (options->output_padding || options->output_paddings[0] ||
                        options->output_paddings[1] || options->output_paddings[2]))
        return lki_fail_null(LK_ERR_INVALID, "%s: output_padding belongs to transposed convolutions", type);
    if ((int)options->padding_mode < LK_PAD_CONSTANT || options->padding_mode > LK_PAD_REPLICATE)
        return lki_fail_null(LK_ERR_INVALID, "%s: there is no padding_mode %d", type,
                             (int)options->padding_mode);
    if (transposed && (options->padding_mode != LK_PAD_CONSTANT || options->same_padding))
        return lki_fail_null(LK_ERR_INVALID, "%s: only padding with zeros is supported", type);
    int64_t per_group = transposed ? out / own.window.groups : in / own.window.groups;
    lk_shape shape = {.rank = rank + 2, .dim = {transposed ? in : out, per_group}};
    for (int i = 0; i < rank; i++) shape.dim[i + 2] = own.window.kernel[i];
    lk_module *module =
        lki_module_create(type, transposed ? conv_transpose_forward : conv_forward, &own, sizeof own);
    lk_param *weight = lki_module_new_param(module, "weight", shape);
    lk_param *bias = options->no_bias ? NULL : lki_module_new_param(module, "bias", LK_SHAPE(out));
    lki_init_weight_and_bias(module, weight, bias);
    return lki_module_checked(module);
}

lk_module *lk_conv1d_with(int64_t in_channels, int64_t out_channels, int64_t kernel,
                          const lk_conv_options *given)
{
    LKI_TAKE(lk_conv_options, options, given, NULL);
    return create_conv(1, false, in_channels, out_channels, kernel, &options);
}

lk_module *lk_conv2d_with(int64_t in_channels, int64_t out_channels, int64_t kernel,
                          const lk_conv_options *given)
{
    LKI_TAKE(lk_conv_options, options, given, NULL);
    return create_conv(2, false, in_channels, out_channels, kernel, &options);
}

lk_module *lk_conv3d_with(int64_t in_channels, int64_t out_channels, int64_t kernel,
                          const lk_conv_options *given)
{
    LKI_TAKE(lk_conv_options, options, given, NULL);
    return create_conv(3, false, in_channels, out_channels, kernel, &options);
}

lk_module *lk_conv_transpose1d_with(int64_t in_channels, int64_t out_channels, int64_t kernel,
                                    const lk_conv_options *given)
{
    LKI_TAKE(lk_conv_options, options, given, NULL);
    return create_conv(1, true, in_channels, out_channels, kernel, &options);
}

lk_module *lk_conv_transpose2d_with(int64_t in_channels, int64_t out_channels, int64_t kernel,
                                    const lk_conv_options *given)
{
    LKI_TAKE(lk_conv_options, options, given, NULL);
    return create_conv(2, true, in_channels, out_channels, kernel, &options);
}

lk_module *lk_conv_transpose3d_with(int64_t in_channels, int64_t out_channels, int64_t kernel,
                                    const lk_conv_options *given)
{
    LKI_TAKE(lk_conv_options, options, given, NULL);
    return create_conv(3, true, in_channels, out_channels, kernel, &options);
}
