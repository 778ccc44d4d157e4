/* catalyst.contrib.layers: pools, squeeze and excitation, and heads for metric learning. */
#include "config/components/components.h"

#include "base/arguments.h"
#include "base/status.h"

#include <lockstep/contrib.h>

/* ---- Pools ---- */

typedef struct plain_layer {
    lk_module *(*create)(void);
} plain_layer;

static lk_status build_plain(const lk_component *self, lk_args *args, void **out)
{
    const plain_layer *kind = self->context;
    (void)args;
    return lki_built(kind->create(), out);
}

typedef struct attention_pool {
    lk_module *(*create)(int64_t in_features, const lk_global_attn_pool2d_options *options);
} attention_pool;

static lk_status build_attention_pool(const lk_component *self, lk_args *args, void **out)
{
    const attention_pool *kind = self->context;
    lk_global_attn_pool2d_options options = {LK_SIZE(lk_global_attn_pool2d_options),
                                             .activation = lk_arg_take(args, "activation_fn")};
    return lki_built(kind->create(lk_arg_int64(args, "in_features"), &options), out);
}

static lk_status build_gem(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_gem2d(.p = lki_number_meant(lk_arg_float(args, "p")),
                              .p_trainable = lk_arg_bool(args, "p_trainable"),
                              .eps = lki_number_meant(lk_arg_float(args, "eps"))),
                     out);
}

/* ---- Squeeze and excitation, RMSNorm ---- */

typedef struct squeeze {
    lk_module *(*create)(int64_t in_channels, const lk_squeeze_options *options);
} squeeze;

static lk_status build_squeeze(const lk_component *self, lk_args *args, void **out)
{
    const squeeze *kind = self->context;
    lk_squeeze_options options = {LK_SIZE(lk_squeeze_options), .r = lk_arg_int64(args, "r")};
    if (options.r < 1)
        return lki_fail(LK_ERR_CONFIG, "r: expected at least 1, found %lld", (long long)options.r);
    return lki_built(kind->create(lk_arg_int64(args, "in_channels"), &options), out);
}

static lk_status build_sse(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_sse(lk_arg_int64(args, "in_channels")), out);
}

static lk_status build_rms_norm(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_rms_norm_layer(lk_arg_int64(args, "dimension"),
                                       .epsilon = lki_number_meant(lk_arg_float(args, "epsilon")),
                                       .is_bias = lk_arg_bool(args, "is_bias")),
                     out);
}

static lk_status build_factorized(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_factorized_linear(lk_arg_take(args, "nn_linear"),
                                          .dim_ratio = lki_number_meant(lk_arg_float(args, "dim_ratio"))),
                     out);
}

static lk_status build_noise(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_gaussian_noise(lk_arg_float(args, "stddev")), out);
}

/* ---- Heads ---- */

typedef struct head {
    lk_module *(*create)(int64_t in_features, int64_t out_features, const lk_margin_head_options *options);
    bool has_eps, has_k;
} head;

static lk_status build_head(const lk_component *self, lk_args *args, void **out)
{
    const head *kind = self->context;
    lk_margin_head_options options = {LK_SIZE(lk_margin_head_options),
                                      .s = lki_number_meant(lk_arg_float(args, "s")),
                                      .m = lki_number_meant(lk_arg_float(args, "m"))};
    if (kind->has_eps) options.eps = lki_number_meant(lk_arg_float(args, "eps"));
    if (kind->has_k) options.k = lk_arg_int64(args, "k");
    if (kind->has_k && options.k < 1)
        return lki_fail(LK_ERR_CONFIG, "k: expected at least 1, found %lld", (long long)options.k);
    return lki_built(
        kind->create(lk_arg_int64(args, "in_features"), lk_arg_int64(args, "out_features"), &options), out);
}

static lk_status build_ada_cos(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_ada_cos(lk_arg_int64(args, "in_features"), lk_arg_int64(args, "out_features"),
                                .eps = lki_number_meant(lk_arg_float(args, "eps")),
                                .no_dynamical_s = !lk_arg_bool(args, "dynamical_s")),
                     out);
}

static lk_status build_product(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(
        lk_arc_margin_product(lk_arg_int64(args, "in_features"), lk_arg_int64(args, "out_features")), out);
}

static lk_status build_softmax_head(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_softmax_head(lk_arg_int64(args, "in_features"), lk_arg_int64(args, "num_classes")),
                     out);
}

/* ---- The tables ---- */

#define IN_FEATURES  LKI_INT64("in_features", LKI_REQUIRED, "numbers per sample")
#define OUT_FEATURES LKI_INT64("out_features", LKI_REQUIRED, "classes")
#define SCALE        LKI_FLOAT("s", "64", "what the cosines are multiplied by")
#define EPS          LKI_FLOAT("eps", "1e-6", "cosines stay this far from 1 and -1")
#define IN_CHANNELS  LKI_INT64("in_channels", LKI_REQUIRED, "channels of a picture")
#define RATIO        LKI_INT64("r", "16", "the channels are squeezed to in_channels / r")

static const lk_parameter attention_pool_parameters[] = {
    LKI_INT64("in_features", LKI_REQUIRED, "channels of a picture"),
    LKI_OBJECT("activation_fn", MODULE, LKI_OPTIONAL, "of the weights of the places; Sigmoid where left out"),
    {0}};
static const lk_parameter gem_parameters[] = {LKI_FLOAT("p", "3", "the power; .inf for the maximum"),
                                              LKI_BOOL("p_trainable", "false", "the power is a parameter"),
                                              LKI_FLOAT("eps", "1e-7", "smaller numbers count as this"),
                                              {0}};
static const lk_parameter squeeze_parameters[] = {IN_CHANNELS, RATIO, {0}};
static const lk_parameter sse_parameters[] = {IN_CHANNELS, {0}};
static const lk_parameter rms_parameters[] = {
    LKI_INT64("dimension", LKI_REQUIRED, "numbers along the last axis"),
    LKI_FLOAT("epsilon", "1e-8", "added to the root of the mean square"),
    LKI_BOOL("is_bias", "false", "adds a bias"),
    {0}};
static const lk_parameter factorized_parameters[] = {
    LKI_OBJECT("nn_linear", MODULE, LKI_REQUIRED, "the Linear layer, with a bias"),
    LKI_FLOAT("dim_ratio", "1", "the share of its singular values that is kept"),
    {0}};
static const lk_parameter noise_parameters[] = {LKI_FLOAT("stddev", "0.1", "the standard deviation"), {0}};
static const lk_parameter arc_parameters[] = {
    IN_FEATURES, OUT_FEATURES, SCALE, LKI_FLOAT("m", "0.5", "the margin, an angle"), EPS, {0}};
static const lk_parameter sub_center_parameters[] = {IN_FEATURES,
                                                     OUT_FEATURES,
                                                     SCALE,
                                                     LKI_FLOAT("m", "0.5", "the margin, an angle"),
                                                     LKI_INT64("k", "3", "centres per class"),
                                                     EPS,
                                                     {0}};
static const lk_parameter cos_parameters[] = {
    IN_FEATURES, OUT_FEATURES, SCALE, LKI_FLOAT("m", "0.35", "the margin, of the cosine"), {0}};
static const lk_parameter am_parameters[] = {
    IN_FEATURES, OUT_FEATURES, SCALE, LKI_FLOAT("m", "0.5", "the margin, of the cosine"), EPS, {0}};
static const lk_parameter curricular_parameters[] = {
    IN_FEATURES, OUT_FEATURES, SCALE, LKI_FLOAT("m", "0.5", "the margin, an angle"), {0}};
static const lk_parameter ada_parameters[] = {
    IN_FEATURES,
    OUT_FEATURES,
    LKI_BOOL("dynamical_s", "true", "the scale follows the batches; it is saved as the buffer s"),
    EPS,
    {0}};
static const lk_parameter product_parameters[] = {IN_FEATURES, OUT_FEATURES, {0}};
static const lk_parameter softmax_parameters[] = {
    IN_FEATURES, LKI_INT64("num_classes", LKI_REQUIRED, "classes"), {0}};

#define LAYER(file_, name_, help_, parameters_, build_, ...)                                                 \
    {                                                                                                        \
        .name = name_,                                                                                       \
        .aliases = "catalyst.contrib.layers." name_ " catalyst.contrib.layers." file_ "." name_,             \
        .kind = LK_KIND_MODULE, .help = help_, .parameters = parameters_, .build = build_, __VA_ARGS__       \
    }
#define PLAIN(create_)                                                                                       \
    .context = &(const plain_layer)                                                                          \
    {                                                                                                        \
        create_                                                                                              \
    }
#define ATTENTION_POOL(create_)                                                                              \
    .context = &(const attention_pool)                                                                       \
    {                                                                                                        \
        create_                                                                                              \
    }
#define SQUEEZE(create_)                                                                                     \
    .context = &(const squeeze)                                                                              \
    {                                                                                                        \
        create_                                                                                              \
    }
#define HEAD(...)                                                                                            \
    .context = &(const head)                                                                                 \
    {                                                                                                        \
        __VA_ARGS__                                                                                          \
    }

const lk_component lki_contrib_layer_components[] = {
    LAYER("pooling", "GlobalAvgPool2d", "The average of each channel.", NULL, build_plain,
          PLAIN(lk_global_avg_pool2d)),
    LAYER("pooling", "GlobalMaxPool2d", "The largest number of each channel.", NULL, build_plain,
          PLAIN(lk_global_max_pool2d)),
    LAYER("pooling", "GlobalConcatPool2d", "Averages and maxima side by side.", NULL, build_plain,
          PLAIN(lk_global_concat_pool2d)),
    LAYER("pooling", "GlobalAttnPool2d", "The sum of all places, weighted by a learned number per place.",
          attention_pool_parameters, build_attention_pool, ATTENTION_POOL(lk_global_attn_pool2d_with)),
    LAYER("pooling", "GlobalAvgAttnPool2d", "Averages and GlobalAttnPool2d side by side.",
          attention_pool_parameters, build_attention_pool, ATTENTION_POOL(lk_global_avg_attn_pool2d_with)),
    LAYER("pooling", "GlobalMaxAttnPool2d", "Maxima and GlobalAttnPool2d side by side.",
          attention_pool_parameters, build_attention_pool, ATTENTION_POOL(lk_global_max_attn_pool2d_with)),
    LAYER("pooling", "GlobalConcatAttnPool2d", "Averages, maxima and GlobalAttnPool2d side by side.",
          attention_pool_parameters, build_attention_pool, ATTENTION_POOL(lk_global_concat_attn_pool2d_with)),
    LAYER("pooling", "GeM2d", "The generalised mean of each channel.", gem_parameters, build_gem),
    LAYER("se", "cSE", "Squeeze and excitation of channels.", squeeze_parameters, build_squeeze,
          SQUEEZE(lk_cse_with)),
    LAYER("se", "sSE", "Excitation of places.", sse_parameters, build_sse),
    LAYER("se", "scSE", "The sum of cSE and sSE.", squeeze_parameters, build_squeeze, SQUEEZE(lk_scse_with)),
    {"catalyst.contrib.layers.RMSNorm", "catalyst.contrib.layers.rms_norm.RMSNorm", LK_KIND_MODULE,
     "Catalyst's RMSNorm, with its epsilon outside of the root.", .parameters = rms_parameters,
     .build = build_rms_norm},
    LAYER("factorized", "FactorizedLinear", "A Linear layer as the product of two smaller ones.",
          factorized_parameters, build_factorized),
    LAYER("common", "GaussianNoise", "Adds noise from a normal distribution, in training alone.",
          noise_parameters, build_noise),
    LAYER("arcface", "ArcFace", "Scaled cosines with a margin of the angle at the class (input target).",
          arc_parameters, build_head, HEAD(.create = lk_arc_face_with, .has_eps = true)),
    LAYER("arcface", "SubCenterArcFace", "ArcFace with several centres per class (input target).",
          sub_center_parameters, build_head, HEAD(lk_sub_center_arc_face_with, true, true)),
    LAYER("cosface", "CosFace", "Scaled cosines less a margin at the class (input target).", cos_parameters,
          build_head, HEAD(.create = lk_cos_face_with)),
    LAYER("cosface", "AdaCos", "Cosines with a scale that follows the batches (input target).",
          ada_parameters, build_ada_cos),
    LAYER("amsoftmax", "AMSoftmax", "CosFace of clamped cosines (input target).", am_parameters, build_head,
          HEAD(.create = lk_am_softmax_with, .has_eps = true)),
    LAYER("curricularface", "CurricularFace", "ArcFace that weighs hard classes more and more (input label).",
          curricular_parameters, build_head, HEAD(.create = lk_curricular_face_with)),
    LAYER("arcmargin", "ArcMarginProduct", "Cosines between features and the centres of classes.",
          product_parameters, build_product),
    LAYER("softmax", "SoftMax", "A linear layer with Xavier's weights and a bias of zeros.",
          softmax_parameters, build_softmax_head),
    {0},
};
