/* The vision transformer, with torchvision's names and first weights. */
#include "models/models.h"

#include "base/status.h"
#include "base/take.h"
#include "graph/graph.h"

#include <math.h>
#include <stdio.h>

/* x + attention(ln_1(x)), then x + mlp(ln_2(x)). */
static lk_value *block_forward(lk_module *module, lk_value *x)
{
    lk_value *y = lki_model_run(module, "self_attention", lki_model_run(module, "ln_1", x));
    x = lk_op_add(x, lki_model_run(module, "dropout", y));
    return lk_op_add(x, lki_model_run(module, "mlp", lki_model_run(module, "ln_2", x)));
}

static lk_status init_mlp_linear(lk_module *linear)
{
    LKI_TRY(lk_init_xavier_uniform(lki_module_own_param(linear, "weight"), 1));
    return lk_init_normal(lki_module_own_param(linear, "bias"), 0, 1e-6);
}

static lk_module *make_block(const lk_vit_options *options)
{
    double dropout = options->dropout ? options->dropout : LK_ZERO;
    lk_module *module = lki_module_create("EncoderBlock", block_forward, NULL, 0);
    lki_model_add(module, "ln_1", lk_layer_norm(options->hidden_dim, .eps = 1e-6));
    lki_model_add(module, "self_attention",
                  lk_multihead_attention(options->hidden_dim, options->num_heads,
                                         .dropout = options->attention_dropout, .batch_first = true));
    lki_model_add(module, "dropout", lk_dropout(.p = dropout));
    lki_model_add(module, "ln_2", lk_layer_norm(options->hidden_dim, .eps = 1e-6));
    lk_module *mlp =
        lk_sequential(lk_linear(options->hidden_dim, options->mlp_dim), lk_gelu(), lk_dropout(.p = dropout),
                      lk_linear(options->mlp_dim, options->hidden_dim), lk_dropout(.p = dropout));
    lki_model_each(mlp, "Linear", init_mlp_linear);
    lki_model_add(module, "mlp", lki_module_checked(mlp));
    return lki_module_checked(module);
}

static lk_value *encoder_forward(lk_module *module, lk_value *x)
{
    x = lk_op_add(x, lki_module_value(module, x, "pos_embedding"));
    x = lki_model_run(module, "layers", lki_model_run(module, "dropout", x));
    return lki_model_run(module, "ln", x);
}

static lk_module *make_encoder(const lk_vit_options *options, int64_t length)
{
    lk_module *module = lki_module_create("Encoder", encoder_forward, NULL, 0), *layers = lki_model_chain();
    lk_param *places =
        lki_module_new_param(module, "pos_embedding", LK_SHAPE(1, length, options->hidden_dim));
    if (places) lki_module_note(module, lk_init_normal(places, 0, 0.02));
    lki_model_add(module, "dropout", lk_dropout(.p = options->dropout ? options->dropout : LK_ZERO));
    for (int64_t i = 0; i < options->num_layers; i++) {
        char name[48];
        snprintf(name, sizeof name, "encoder_layer_%lld", (long long)i);
        lki_model_add(layers, name, make_block(options));
    }
    lki_model_add(module, "layers", lki_module_checked(layers));
    lki_model_add(module, "ln", lk_layer_norm(options->hidden_dim, .eps = 1e-6));
    return lki_module_checked(module);
}

/* The context is the size of a picture. */
static lk_value *vit_forward(lk_module *module, lk_value *x)
{
    int64_t size = *(const int64_t *)module->context;
    lk_shape shape = lk_value_shape(x);
    char text[128];
    if (shape.rank != 4 || shape.dim[2] != size || shape.dim[3] != size)
        return lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE,
                              "expected pictures (N, 3, %lld, %lld), found %s", (long long)size,
                              (long long)size, lk_shape_format(text, sizeof text, shape));
    x = lki_model_run(module, "conv_proj", x); /* (N, E, H, W) */
    if (!x) return NULL;
    shape = lk_value_shape(x);
    x = lk_op_transpose(lk_op_reshape(x, LK_SHAPE(shape.dim[0], shape.dim[1], -1)), 1, 2);
    lk_value *token =
        lk_op_expand(lki_module_value(module, x, "class_token"), LK_SHAPE(shape.dim[0], 1, shape.dim[1]));
    x = lki_model_run(module, "encoder", lk_op_concat((lk_value *const[]){token, x}, 2, 1));
    x = lk_op_reshape(lk_op_slice(x, 1, 0, 1, 1), LK_SHAPE(shape.dim[0], shape.dim[1]));
    return lki_model_run(module, "heads", x);
}

static lk_status take_options(lk_vit_options *options)
{
    LKI_TRY(lki_size_or("ViT", "num_classes", options->num_classes, 1000, &options->num_classes));
    LKI_TRY(lki_size_or("ViT", "image_size", options->image_size, 224, &options->image_size));
    LKI_TRY(lki_size_or("ViT", "patch_size", options->patch_size, 16, &options->patch_size));
    LKI_TRY(lki_size_or("ViT", "num_layers", options->num_layers, 12, &options->num_layers));
    LKI_TRY(lki_size_or("ViT", "num_heads", options->num_heads, 12, &options->num_heads));
    LKI_TRY(lki_size_or("ViT", "hidden_dim", options->hidden_dim, 768, &options->hidden_dim));
    LKI_TRY(lki_size_or("ViT", "mlp_dim", options->mlp_dim, 4 * options->hidden_dim, &options->mlp_dim));
    if (options->image_size % options->patch_size)
        return lki_fail(LK_ERR_INVALID, "ViT: image_size %lld is not a multiple of patch_size %lld",
                        (long long)options->image_size, (long long)options->patch_size);
    return LK_OK;
}

lk_module *lk_vit_b_16_with(const lk_vit_options *given)
{
    LKI_TAKE(lk_vit_options, options, given, NULL);
    if (take_options(&options) != LK_OK) return NULL;
    int64_t side = options.image_size / options.patch_size, patch = options.patch_size;
    lk_module *module =
        lki_module_create("VisionTransformer", vit_forward, &options.image_size, sizeof options.image_size);
    lki_module_new_param(module, "class_token", LK_SHAPE(1, 1, options.hidden_dim));
    lki_model_add(module, "conv_proj", lk_conv2d(3, options.hidden_dim, patch, .stride = patch));
    lki_model_add(module, "encoder", make_encoder(&options, side * side + 1));
    lki_model_add(module, "heads",
                  lk_named_sequential({"head", lk_linear(options.hidden_dim, options.num_classes)}));
    if (!module || module->failed) return lki_module_checked(module);
    double std = sqrt(1 / (double)(3 * patch * patch));
    lki_module_note(module,
                    lk_init_trunc_normal(lki_module_param(module, "conv_proj.weight"), 0, std, -2, 2));
    lki_module_note(module, lk_init_constant(lki_module_param(module, "conv_proj.bias"), 0));
    lki_module_note(module, lk_init_constant(lki_module_param(module, "heads.head.weight"), 0));
    lki_module_note(module, lk_init_constant(lki_module_param(module, "heads.head.bias"), 0));
    return lki_module_checked(module);
}
