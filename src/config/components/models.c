/* Well-known models, under torchvision's and Hugging Face's names. */
#include "config/components/components.h"

#include "base/arguments.h"
#include "base/status.h"
#include "nn/init.h"

#include <lockstep/models.h>

#include <string.h>

/* A component's constructor with its options read from the config. */
typedef struct zoo_model {
    lk_module *(*make)(const struct zoo_model *kind, lk_args *args);
    int depth;
    const char *size;
    lk_module *(*mobilenet)(const lk_mobilenet_options *options);
} zoo_model;

/* In C a 0 is the default; in a config it would be a mistake that nobody hears of. */
static lk_status check_sizes(const lk_component *self, lk_args *args)
{
    for (const lk_parameter *each = self->parameters; each->name; each++) {
        if (!lk_arg_given(args, each->name) || !strcmp(each->name, "num_labels")) continue;
        if (each->type == LK_PARAMETER_INT64 && lk_arg_int64(args, each->name) < 1)
            return lki_fail(LK_ERR_CONFIG, "%s: expected at least 1, found %lld", each->name,
                            (long long)lk_arg_int64(args, each->name));
        if (!strcmp(each->name, "width_mult") && !(lk_arg_float(args, each->name) > 0))
            return lki_fail(LK_ERR_CONFIG, "width_mult: expected more than 0, found %g",
                            lk_arg_float(args, each->name));
    }
    return LK_OK;
}

/* With `pretrained` nothing is drawn, and the file's weights are loaded. */
static lk_status build_zoo(const lk_component *self, lk_args *args, void **out)
{
    const zoo_model *kind = self->context;
    const char *path = lk_arg_given(args, "pretrained") ? lk_arg_string(args, "pretrained") : NULL;
    bool skipped = lki_init_skipped();
    LKI_TRY(check_sizes(self, args));
    if (path) lk_skip_init(true);
    lk_module *model = kind->make(kind, args);
    lk_skip_init(skipped);
    if (model && path && lk_load_pretrained(model, path) != LK_OK) {
        lk_module_free(model);
        model = NULL;
    }
    return lki_built(model, out);
}

static lk_module *make_resnet(const zoo_model *kind, lk_args *args)
{
    lk_resnet_options options = {
        LK_SIZE(lk_resnet_options),
        .num_classes = lk_arg_int64(args, "num_classes"),
        .in_channels = lk_arg_int64(args, "in_channels"),
        .width = lk_arg_int64(args, "width"),
        .zero_init_residual = lk_arg_bool(args, "zero_init_residual"),
        .small_input = lk_arg_bool(args, "small_input"),
    };
    if (kind->depth >= 50) {
        options.groups = lk_arg_int64(args, "groups");
        options.width_per_group = lk_arg_int64(args, "width_per_group");
    }
    return lk_resnet_with(kind->depth, &options);
}

static lk_module *make_vgg(const zoo_model *kind, lk_args *args)
{
    lk_vgg_options options = {
        LK_SIZE(lk_vgg_options),
        .num_classes = lk_arg_int64(args, "num_classes"),
        .in_channels = lk_arg_int64(args, "in_channels"),
        .width = lk_arg_int64(args, "width"),
        .hidden = lk_arg_int64(args, "hidden"),
        .dropout = lki_number_meant(lk_arg_float(args, "dropout")),
        .batch_norm = kind->size != NULL,
    };
    return lk_vgg_with(kind->depth, &options);
}

static lk_module *make_mobilenet(const zoo_model *kind, lk_args *args)
{
    lk_mobilenet_options options = {
        LK_SIZE(lk_mobilenet_options),
        .num_classes = lk_arg_int64(args, "num_classes"),
        .in_channels = lk_arg_int64(args, "in_channels"),
        .width_mult = lk_arg_float(args, "width_mult"),
        .dropout = lki_number_meant(lk_arg_float(args, "dropout")),
    };
    return kind->mobilenet(&options);
}

static lk_module *make_efficientnet(const zoo_model *kind, lk_args *args)
{
    lk_efficientnet_options options = {
        LK_SIZE(lk_efficientnet_options),
        .num_classes = lk_arg_int64(args, "num_classes"),
        .in_channels = lk_arg_int64(args, "in_channels"),
        .width_mult = lk_arg_float(args, "width_mult"),
        .dropout = lki_number_meant(lk_arg_float(args, "dropout")),
        .stochastic_depth_prob = lki_number_meant(lk_arg_float(args, "stochastic_depth_prob")),
    };
    (void)kind;
    return lk_efficientnet_b0_with(&options);
}

static lk_module *make_unet(const zoo_model *kind, lk_args *args)
{
    lk_unet_options options = {
        LK_SIZE(lk_unet_options),
        .in_channels = lk_arg_int64(args, "in_channels"),
        .num_classes = lk_arg_int64(args, "num_classes"),
        .width = lk_arg_int64(args, "width"),
        .bilinear = lk_arg_bool(args, "bilinear"),
    };
    (void)kind;
    return lk_unet_with(&options);
}

static lk_module *make_vit(const zoo_model *kind, lk_args *args)
{
    lk_vit_options options = {
        LK_SIZE(lk_vit_options),
        .num_classes = lk_arg_int64(args, "num_classes"),
        .image_size = lk_arg_int64(args, "image_size"),
        .patch_size = lk_arg_int64(args, "patch_size"),
        .num_layers = lk_arg_int64(args, "num_layers"),
        .num_heads = lk_arg_int64(args, "num_heads"),
        .hidden_dim = lk_arg_int64(args, "hidden_dim"),
        .mlp_dim = lk_arg_given(args, "mlp_dim") ? lk_arg_int64(args, "mlp_dim") : 0,
        .dropout = lk_arg_float(args, "dropout"),
        .attention_dropout = lk_arg_float(args, "attention_dropout"),
    };
    (void)kind;
    return lk_vit_b_16_with(&options);
}

static lk_module *make_gpt2(const zoo_model *kind, lk_args *args)
{
    lk_gpt2_options options = {
        LK_SIZE(lk_gpt2_options),
        .vocab_size = lk_arg_int64(args, "vocab_size"),
        .n_positions = lk_arg_int64(args, "n_positions"),
        .n_embd = lk_arg_int64(args, "n_embd"),
        .n_layer = lk_arg_int64(args, "n_layer"),
        .n_head = lk_arg_int64(args, "n_head"),
        .dropout = lki_number_meant(lk_arg_float(args, "dropout")),
        .layer_norm_eps = lki_number_meant(lk_arg_float(args, "layer_norm_eps")),
    };
    return lk_gpt2_with(kind->size, &options);
}

static lk_module *make_bert(const zoo_model *kind, lk_args *args)
{
    lk_bert_options options = {
        LK_SIZE(lk_bert_options),
        .vocab_size = lk_arg_int64(args, "vocab_size"),
        .max_position_embeddings = lk_arg_int64(args, "max_position_embeddings"),
        .type_vocab_size = lk_arg_int64(args, "type_vocab_size"),
        .hidden_size = lk_arg_int64(args, "hidden_size"),
        .num_hidden_layers = lk_arg_int64(args, "num_hidden_layers"),
        .num_attention_heads = lk_arg_int64(args, "num_attention_heads"),
        .intermediate_size =
            lk_arg_given(args, "intermediate_size") ? lk_arg_int64(args, "intermediate_size") : 0,
        .dropout = lki_number_meant(lk_arg_float(args, "dropout")),
        .layer_norm_eps = lki_number_meant(lk_arg_float(args, "layer_norm_eps")),
        .num_labels = lk_arg_int64(args, "num_labels"),
    };
    (void)kind;
    return lk_bert_with(&options);
}

static lk_module *make_char_lstm(const zoo_model *kind, lk_args *args)
{
    lk_char_lstm_options options = {
        LK_SIZE(lk_char_lstm_options),
        .embedding_dim = lk_arg_int64(args, "embedding_dim"),
        .hidden_size = lk_arg_int64(args, "hidden_size"),
        .num_layers = lk_arg_int64(args, "num_layers"),
        .dropout = lk_arg_float(args, "dropout"),
    };
    (void)kind;
    return lk_char_lstm_with(lk_arg_int64(args, "vocab_size"), &options);
}

#define PRETRAINED                                                                                           \
    LKI_STRING("pretrained", LKI_OPTIONAL, "a published checkpoint, from which all weights are loaded")
#define PICTURES                                                                                             \
    LKI_INT64("num_classes", "1000", "classes"), LKI_INT64("in_channels", "3", "channels of the pictures")

static const lk_parameter resnet_parameters[] = {
    PICTURES,
    LKI_INT64("width", "64", "channels of the first stage"),
    LKI_BOOL("zero_init_residual", "false", "each block starts as the identity"),
    LKI_BOOL("small_input", "false", "for pictures of 32 x 32: a first stride of 1 and no pooling"),
    PRETRAINED,
    {0},
};
static const lk_parameter deep_resnet_parameters[] = {
    PICTURES,
    LKI_INT64("width", "64", "channels of the first stage"),
    LKI_INT64("groups", "1", "groups of the 3x3 convolutions"),
    LKI_INT64("width_per_group", "64", "channels of a group, where the width is 64"),
    LKI_BOOL("zero_init_residual", "false", "each block starts as the identity"),
    LKI_BOOL("small_input", "false", "for pictures of 32 x 32: a first stride of 1 and no pooling"),
    PRETRAINED,
    {0},
};
static const lk_parameter vgg_parameters[] = {
    PICTURES,
    LKI_INT64("width", "64", "channels of the first layers"),
    LKI_INT64("hidden", "4096", "units of the hidden layers"),
    LKI_FLOAT("dropout", "0.5", "how many values of the hidden layers become zero"),
    PRETRAINED,
    {0},
};
static const lk_parameter mobilenet_parameters[] = {
    PICTURES,
    LKI_FLOAT("width_mult", "1.0", "factor of all channels"),
    LKI_FLOAT("dropout", "0.2", "how many values before the last layer become zero"),
    PRETRAINED,
    {0},
};
static const lk_parameter efficientnet_parameters[] = {
    PICTURES,
    LKI_FLOAT("width_mult", "1.0", "factor of all channels"),
    LKI_FLOAT("dropout", "0.2", "how many values before the last layer become zero"),
    LKI_FLOAT("stochastic_depth_prob", "0.2", "how many samples skip the last block"),
    PRETRAINED,
    {0},
};
static const lk_parameter unet_parameters[] = {
    LKI_INT64("in_channels", "3", "channels of the pictures"),
    LKI_INT64("num_classes", "2", "channels of the output"),
    LKI_INT64("width", "64", "channels at full size"),
    LKI_BOOL("bilinear", "false", "up by interpolation instead of transposed convolutions"),
    PRETRAINED,
    {0},
};
static const lk_parameter vit_parameters[] = {
    LKI_INT64("num_classes", "1000", "classes"),
    LKI_INT64("image_size", "224", "height and width of the pictures"),
    LKI_INT64("patch_size", "16", "height and width of a patch"),
    LKI_INT64("num_layers", "12", "layers"),
    LKI_INT64("num_heads", "12", "heads of the attention"),
    LKI_INT64("hidden_dim", "768", "size of the features"),
    LKI_INT64("mlp_dim", LKI_OPTIONAL, "size of the inner layer; 4 hidden_dim where left out"),
    LKI_FLOAT("dropout", "0.0", "how many values become zero"),
    LKI_FLOAT("attention_dropout", "0.0", "how many attention weights become zero"),
    PRETRAINED,
    {0},
};
#define GPT2_PARAMETERS(width_, layers_, heads_)                                                             \
    {                                                                                                        \
        LKI_INT64("vocab_size", "50257", "how many tokens there are"),                                       \
            LKI_INT64("n_positions", "1024", "the longest sequence"),                                        \
            LKI_INT64("n_embd", width_, "size of the features"), LKI_INT64("n_layer", layers_, "layers"),    \
            LKI_INT64("n_head", heads_, "heads of the attention"),                                           \
            LKI_FLOAT("dropout", "0.1", "how many values become zero"),                                      \
            LKI_FLOAT("layer_norm_eps", "1e-5", "added to the variance"), PRETRAINED,                        \
        {                                                                                                    \
            0                                                                                                \
        }                                                                                                    \
    }
static const lk_parameter gpt2_parameters[] = GPT2_PARAMETERS("768", "12", "12");
static const lk_parameter gpt2_medium_parameters[] = GPT2_PARAMETERS("1024", "24", "16");
static const lk_parameter gpt2_large_parameters[] = GPT2_PARAMETERS("1280", "36", "20");
static const lk_parameter gpt2_xl_parameters[] = GPT2_PARAMETERS("1600", "48", "25");
static const lk_parameter bert_parameters[] = {
    LKI_INT64("vocab_size", "30522", "how many tokens there are"),
    LKI_INT64("max_position_embeddings", "512", "the longest sequence"),
    LKI_INT64("type_vocab_size", "2", "how many token types there are"),
    LKI_INT64("hidden_size", "768", "size of the features"),
    LKI_INT64("num_hidden_layers", "12", "layers"),
    LKI_INT64("num_attention_heads", "12", "heads of the attention"),
    LKI_INT64("intermediate_size", LKI_OPTIONAL, "size of the inner layer; 4 hidden_size where left out"),
    LKI_FLOAT("dropout", "0.1", "how many values become zero"),
    LKI_FLOAT("layer_norm_eps", "1e-12", "added to the variance"),
    LKI_INT64("num_labels", "0", "classes of a classifier of sequences; 0: the last hidden state"),
    PRETRAINED,
    {0},
};
static const lk_parameter char_lstm_parameters[] = {
    LKI_INT64("vocab_size", LKI_REQUIRED, "how many tokens there are"),
    LKI_INT64("embedding_dim", "16", "size of a token's vector"),
    LKI_INT64("hidden_size", "128", "units per layer"),
    LKI_INT64("num_layers", "2", "layers"),
    LKI_FLOAT("dropout", "0.0", "how many values become zero between layers"),
    PRETRAINED,
    {0},
};

#define ZOO(name_, aliases_, help_, table_, ...)                                                             \
    {                                                                                                        \
        .name = name_, .aliases = aliases_, .kind = LK_KIND_MODULE, .help = help_,                           \
        .parameters = table_##_parameters, .build = build_zoo, .context = &(const zoo_model)                 \
        {                                                                                                    \
            __VA_ARGS__                                                                                      \
        }                                                                                                    \
    }
#define TORCHVISION(name_) name_ " torchvision.models." name_
#define RESNET(depth_, table_)                                                                               \
    ZOO("ResNet" #depth_, TORCHVISION("resnet" #depth_), "ResNet-" #depth_ " for pictures.", table_,         \
        .make = make_resnet, .depth = depth_)
#define VGG(depth_)                                                                                          \
    ZOO("VGG" #depth_, TORCHVISION("vgg" #depth_), "VGG-" #depth_ " for pictures.", vgg, .make = make_vgg,   \
        .depth = depth_),                                                                                    \
        ZOO("VGG" #depth_ "BN", TORCHVISION("vgg" #depth_ "_bn"),                                            \
            "VGG-" #depth_ " with batch norms, for pictures.", vgg, .make = make_vgg, .depth = depth_,       \
            .size = "bn")
#define GPT2(name_, alias_, size_, table_)                                                                   \
    ZOO(name_, alias_, "GPT-2 of " size_ " parameters: tokens (N, T) to logits (N, T, vocabulary).", table_, \
        .make = make_gpt2, .size = alias_)

const lk_component lki_zoo_components[] = {
    RESNET(18, resnet),
    RESNET(34, resnet),
    RESNET(50, deep_resnet),
    RESNET(101, deep_resnet),
    RESNET(152, deep_resnet),
    VGG(11),
    VGG(13),
    VGG(16),
    VGG(19),
    ZOO("MobileNetV2", TORCHVISION("mobilenet_v2"), "MobileNetV2 for pictures.", mobilenet,
        .make = make_mobilenet, .mobilenet = lk_mobilenet_v2_with),
    ZOO("MobileNetV3Small", TORCHVISION("mobilenet_v3_small"), "MobileNetV3 (small) for pictures.", mobilenet,
        .make = make_mobilenet, .mobilenet = lk_mobilenet_v3_small_with),
    ZOO("MobileNetV3Large", TORCHVISION("mobilenet_v3_large"), "MobileNetV3 (large) for pictures.", mobilenet,
        .make = make_mobilenet, .mobilenet = lk_mobilenet_v3_large_with),
    ZOO("EfficientNetB0", TORCHVISION("efficientnet_b0"), "EfficientNet-B0 for pictures.", efficientnet,
        .make = make_efficientnet),
    ZOO("ViTB16", TORCHVISION("vit_b_16"), "The vision transformer ViT-B/16 for pictures.", vit,
        .make = make_vit),
    ZOO("UNet", NULL, "The U-Net: pictures to logits of each pixel.", unet, .make = make_unet),
    GPT2("GPT2", "gpt2", "124M", gpt2),
    GPT2("GPT2Medium", "gpt2-medium", "355M", gpt2_medium),
    GPT2("GPT2Large", "gpt2-large", "774M", gpt2_large),
    GPT2("GPT2XL", "gpt2-xl", "1.5B", gpt2_xl),
    ZOO("BERT", "bert-base", "BERT: tokens (N, T) to hidden states (N, T, E), or logits of a classifier.",
        bert, .make = make_bert),
    ZOO("CharLSTM", NULL, "An LSTM over letters: (N, T) to logits (N, T, vocabulary).", char_lstm,
        .make = make_char_lstm),
    {0},
};
