/* torch.nn's layers that slide a window: convolutions, pooling, resizing. */
#include "config/components/components.h"

#include "base/status.h"

#include <lockstep/nn.h>

#include <string.h>

/* An argument of one number a spatial axis, or one for all of them: the first goes to *all, several to
 * each[3]. */
static lk_status read_axes(lk_args *args, const char *name, int axes, int minimum, int64_t *all,
                           int64_t *each)
{
    int count = lk_arg_count(args, name);
    if (count > 1 && count != axes)
        return lki_fail(LK_ERR_CONFIG, "%s: expected 1 or %d numbers, found %d", name, axes, count);
    for (int i = 0; i < count; i++) {
        bool is_null = lk_arg_is_null_at(args, name, i);
        int value = is_null ? 0 : lk_arg_int_at(args, name, i);
        if (value < minimum && !is_null)
            return lki_fail(LK_ERR_CONFIG, "%s: expected at least %d, found %d", name, minimum, value);
        if (count > 1)
            each[i] = value;
        else
            *all = value;
    }
    return LK_OK;
}

typedef struct conv {
    int axes;
    lk_module *(*create)(int64_t in_channels, int64_t out_channels, int64_t kernel,
                         const lk_conv_options *options);
    bool transposed;
} conv;

static lk_status read_padding(lk_args *args, const conv *kind, lk_conv_options *options)
{
    const char *word = lk_arg_string(args, "padding");
    if (word && !strcmp(word, "valid")) return LK_OK;
    if (word && !strcmp(word, "same")) return options->same_padding = true, LK_OK;
    return read_axes(args, "padding", kind->axes, 0, &options->padding, options->paddings);
}

static lk_status build_conv(const lk_component *self, lk_args *args, void **out)
{
    static const char modes[] = "zeros|reflect|circular|replicate"; /* in lk_pad_mode's order */
    const conv *kind = self->context;
    lk_conv_options options = {LK_SIZE(lk_conv_options), .no_bias = !lk_arg_bool(args, "bias"),
                               .groups = lk_arg_int(args, "groups")};
    int64_t kernel = 0;
    options.padding_mode = (lk_pad_mode)lki_choice_index(modes, lk_arg_string(args, "padding_mode"));
    LKI_TRY(read_axes(args, "kernel_size", kind->axes, 1, &kernel, options.kernels));
    LKI_TRY(read_axes(args, "stride", kind->axes, 1, &options.stride, options.strides));
    LKI_TRY(read_axes(args, "dilation", kind->axes, 1, &options.dilation, options.dilations));
    LKI_TRY(read_padding(args, kind, &options));
    if (kind->transposed)
        LKI_TRY(read_axes(args, "output_padding", kind->axes, 0, &options.output_padding,
                          options.output_paddings));
    return lki_built(
        kind->create(lk_arg_int64(args, "in_channels"), lk_arg_int64(args, "out_channels"), kernel, &options),
        out);
}

typedef struct pool {
    int axes;
    lk_module *(*create)(int64_t kernel, const lk_pool_options *options);
    bool averages;
} pool;

static lk_status build_pool(const lk_component *self, lk_args *args, void **out)
{
    const pool *kind = self->context;
    lk_pool_options options = {LK_SIZE(lk_pool_options), .ceil_mode = lk_arg_bool(args, "ceil_mode")};
    int64_t kernel = 0;
    if (!kind->averages && lk_arg_bool(args, "return_indices"))
        return lki_fail(LK_ERR_UNSUPPORTED, "return_indices: the places of the maxima are not available");
    LKI_TRY(read_axes(args, "kernel_size", kind->axes, 1, &kernel, options.kernels));
    LKI_TRY(read_axes(args, "stride", kind->axes, 1, &options.stride, options.strides));
    LKI_TRY(read_axes(args, "padding", kind->axes, 0, &options.padding, options.paddings));
    if (kind->averages) {
        options.no_count_include_pad = !lk_arg_bool(args, "count_include_pad");
        if (kind->axes > 1) options.divisor_override = lk_arg_int(args, "divisor_override");
    } else
        LKI_TRY(read_axes(args, "dilation", kind->axes, 1, &options.dilation, options.dilations));
    return lki_built(kind->create(kernel, &options), out);
}

typedef struct adaptive_pool {
    int axes;
    lk_module *(*create)(int64_t output_size, const lk_adaptive_pool_options *options);
} adaptive_pool;

static lk_status build_adaptive_pool(const lk_component *self, lk_args *args, void **out)
{
    const adaptive_pool *kind = self->context;
    lk_adaptive_pool_options options = {LK_SIZE(lk_adaptive_pool_options)};
    int64_t size = 0;
    LKI_TRY(read_axes(args, "output_size", kind->axes, 1, &size, options.output_sizes));
    return lki_built(kind->create(size, &options), out);
}

/* The first four by their number of axes. */
static const char upsample_modes[] = "nearest|linear|bilinear|trilinear|bicubic|nearest-exact";

static lk_status build_upsample(const lk_component *self, lk_args *args, void **out)
{
    lk_upsample_options options = {LK_SIZE(lk_upsample_options),
                                   .align_corners = lk_arg_bool(args, "align_corners")};
    int sizes = lk_arg_count(args, "size"), factors = lk_arg_count(args, "scale_factor");
    (void)self;
    if (sizes > 3 || factors > 3) return lki_fail(LK_ERR_CONFIG, "at most 3 sizes or scale factors");
    if (sizes == 1) options.size = lk_arg_int(args, "size");
    for (int i = 0; sizes > 1 && i < sizes; i++) options.sizes[i] = lk_arg_int_at(args, "size", i);
    if (factors == 1) options.scale_factor = lk_arg_float(args, "scale_factor");
    for (int i = 0; factors > 1 && i < factors; i++)
        options.scale_factors[i] = lk_arg_float_at(args, "scale_factor", i);
    int mode = lki_choice_index(upsample_modes, lk_arg_string(args, "mode"));
    options.axes = mode < 4 ? mode : mode == 4 ? 2 : 0;
    options.mode = mode == 0   ? LK_UPSAMPLE_NEAREST
                   : mode < 4  ? LK_UPSAMPLE_LINEAR
                   : mode == 4 ? LK_UPSAMPLE_BICUBIC
                               : LK_UPSAMPLE_NEAREST_EXACT;
    return lki_built(lk_upsample_with(&options), out);
}

#define KERNEL   LKI_INTS("kernel_size", LKI_REQUIRED, "the window: one size, or one per spatial axis")
#define DILATION LKI_INTS("dilation", "1", "the distance between the window's points")
#define MODE                                                                                                 \
    LKI_CHOICE("padding_mode", "zeros", "zeros|reflect|circular|replicate",                                  \
               "what the added edge is filled with")

static const lk_parameter conv_parameters[] = {
    LKI_INT("in_channels", LKI_REQUIRED, "channels of the input"),
    LKI_INT("out_channels", LKI_REQUIRED, "channels of the output"),
    KERNEL,
    LKI_INTS("stride", "1", "the step of the window"),
    {.name = "padding",
     .type = LK_PARAMETER_INTS,
     .default_value = "0",
     .choices = "same|valid",
     .help = "zeros on both sides; or same (as much as keeps the size) or valid (none)"},
    DILATION,
    LKI_INT("groups", "1", "parts into which the channels are divided"),
    LKI_BOOL("bias", "true", "add a learned number to each channel"),
    MODE,
    {0},
};
static const lk_parameter transposed_parameters[] = {
    LKI_INT("in_channels", LKI_REQUIRED, "channels of the input"),
    LKI_INT("out_channels", LKI_REQUIRED, "channels of the output"),
    KERNEL,
    LKI_INTS("stride", "1", "the step of the window"),
    LKI_INTS("padding", "0", "what is cut off on both sides"),
    LKI_INTS("output_padding", "0", "what is added to one side of the output"),
    LKI_INT("groups", "1", "parts into which the channels are divided"),
    LKI_BOOL("bias", "true", "add a learned number to each channel"),
    DILATION,
    LKI_CHOICE("padding_mode", "zeros", "zeros", "what the added edge is filled with"),
    {0},
};
static const lk_parameter max_pool_parameters[] = {
    KERNEL,
    LKI_INTS("stride", LKI_OPTIONAL, "the step of the window; the window itself where left out"),
    LKI_INTS("padding", "0", "what is added on both sides, less than any number"),
    DILATION,
    LKI_BOOL("return_indices", "false", "not available: the places of the maxima"),
    LKI_BOOL("ceil_mode", "false", "round the output's size up"),
    {0},
};
static const lk_parameter avg_pool_parameters[] = {
    KERNEL,
    LKI_INTS("stride", LKI_OPTIONAL, "the step of the window; the window itself where left out"),
    LKI_INTS("padding", "0", "zeros on both sides"),
    LKI_BOOL("ceil_mode", "false", "round the output's size up"),
    LKI_BOOL("count_include_pad", "true", "count the added zeros in the mean"),
    LKI_INT("divisor_override", LKI_OPTIONAL, "divide by this instead of the window's size"),
    {0},
};
static const lk_parameter avg_pool1d_parameters[] = {
    KERNEL,
    LKI_INTS("stride", LKI_OPTIONAL, "the step of the window; the window itself where left out"),
    LKI_INTS("padding", "0", "zeros on both sides"),
    LKI_BOOL("ceil_mode", "false", "round the output's size up"),
    LKI_BOOL("count_include_pad", "true", "count the added zeros in the mean"),
    {0},
};
static const lk_parameter adaptive_parameters[] = {
    LKI_INTS_OR_NULL("output_size", LKI_REQUIRED,
                     "the size of the output: one, or one per spatial axis; null keeps the input's"),
    {0},
};
static const lk_parameter upsample_parameters[] = {
    LKI_INTS("size", LKI_OPTIONAL, "the size of the output"),
    LKI_FLOATS("scale_factor", LKI_OPTIONAL, "or how many times the input's"),
    LKI_CHOICE("mode", "nearest", upsample_modes, "how values in between are found"),
    LKI_BOOL("align_corners", "false", "keep the values of the corners (linear modes and bicubic)"),
    LKI_REFUSED("recompute_scale_factor", "false", "leave it out, or give the size instead of the factor"),
    {0},
};

#define CONV(axes_, create_)                                                                                 \
    .parameters = conv_parameters, .build = build_conv, .context = &(const conv)                             \
    {                                                                                                        \
        axes_, create_, false                                                                                \
    }
#define TRANSPOSED(axes_, create_)                                                                           \
    .parameters = transposed_parameters, .build = build_conv, .context = &(const conv)                       \
    {                                                                                                        \
        axes_, create_, true                                                                                 \
    }
#define MAX_POOL(axes_, create_)                                                                             \
    .parameters = max_pool_parameters, .build = build_pool, .context = &(const pool)                         \
    {                                                                                                        \
        axes_, create_, false                                                                                \
    }
#define AVG_POOL(axes_, create_)                                                                             \
    .parameters = axes_ == 1 ? avg_pool1d_parameters : avg_pool_parameters, .build = build_pool,             \
    .context = &(const pool)                                                                                 \
    {                                                                                                        \
        axes_, create_, true                                                                                 \
    }
#define ADAPTIVE(axes_, create_)                                                                             \
    .parameters = adaptive_parameters, .build = build_adaptive_pool, .context = &(const adaptive_pool)       \
    {                                                                                                        \
        axes_, create_                                                                                       \
    }

const lk_component lki_window_components[] = {
    {"Conv1d", "torch.nn.Conv1d", LK_KIND_MODULE, "A convolution over sequences (N, C, L).",
     CONV(1, lk_conv1d_with)},
    {"Conv2d", "torch.nn.Conv2d", LK_KIND_MODULE, "A convolution over pictures (N, C, H, W).",
     CONV(2, lk_conv2d_with)},
    {"Conv3d", "torch.nn.Conv3d", LK_KIND_MODULE, "A convolution over volumes (N, C, D, H, W).",
     CONV(3, lk_conv3d_with)},
    {"ConvTranspose1d", "torch.nn.ConvTranspose1d", LK_KIND_MODULE,
     "A transposed convolution over sequences.", TRANSPOSED(1, lk_conv_transpose1d_with)},
    {"ConvTranspose2d", "torch.nn.ConvTranspose2d", LK_KIND_MODULE, "A transposed convolution over pictures.",
     TRANSPOSED(2, lk_conv_transpose2d_with)},
    {"ConvTranspose3d", "torch.nn.ConvTranspose3d", LK_KIND_MODULE, "A transposed convolution over volumes.",
     TRANSPOSED(3, lk_conv_transpose3d_with)},
    {"MaxPool1d", "torch.nn.MaxPool1d", LK_KIND_MODULE, "The maximum of each window of a sequence.",
     MAX_POOL(1, lk_max_pool1d_with)},
    {"MaxPool2d", "torch.nn.MaxPool2d", LK_KIND_MODULE, "The maximum of each window of a picture.",
     MAX_POOL(2, lk_max_pool2d_with)},
    {"MaxPool3d", "torch.nn.MaxPool3d", LK_KIND_MODULE, "The maximum of each window of a volume.",
     MAX_POOL(3, lk_max_pool3d_with)},
    {"AvgPool1d", "torch.nn.AvgPool1d", LK_KIND_MODULE, "The mean of each window of a sequence.",
     AVG_POOL(1, lk_avg_pool1d_with)},
    {"AvgPool2d", "torch.nn.AvgPool2d", LK_KIND_MODULE, "The mean of each window of a picture.",
     AVG_POOL(2, lk_avg_pool2d_with)},
    {"AvgPool3d", "torch.nn.AvgPool3d", LK_KIND_MODULE, "The mean of each window of a volume.",
     AVG_POOL(3, lk_avg_pool3d_with)},
    {"AdaptiveAvgPool1d", "torch.nn.AdaptiveAvgPool1d", LK_KIND_MODULE,
     "Means of windows that give a sequence of this length.", ADAPTIVE(1, lk_adaptive_avg_pool1d_with)},
    {"AdaptiveAvgPool2d", "torch.nn.AdaptiveAvgPool2d", LK_KIND_MODULE,
     "Means of windows that give a picture of this size.", ADAPTIVE(2, lk_adaptive_avg_pool2d_with)},
    {"AdaptiveAvgPool3d", "torch.nn.AdaptiveAvgPool3d", LK_KIND_MODULE,
     "Means of windows that give a volume of this size.", ADAPTIVE(3, lk_adaptive_avg_pool3d_with)},
    {"Upsample", "torch.nn.Upsample", LK_KIND_MODULE, "Resizes sequences, pictures and volumes.",
     .parameters = upsample_parameters, .build = build_upsample},
    {0},
};
