/* Transformers, and what tells them where in a sequence a vector stands. */
#include "config/components/components.h"

#include "base/arguments.h"
#include "base/status.h"

#include <lockstep/nn.h>

#include <string.h>

static lk_transformer_activation activation_of(lk_args *args)
{
    return strcmp(lk_arg_string(args, "activation"), "gelu") ? LK_TRANSFORMER_RELU : LK_TRANSFORMER_GELU;
}

typedef struct layer {
    lk_module *(*create)(int64_t d_model, int64_t heads, const lk_transformer_encoder_layer_options *options);
} layer;

static lk_status build_layer(const lk_component *self, lk_args *args, void **out)
{
    const layer *kind = self->context;
    lk_transformer_encoder_layer_options options = {
        LK_SIZE(lk_transformer_encoder_layer_options),
        .dim_feedforward = lk_arg_int(args, "dim_feedforward"),
        .dropout = lki_number_meant(lk_arg_float(args, "dropout")),
        .layer_norm_eps = lki_number_meant(lk_arg_float(args, "layer_norm_eps")),
        .batch_first = lk_arg_bool(args, "batch_first"),
        .norm_first = lk_arg_bool(args, "norm_first"),
        .is_causal = lk_arg_bool(args, "is_causal"),
    };
    options.activation = activation_of(args);
    return lki_built(kind->create(lk_arg_int64(args, "d_model"), lk_arg_int64(args, "nhead"), &options), out);
}

static lk_status build_encoder(const lk_component *self, lk_args *args, void **out)
{
    lk_module *norm = lk_arg_take(args, "norm"), *first = lk_arg_take(args, "encoder_layer");
    (void)self;
    return lki_built(lk_transformer_encoder(first, lk_arg_int(args, "num_layers"), .norm = norm,
                                            .is_causal = lk_arg_bool(args, "is_causal")),
                     out);
}

static lk_status build_decoder(const lk_component *self, lk_args *args, void **out)
{
    lk_module *norm = lk_arg_take(args, "norm"), *first = lk_arg_take(args, "decoder_layer");
    (void)self;
    return lki_built(lk_transformer_decoder(first, lk_arg_int(args, "num_layers"), .norm = norm,
                                            .is_causal = lk_arg_bool(args, "is_causal")),
                     out);
}

static lk_status build_transformer(const lk_component *self, lk_args *args, void **out)
{
    static const char *const counts[] = {"d_model", "nhead", "num_encoder_layers", "num_decoder_layers",
                                         "dim_feedforward"};
    lk_transformer_options options = {
        LK_SIZE(lk_transformer_options),
        .dropout = lki_number_meant(lk_arg_float(args, "dropout")),
        .layer_norm_eps = lki_number_meant(lk_arg_float(args, "layer_norm_eps")),
        .batch_first = lk_arg_bool(args, "batch_first"),
        .norm_first = lk_arg_bool(args, "norm_first"),
        .is_causal = lk_arg_bool(args, "is_causal"),
    };
    int64_t *const fields[] = {&options.d_model, &options.nhead, &options.num_encoder_layers,
                               &options.num_decoder_layers, &options.dim_feedforward};
    (void)self;
    for (int i = 0; i < 5; i++) {
        *fields[i] = lk_arg_int64(args, counts[i]);
        if (*fields[i] < 1)
            return lki_fail(LK_ERR_CONFIG, "%s: expected at least 1, found %lld", counts[i],
                            (long long)*fields[i]);
    }
    options.activation = activation_of(args);
    options.custom_encoder = lk_arg_take(args, "custom_encoder");
    options.custom_decoder = lk_arg_take(args, "custom_decoder");
    return lki_built(lk_transformer_with(&options), out);
}

static lk_status build_rms_norm(const lk_component *self, lk_args *args, void **out)
{
    lk_shape shape = {.rank = lk_arg_count(args, "normalized_shape")};
    lk_norm_options options = {LK_SIZE(lk_norm_options),
                               .no_affine = !lk_arg_bool(args, "elementwise_affine")};
    (void)self;
    if (shape.rank > LK_MAX_DIMS)
        return lki_fail(LK_ERR_CONFIG, "normalized_shape: at most %d sizes, found %d", LK_MAX_DIMS,
                        shape.rank);
    for (int i = 0; i < shape.rank; i++) shape.dim[i] = lk_arg_int_at(args, "normalized_shape", i);
    if (lk_arg_given(args, "eps")) options.eps = lki_number_meant(lk_arg_float(args, "eps"));
    return lki_built(lk_rms_norm_with(shape, &options), out);
}

static lk_status build_learned(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_learned_positions(lk_arg_int64(args, "max_len"), lk_arg_int64(args, "features"),
                                          .dim = lki_number_meant(lk_arg_int(args, "dim")),
                                          .std = lki_number_meant(lk_arg_float(args, "std"))),
                     out);
}

static lk_status build_sinusoidal(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_sinusoidal_positions(.dim = lki_number_meant(lk_arg_int(args, "dim")),
                                             .base = lki_number_meant(lk_arg_float(args, "base"))),
                     out);
}

static lk_status build_rotary(const lk_component *self, lk_args *args, void **out)
{
    int64_t heads = lk_arg_int64(args, "num_heads");
    (void)self;
    if (heads < 1)
        return lki_fail(LK_ERR_CONFIG, "num_heads: expected at least 1, found %lld", (long long)heads);
    return lki_built(lk_rotary_positions(.num_heads = heads, .features = lk_arg_int64(args, "features"),
                                         .base = lki_number_meant(lk_arg_float(args, "base")),
                                         .interleaved = lk_arg_bool(args, "interleaved")),
                     out);
}

#define INNER                                                                                                \
    LKI_INT("dim_feedforward", "2048", "size of the inner layer"),                                           \
        LKI_FLOAT("dropout", "0.1", "how many values become zero"),                                          \
        LKI_CHOICE("activation", "relu", "relu|gelu", "of the inner layer")
#define NORMS                                                                                                \
    LKI_FLOAT("layer_norm_eps", "1e-5", "added to the variance"),                                            \
        LKI_BOOL("batch_first", "false", "the input is (batch, sequence, feature)"),                         \
        LKI_BOOL("norm_first", "false", "normalise before attention and inner layer instead of after")
#define STACK                                                                                                \
    LKI_INT("num_layers", LKI_REQUIRED, "how many"),                                                         \
        LKI_OBJECT("norm", MODULE, LKI_OPTIONAL, "a normalisation after the last one"),                      \
        LKI_BOOL("is_causal", "false", "also in layers that do not say so themselves")

static const lk_parameter layer_parameters[] = {
    LKI_INT("d_model", LKI_REQUIRED, "size of the features"),
    LKI_INT("nhead", LKI_REQUIRED, "heads of the attention"),
    INNER,
    NORMS,
    LKI_BOOL("is_causal", "false", "a place sees itself and the places before it"),
    {0},
};
static const lk_parameter encoder_parameters[] = {
    LKI_OBJECT("encoder_layer", MODULE, LKI_REQUIRED, "the layer of which all are copies"), STACK, {0}};
static const lk_parameter decoder_parameters[] = {
    LKI_OBJECT("decoder_layer", MODULE, LKI_REQUIRED, "the layer of which all are copies"), STACK, {0}};
static const lk_parameter transformer_parameters[] = {
    LKI_INT("d_model", "512", "size of the features"),
    LKI_INT("nhead", "8", "heads of the attentions"),
    LKI_INT("num_encoder_layers", "6", "layers of the encoder"),
    LKI_INT("num_decoder_layers", "6", "layers of the decoder"),
    INNER,
    LKI_OBJECT("custom_encoder", MODULE, LKI_OPTIONAL, "instead of the encoder that the numbers describe"),
    LKI_OBJECT("custom_decoder", MODULE, LKI_OPTIONAL, "instead of the decoder that the numbers describe"),
    NORMS,
    LKI_BOOL("is_causal", "false", "a place of the target sees itself and the places before it"),
    {0},
};
static const lk_parameter rms_norm_parameters[] = {
    LKI_INTS("normalized_shape", LKI_REQUIRED, "the last axes' sizes"),
    LKI_FLOAT("eps", LKI_OPTIONAL, "added to the mean square; the dtype's epsilon where left out"),
    LKI_BOOL("elementwise_affine", "true", "learn a weight"),
    {0},
};
#define PLACES LKI_INT("dim", "1", "the axis of the places")
static const lk_parameter learned_parameters[] = {
    LKI_INT64("max_len", LKI_REQUIRED, "how many places there are at most"),
    LKI_INT64("features", LKI_REQUIRED, "size of the input's last axis"),
    LKI_FLOAT("std", "1.0", "of the vectors at first"),
    PLACES,
    {0},
};
static const lk_parameter sinusoidal_parameters[] = {
    PLACES, LKI_FLOAT("base", "10000.0", "the ratio of the longest wave to the shortest"), {0}};
static const lk_parameter rotary_parameters[] = {
    LKI_INT64("num_heads", "1", "heads, among which the features are divided"),
    LKI_INT64("features", "0", "how many of a head's turn, an even number; 0: all of them"),
    LKI_FLOAT("base", "10000.0", "the ratio of the slowest turn to the fastest"),
    LKI_BOOL("interleaved", "false", "pairs are neighbours; else those of the first and the second half"),
    {0},
};

#define MODULE(name_, help_, parameters_, build_)                                                            \
    {                                                                                                        \
        .name = name_, .kind = LK_KIND_MODULE, .help = help_, .parameters = parameters_, .build = build_     \
    }

const lk_component lki_transformer_components[] = {
    {"TransformerEncoderLayer", "torch.nn.TransformerEncoderLayer", LK_KIND_MODULE,
     "Attention and an inner layer, each with a residual and a normalisation.",
     .parameters = layer_parameters, .build = build_layer,
     .context = &(const layer){lk_transformer_encoder_layer_with}},
    {"TransformerEncoder", "torch.nn.TransformerEncoder", LK_KIND_MODULE,
     "Encoder layers one after the other.", .parameters = encoder_parameters, .build = build_encoder},
    {"TransformerDecoderLayer", "torch.nn.TransformerDecoderLayer", LK_KIND_MODULE,
     "A node of a target and a memory: attention to each, and an inner layer.",
     .parameters = layer_parameters, .build = build_layer,
     .context = &(const layer){lk_transformer_decoder_layer_with}},
    {"TransformerDecoder", "torch.nn.TransformerDecoder", LK_KIND_MODULE,
     "Decoder layers one after the other.", .parameters = decoder_parameters, .build = build_decoder},
    {"Transformer", "torch.nn.Transformer", LK_KIND_MODULE,
     "A node of a source and a target: encoder and decoder.", .parameters = transformer_parameters,
     .build = build_transformer},
    MODULE("RMSNorm", "Divides by the root mean square of the last axes.", rms_norm_parameters,
           build_rms_norm),
    MODULE("LearnedPositions", "x plus a learned vector for each place.", learned_parameters, build_learned),
    MODULE("SinusoidalPositions", "x plus sines and cosines of the place.", sinusoidal_parameters,
           build_sinusoidal),
    MODULE("RotaryPositions",
           "Turns pairs of features of a query or a key by angles that grow with the place.",
           rotary_parameters, build_rotary),
    {0},
};
