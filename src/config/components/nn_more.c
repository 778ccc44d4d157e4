/* torch.nn's layers that are compositions of a few ops. */
#include "config/components/components.h"

#include "base/arguments.h"
#include "base/status.h"

#include <lockstep/nn.h>

#include <string.h>

/* Without numbers of their own. */
typedef struct plain {
    lk_module *(*create)(void);
} plain;

static lk_status build_plain(const lk_component *self, lk_args *args, void **out)
{
    const plain *kind = self->context;
    (void)args;
    return lki_built(kind->create(), out);
}

static lk_status build_softmin(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_softmin(lk_arg_int(args, "dim")), out);
}

static lk_status build_glu(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_glu(.dim = lki_number_meant(lk_arg_int(args, "dim"))), out);
}

static lk_status build_hardtanh(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_hardtanh(.min_val = lki_number_meant(lk_arg_float(args, "min_val")),
                                 .max_val = lki_number_meant(lk_arg_float(args, "max_val"))),
                     out);
}

static lk_status build_celu(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_celu(.alpha = lki_number_meant(lk_arg_float(args, "alpha"))), out);
}

static lk_status build_shrink(const lk_component *self, lk_args *args, void **out)
{
    lk_shrink_options options = {LK_SIZE(lk_shrink_options),
                                 .lambd = lki_number_meant(lk_arg_float(args, "lambd"))};
    return lki_built(
        !strcmp(self->name, "Hardshrink") ? lk_hardshrink_with(&options) : lk_softshrink_with(&options), out);
}

static lk_status build_threshold(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_threshold(lk_arg_float(args, "threshold"), lk_arg_float(args, "value")), out);
}

static lk_status build_prelu(const lk_component *self, lk_args *args, void **out)
{
    int count = lk_arg_int(args, "num_parameters");
    (void)self;
    if (count < 1) return lki_fail(LK_ERR_CONFIG, "num_parameters: expected at least 1, found %d", count);
    return lki_built(lk_prelu(.num_parameters = count, .init = lki_number_meant(lk_arg_float(args, "init"))),
                     out);
}

typedef struct instance_norm {
    lk_module *(*create)(int64_t features, const lk_instance_norm_options *options);
} instance_norm;

static lk_status build_instance_norm(const lk_component *self, lk_args *args, void **out)
{
    const instance_norm *kind = self->context;
    lk_instance_norm_options options = {LK_SIZE(lk_instance_norm_options),
                                        .eps = lki_number_meant(lk_arg_float(args, "eps")),
                                        .affine = lk_arg_bool(args, "affine"),
                                        .track_running_stats = lk_arg_bool(args, "track_running_stats")};
    if (options.track_running_stats) options.momentum = lki_number_meant(lk_arg_float(args, "momentum"));
    return lki_built(kind->create(lk_arg_int64(args, "num_features"), &options), out);
}

typedef struct channel_dropout {
    lk_module *(*create)(const lk_dropout_options *options);
} channel_dropout;

static lk_status build_channel_dropout(const lk_component *self, lk_args *args, void **out)
{
    const channel_dropout *kind = self->context;
    lk_dropout_options options = {LK_SIZE(lk_dropout_options),
                                  .p = lki_number_meant(lk_arg_float(args, "p"))};
    return lki_built(kind->create(&options), out);
}

typedef struct adaptive_pool {
    int axes;
    lk_module *(*create)(int64_t output_size, const lk_adaptive_pool_options *options);
} adaptive_pool;

static lk_status build_adaptive_pool(const lk_component *self, lk_args *args, void **out)
{
    const adaptive_pool *kind = self->context;
    lk_adaptive_pool_options options = {LK_SIZE(lk_adaptive_pool_options)};
    int count = lk_arg_count(args, "output_size");
    if (count != 1 && count != kind->axes)
        return lki_fail(LK_ERR_CONFIG, "output_size: expected 1 or %d numbers, found %d", kind->axes, count);
    for (int i = 0; i < kind->axes; i++) {
        if (lk_arg_is_null_at(args, "output_size", count > 1 ? i : 0)) continue;
        options.output_sizes[i] = lk_arg_int_at(args, "output_size", count > 1 ? i : 0);
        if (options.output_sizes[i] < 1)
            return lki_fail(LK_ERR_CONFIG, "output_size: expected at least 1, found %lld",
                            (long long)options.output_sizes[i]);
    }
    return lki_built(kind->create(0, &options), out);
}

typedef struct pad {
    int axes;
    lk_module *(*create)(int64_t padding, const lk_pad_options *options);
    bool has_value;
} pad;

static lk_status build_pad(const lk_component *self, lk_args *args, void **out)
{
    const pad *kind = self->context;
    lk_pad_options options = {LK_SIZE(lk_pad_options)};
    int count = lk_arg_count(args, "padding");
    if (count != 1 && count != 2 * kind->axes)
        return lki_fail(LK_ERR_CONFIG, "padding: expected 1 or %d numbers, found %d", 2 * kind->axes, count);
    for (int i = 0; i < 2 * kind->axes; i++)
        options.paddings[i] = lk_arg_int_at(args, "padding", count > 1 ? i : 0);
    if (kind->has_value) options.value = lk_arg_float(args, "value");
    return lki_built(kind->create(0, &options), out);
}

typedef struct shuffle {
    lk_module *(*create)(int64_t factor);
    const char *argument;
} shuffle;

static lk_status build_shuffle(const lk_component *self, lk_args *args, void **out)
{
    const shuffle *kind = self->context;
    return lki_built(kind->create(lk_arg_int64(args, kind->argument)), out);
}

#define INPLACE LKI_NO_EFFECT("inplace", "false", "the plan decides what can be done in place")

static const lk_parameter inplace_parameters[] = {INPLACE, {0}};
static const lk_parameter softmin_parameters[] = {LKI_INT("dim", LKI_REQUIRED, "the axis that sums to one"),
                                                  {0}};
static const lk_parameter glu_parameters[] = {LKI_INT("dim", "-1", "the axis that is halved"), {0}};
static const lk_parameter hardtanh_parameters[] = {
    LKI_FLOAT("min_val", "-1.0", "the smallest value"),
    LKI_FLOAT("max_val", "1.0", "the largest value"),
    INPLACE,
    LKI_REFUSED("min_value", NULL, "write min_val"),
    LKI_REFUSED("max_value", NULL, "write max_val"),
    {0},
};
static const lk_parameter celu_parameters[] = {
    LKI_FLOAT("alpha", "1.0", "minus the limit below zero"), INPLACE, {0}};
static const lk_parameter shrink_parameters[] = {
    LKI_FLOAT("lambd", "0.5", "how far from zero values count as zero"), {0}};
static const lk_parameter threshold_parameters[] = {
    LKI_FLOAT("threshold", LKI_REQUIRED, "x stays where it is above this"),
    LKI_FLOAT("value", LKI_REQUIRED, "what the others become"),
    INPLACE,
    {0},
};
static const lk_parameter prelu_parameters[] = {
    LKI_INT("num_parameters", "1", "how many slopes are learned: 1, or one per channel"),
    LKI_FLOAT("init", "0.25", "the slope at first"),
    {0},
};
static const lk_parameter instance_norm_parameters[] = {
    LKI_INT("num_features", LKI_REQUIRED, "channels of the input"),
    LKI_FLOAT("eps", "1e-5", "added to the variance"),
    LKI_FLOAT("momentum", "0.1", "with track_running_stats: how much the running values follow each batch"),
    LKI_BOOL("affine", "false", "learn a weight and a bias"),
    LKI_BOOL("track_running_stats", "false", "keep running values for evaluation"),
    {0},
};
static const lk_parameter dropout_parameters[] = {
    LKI_FLOAT("p", "0.5", "how many channels become zero"), INPLACE, {0}};
static const lk_parameter adaptive_parameters[] = {
    LKI_INTS_OR_NULL("output_size", LKI_REQUIRED,
                     "the size of the output: one, or one per spatial axis; null keeps the input's"),
    LKI_REFUSED("return_indices", "false", "leave it out: only the values are returned"),
    {0},
};
#define PADDING LKI_INTS("padding", LKI_REQUIRED, "one number, or the last axis first: left, right, top, ...")
static const lk_parameter pad_parameters[] = {PADDING, {0}};
static const lk_parameter constant_pad_parameters[] = {
    PADDING, LKI_FLOAT("value", LKI_REQUIRED, "of the places that are added"), {0}};
static const lk_parameter shuffle_parameters[] = {
    LKI_INT64("upscale_factor", LKI_REQUIRED, "how many times larger pictures become"), {0}};
static const lk_parameter unshuffle_parameters[] = {
    LKI_INT64("downscale_factor", LKI_REQUIRED, "how many times smaller pictures become"), {0}};

#define MODULE(name_, help_)                                                                                 \
    .name = name_, .aliases = "torch.nn." name_, .kind = LK_KIND_MODULE, .help = help_
#define PLAIN(name_, create_, help_)                                                                         \
    {                                                                                                        \
        MODULE(name_, help_), .build = build_plain, .context = &(const plain)                                \
        {                                                                                                    \
            create_                                                                                          \
        }                                                                                                    \
    }
#define INPLACE_PLAIN(name_, create_, help_)                                                                 \
    {                                                                                                        \
        MODULE(name_, help_), .parameters = inplace_parameters, .build = build_plain,                        \
                              .context = &(const plain)                                                      \
        {                                                                                                    \
            create_                                                                                          \
        }                                                                                                    \
    }
#define WITH(name_, table_, help_)                                                                           \
    {                                                                                                        \
        MODULE(name_, help_), .parameters = table_##_parameters, .build = build_##table_                     \
    }
#define INSTANCE_NORM(axes_, shape_)                                                                         \
    {                                                                                                        \
        MODULE("InstanceNorm" #axes_ "d", "Normalises each channel of each sample: " shape_ "."),            \
            .parameters = instance_norm_parameters, .build = build_instance_norm,                            \
            .context = &(const instance_norm)                                                                \
        {                                                                                                    \
            lk_instance_norm##axes_##d_with                                                                  \
        }                                                                                                    \
    }
#define CHANNEL_DROPOUT(axes_, shape_)                                                                       \
    {                                                                                                        \
        MODULE("Dropout" #axes_ "d", "Sets random channels to zero in training: " shape_ "."),               \
            .parameters = dropout_parameters, .build = build_channel_dropout,                                \
            .context = &(const channel_dropout)                                                              \
        {                                                                                                    \
            lk_dropout##axes_##d_with                                                                        \
        }                                                                                                    \
    }
#define ADAPTIVE(axes_, what_)                                                                               \
    {                                                                                                        \
        MODULE("AdaptiveMaxPool" #axes_ "d", "The largest of windows that give a " what_ " of this size."),  \
            .parameters = adaptive_parameters, .build = build_adaptive_pool,                                 \
            .context = &(const adaptive_pool)                                                                \
        {                                                                                                    \
            axes_, lk_adaptive_max_pool##axes_##d_with                                                       \
        }                                                                                                    \
    }
#define PAD(name_, axes_, create_, table_, has_value_, help_)                                                \
    {                                                                                                        \
        MODULE(name_, help_), .parameters = table_##_parameters, .build = build_pad, .context = &(const pad) \
        {                                                                                                    \
            axes_, create_, has_value_                                                                       \
        }                                                                                                    \
    }

const lk_component lki_more_module_components[] = {
    INPLACE_PLAIN("ReLU6", lk_relu6, "x between 0 and 6."),
    INPLACE_PLAIN("Hardsigmoid", lk_hardsigmoid, "x / 6 + 1 / 2 between 0 and 1."),
    INPLACE_PLAIN("Hardswish", lk_hardswish, "x Hardsigmoid(x)."),
    INPLACE_PLAIN("Mish", lk_mish, "x tanh(Softplus(x))."),
    INPLACE_PLAIN("SELU", lk_selu, "ELU, scaled so that a deep net keeps mean and variance."),
    PLAIN("LogSigmoid", lk_log_sigmoid, "The logarithm of Sigmoid."),
    PLAIN("Softsign", lk_softsign, "x / (1 + |x|)."),
    PLAIN("Tanhshrink", lk_tanhshrink, "x - tanh(x)."),
    WITH("Softmin", softmin, "Softmax of -x."),
    WITH("GLU", glu, "One half times the sigmoid of the other."),
    WITH("Hardtanh", hardtanh, "x between two numbers."),
    WITH("CELU", celu, "x above zero, alpha (exp(x / alpha) - 1) below."),
    WITH("Hardshrink", shrink, "x, or zero near zero."),
    WITH("Softshrink", shrink, "x moved towards zero."),
    WITH("Threshold", threshold, "x above a threshold, a number below."),
    WITH("PReLU", prelu, "x above zero, a learned slope below."),
    INSTANCE_NORM(1, "(N, C, L)"),
    INSTANCE_NORM(2, "(N, C, H, W)"),
    INSTANCE_NORM(3, "(N, C, D, H, W)"),
    CHANNEL_DROPOUT(1, "(N, C, L)"),
    CHANNEL_DROPOUT(2, "(N, C, H, W)"),
    CHANNEL_DROPOUT(3, "(N, C, D, H, W)"),
    ADAPTIVE(1, "sequence"),
    ADAPTIVE(2, "picture"),
    ADAPTIVE(3, "volume"),
    PAD("ZeroPad2d", 2, lk_zero_pad2d_with, pad, false, "Zeros around pictures."),
    PAD("ConstantPad1d", 1, lk_constant_pad1d_with, constant_pad, true, "A number around sequences."),
    PAD("ConstantPad2d", 2, lk_constant_pad2d_with, constant_pad, true, "A number around pictures."),
    PAD("ConstantPad3d", 3, lk_constant_pad3d_with, constant_pad, true, "A number around volumes."),
    PAD("ReflectionPad1d", 1, lk_reflection_pad1d_with, pad, false, "Sequences mirrored at their ends."),
    PAD("ReflectionPad2d", 2, lk_reflection_pad2d_with, pad, false, "Pictures mirrored at their edges."),
    PAD("ReflectionPad3d", 3, lk_reflection_pad3d_with, pad, false, "Volumes mirrored at their faces."),
    PAD("ReplicationPad1d", 1, lk_replication_pad1d_with, pad, false, "Sequences with their ends repeated."),
    PAD("ReplicationPad2d", 2, lk_replication_pad2d_with, pad, false, "Pictures with their edges repeated."),
    PAD("ReplicationPad3d", 3, lk_replication_pad3d_with, pad, false, "Volumes with their faces repeated."),
    {MODULE("PixelShuffle", "Channels become places: (N, C r r, H, W) to (N, C, H r, W r)."),
     .parameters = shuffle_parameters, .build = build_shuffle,
     .context = &(const shuffle){lk_pixel_shuffle, "upscale_factor"}},
    {MODULE("PixelUnshuffle", "Places become channels: (N, C, H r, W r) to (N, C r r, H, W)."),
     .parameters = unshuffle_parameters, .build = build_shuffle,
     .context = &(const shuffle){lk_pixel_unshuffle, "downscale_factor"}},
    {0},
};
