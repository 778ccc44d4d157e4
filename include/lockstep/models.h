/* Well-known models, with the parameter names, shapes and first weights of torchvision 0.14, and
 * the names and shapes of Hugging Face's GPT-2 and BERT, so that their checkpoints load.
 *
 *     lk_manual_seed(0);
 *     lk_module *model = lk_resnet50(.num_classes = 10);
 *
 * Options of zero mean the published model. torchvision's models draw their first weights from
 * lk_default_generator() as torchvision does: the same seed gives the same bits. GPT-2 and BERT
 * draw from the same distributions as Hugging Face's, but in an order of their own.
 *
 * Models of pictures take (N, C, H, W) and give logits (N, classes). Life and threads: as in
 * <lockstep/nn.h>. */
#ifndef LOCKSTEP_MODELS_H
#define LOCKSTEP_MODELS_H

#include <lockstep/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/* While it is on, constructors of modules on this thread draw no first weights: they are zero or
 * anything, and the generator stays where it is. For models whose weights are loaded afterwards, as
 * torch.nn.utils.skip_init. */
void lk_skip_init(bool skip);

/* Loads the weights of a published checkpoint (safetensors, or what torch.save wrote) into a model
 * with these names. As Hugging Face does, it takes "transformer.", "bert." or "model." in front of
 * a name as given or left out, "gamma" and "beta" for the weight and bias of a LayerNorm, a head
 * that is the embedding, and leaves out masks that the file stores. Names of the file that the
 * model does not have are passed over. A parameter that the file does not have, or has in another
 * shape, is LK_ERR_NOT_FOUND or LK_ERR_SHAPE with a line that names it, and nothing is changed. */
lk_status lk_load_pretrained(lk_module *model, const char *path);

/* ---- pictures ---- */

typedef struct lk_resnet_options {
    size_t struct_size;
    int64_t num_classes;     /* 1000 */
    int64_t in_channels;     /* 3 */
    int64_t width;           /* channels of the first stage; 64 */
    int64_t groups;          /* of the 3x3 convolutions of depths from 50 on; 1 */
    int64_t width_per_group; /* 64 */
    bool zero_init_residual; /* each block starts as the identity */
    /* For pictures of 32 x 32: a 3x3 convolution with stride 1 and no pooling before the stages. */
    bool small_input;
} lk_resnet_options;
#define lk_resnet18(...)  lk_resnet_with(18, LK_OPTIONS(lk_resnet_options, __VA_ARGS__))
#define lk_resnet34(...)  lk_resnet_with(34, LK_OPTIONS(lk_resnet_options, __VA_ARGS__))
#define lk_resnet50(...)  lk_resnet_with(50, LK_OPTIONS(lk_resnet_options, __VA_ARGS__))
#define lk_resnet101(...) lk_resnet_with(101, LK_OPTIONS(lk_resnet_options, __VA_ARGS__))
#define lk_resnet152(...) lk_resnet_with(152, LK_OPTIONS(lk_resnet_options, __VA_ARGS__))
lk_module *lk_resnet_with(int depth, const lk_resnet_options *options);

typedef struct lk_vgg_options {
    size_t struct_size;
    int64_t num_classes; /* 1000 */
    int64_t in_channels; /* 3 */
    int64_t width;       /* channels of the first layers; 64 */
    int64_t hidden;      /* units of the hidden layers; 4096 */
    double dropout;      /* 0.5 */
    bool batch_norm;     /* torchvision's vgg16_bn and its like */
} lk_vgg_options;
#define lk_vgg11(...) lk_vgg_with(11, LK_OPTIONS(lk_vgg_options, __VA_ARGS__))
#define lk_vgg13(...) lk_vgg_with(13, LK_OPTIONS(lk_vgg_options, __VA_ARGS__))
#define lk_vgg16(...) lk_vgg_with(16, LK_OPTIONS(lk_vgg_options, __VA_ARGS__))
#define lk_vgg19(...) lk_vgg_with(19, LK_OPTIONS(lk_vgg_options, __VA_ARGS__))
lk_module *lk_vgg_with(int depth, const lk_vgg_options *options);

typedef struct lk_mobilenet_options {
    size_t struct_size;
    int64_t num_classes; /* 1000 */
    int64_t in_channels; /* 3 */
    double width_mult;   /* 1 */
    double dropout;      /* 0.2 */
} lk_mobilenet_options;
#define lk_mobilenet_v2(...)       LK_CALL0_(lk_mobilenet_v2_with, lk_mobilenet_options, __VA_ARGS__)
#define lk_mobilenet_v3_small(...) LK_CALL0_(lk_mobilenet_v3_small_with, lk_mobilenet_options, __VA_ARGS__)
#define lk_mobilenet_v3_large(...) LK_CALL0_(lk_mobilenet_v3_large_with, lk_mobilenet_options, __VA_ARGS__)
lk_module *lk_mobilenet_v2_with(const lk_mobilenet_options *options);
lk_module *lk_mobilenet_v3_small_with(const lk_mobilenet_options *options);
lk_module *lk_mobilenet_v3_large_with(const lk_mobilenet_options *options);

typedef struct lk_efficientnet_options {
    size_t struct_size;
    int64_t num_classes;          /* 1000 */
    int64_t in_channels;          /* 3 */
    double width_mult;            /* 1 */
    double dropout;               /* 0.2 */
    double stochastic_depth_prob; /* of the last block, for whole samples; 0.2 */
} lk_efficientnet_options;
#define lk_efficientnet_b0(...) LK_CALL0_(lk_efficientnet_b0_with, lk_efficientnet_options, __VA_ARGS__)
lk_module *lk_efficientnet_b0_with(const lk_efficientnet_options *options);

typedef struct lk_unet_options {
    size_t struct_size;
    int64_t in_channels; /* 3 */
    int64_t num_classes; /* 2; channels of the output, which is as high and wide as the input */
    int64_t width;       /* channels at full size; 64 */
    bool bilinear;       /* up by interpolation instead of transposed convolutions */
} lk_unet_options;
/* The U-Net with padded convolutions and batch norms, with the names of the widely used PyTorch
 * implementation: inc, down1 to down4, up1 to up4, outc. Any height and width from 16 on. */
#define lk_unet(...) LK_CALL0_(lk_unet_with, lk_unet_options, __VA_ARGS__)
lk_module *lk_unet_with(const lk_unet_options *options);

typedef struct lk_vit_options {
    size_t struct_size;
    int64_t num_classes; /* 1000 */
    int64_t image_size;  /* 224 */
    int64_t patch_size;  /* 16 */
    int64_t num_layers;  /* 12 */
    int64_t num_heads;   /* 12 */
    int64_t hidden_dim;  /* 768 */
    int64_t mlp_dim;     /* 4 hidden_dim */
    double dropout;      /* 0 */
    double attention_dropout;
} lk_vit_options;
#define lk_vit_b_16(...) LK_CALL0_(lk_vit_b_16_with, lk_vit_options, __VA_ARGS__)
lk_module *lk_vit_b_16_with(const lk_vit_options *options);

/* ---- text ---- */

typedef struct lk_gpt2_options {
    size_t struct_size;
    int64_t vocab_size;  /* 50257 */
    int64_t n_positions; /* 1024 */
    int64_t n_embd;      /* 768, 1024, 1280 or 1600 */
    int64_t n_layer;     /* 12, 24, 36 or 48 */
    int64_t n_head;      /* 12, 16, 20 or 25 */
    double dropout;      /* of embeddings, weights of attention and what blocks add; 0.1 */
    double layer_norm_eps;
} lk_gpt2_options;
/* i64 (N, T) to logits (N, T, vocabulary); the head is the embedding. Sizes of 124M, 355M, 774M and
 * 1.5B parameters. */
#define lk_gpt2(...)        lk_gpt2_with("gpt2", LK_OPTIONS(lk_gpt2_options, __VA_ARGS__))
#define lk_gpt2_medium(...) lk_gpt2_with("gpt2-medium", LK_OPTIONS(lk_gpt2_options, __VA_ARGS__))
#define lk_gpt2_large(...)  lk_gpt2_with("gpt2-large", LK_OPTIONS(lk_gpt2_options, __VA_ARGS__))
#define lk_gpt2_xl(...)     lk_gpt2_with("gpt2-xl", LK_OPTIONS(lk_gpt2_options, __VA_ARGS__))
lk_module *lk_gpt2_with(const char *size, const lk_gpt2_options *options);

typedef struct lk_bert_options {
    size_t struct_size;
    int64_t vocab_size;              /* 30522 */
    int64_t max_position_embeddings; /* 512 */
    int64_t type_vocab_size;         /* 2 */
    int64_t hidden_size;             /* 768 */
    int64_t num_hidden_layers;       /* 12 */
    int64_t num_attention_heads;     /* 12 */
    int64_t intermediate_size;       /* 4 hidden_size */
    double dropout;                  /* 0.1 */
    double layer_norm_eps;           /* 1e-12 */
    /* Of a classifier of sequences, whose other names then begin with "bert."; 0: none. */
    int64_t num_labels;
} lk_bert_options;
/* i64 (N, T) to the last hidden state (N, T, E), or to logits (N, labels). lk_module_call also
 * takes an attention mask (N, T), 1 for tokens and 0 for padding, and token types i64 (N, T), in
 * this order, and gives the pooled state (N, E) as a second output if there is no classifier. */
#define lk_bert(...) LK_CALL0_(lk_bert_with, lk_bert_options, __VA_ARGS__)
lk_module *lk_bert_with(const lk_bert_options *options);

typedef struct lk_char_lstm_options {
    size_t struct_size;
    int64_t embedding_dim; /* 16 */
    int64_t hidden_size;   /* 128 */
    int64_t num_layers;    /* 2 */
    double dropout;        /* between layers; 0 */
} lk_char_lstm_options;
/* i64 (N, T) to logits (N, T, vocabulary): "embedding", "lstm", "head". */
#define lk_char_lstm(...) LK_CALL1_(lk_char_lstm_with, lk_char_lstm_options, __VA_ARGS__, )
lk_module *lk_char_lstm_with(int64_t vocab_size, const lk_char_lstm_options *options);

#ifdef __cplusplus
}
#endif
#endif
