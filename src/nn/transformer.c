/* Layers of transformers, children named and drawn in PyTorch's order. */
#include "nn/transformer.h"

#include "base/status.h"
#include "base/take.h"
#include "graph/graph.h"
#include "nn/nodes.h"

typedef struct layer_context {
    lk_transformer_activation activation;
    bool norm_first;
} layer_context;

/* The places of the children, as PyTorch's constructors make them. */
enum { SELF_ATTN, LINEAR1, DROPOUT, LINEAR2, NORM1, NORM2, DROPOUT1, DROPOUT2 };
enum {
    DECODER_SELF_ATTN,
    DECODER_MULTIHEAD_ATTN,
    DECODER_LINEAR1,
    DECODER_DROPOUT,
    DECODER_LINEAR2,
    DECODER_NORM1,
    DECODER_NORM2,
    DECODER_NORM3,
    DECODER_DROPOUT1,
    DECODER_DROPOUT2,
    DECODER_DROPOUT3
};

lk_value *lki_call_for_one(lk_module *module, lk_value *const *inputs, int count)
{
    lk_value *output = NULL;
    return lk_module_call(module, inputs, count, &output, 1) == LK_OK ? output : NULL;
}

static lk_value *through(lk_module *layer, int child, lk_value *x)
{
    return lk_module_forward(layer->children[child].module, x);
}

/* Attention of x to `memory`, then a dropout. */
static lk_value *attend(lk_module *layer, int attention, int dropout, lk_value *x, lk_value *memory,
                        lk_value *mask, lk_value *padding)
{
    lk_value *const inputs[] = {x, memory, memory, padding, mask};
    return through(layer, dropout, lki_call_for_one(layer->children[attention].module, inputs, 5));
}

/* linear1, the activation, dropout and linear2, which lie side by side, then a dropout. */
static lk_value *feed_forward(lk_module *layer, int linear1, int dropout, lk_value *x)
{
    const layer_context *own = layer->context;
    x = through(layer, linear1, x);
    x = own->activation == LK_TRANSFORMER_GELU ? lk_op_gelu(x, false) : lk_op_relu(x);
    return through(layer, dropout, through(layer, linear1 + 2, through(layer, linear1 + 1, x)));
}

/* ---- the encoder's ---- */

/* src, src_mask, src_key_padding_mask */
static lk_status encoder_layer_call(lk_module *layer, lk_value *const *inputs, int count, lk_value **outputs,
                                    int output_count)
{
    const layer_context *own = layer->context;
    lk_value *x = inputs[0], *mask = count > 1 ? inputs[1] : NULL, *padding = count > 2 ? inputs[2] : NULL;
    (void)output_count;
    if (own->norm_first) {
        lk_value *y = through(layer, NORM1, x);
        x = lk_op_add(x, attend(layer, SELF_ATTN, DROPOUT1, y, y, mask, padding));
        outputs[0] = lk_op_add(x, feed_forward(layer, LINEAR1, DROPOUT2, through(layer, NORM2, x)));
    } else {
        x = lk_op_add(x, attend(layer, SELF_ATTN, DROPOUT1, x, x, mask, padding));
        x = through(layer, NORM1, x);
        outputs[0] = through(layer, NORM2, lk_op_add(x, feed_forward(layer, LINEAR1, DROPOUT2, x)));
    }
    return lk_value_graph(inputs[0])->status;
}

bool lki_is_encoder_layer(const lk_module *module)
{
    return module->call == encoder_layer_call;
}

/* ---- the decoder's ---- */

/* tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask */
static lk_status decoder_layer_call(lk_module *layer, lk_value *const *inputs, int count, lk_value **outputs,
                                    int output_count)
{
    const layer_context *own = layer->context;
    lk_value *in[6] = {NULL};
    (void)output_count;
    for (int i = 0; i < count; i++) in[i] = inputs[i];
    lk_value *x = in[0];
    if (own->norm_first) {
        lk_value *y = through(layer, DECODER_NORM1, x);
        x = lk_op_add(x, attend(layer, DECODER_SELF_ATTN, DECODER_DROPOUT1, y, y, in[2], in[4]));
        y = through(layer, DECODER_NORM2, x);
        x = lk_op_add(x, attend(layer, DECODER_MULTIHEAD_ATTN, DECODER_DROPOUT2, y, in[1], in[3], in[5]));
        y = through(layer, DECODER_NORM3, x);
        outputs[0] = lk_op_add(x, feed_forward(layer, DECODER_LINEAR1, DECODER_DROPOUT3, y));
    } else {
        x = lk_op_add(x, attend(layer, DECODER_SELF_ATTN, DECODER_DROPOUT1, x, x, in[2], in[4]));
        x = through(layer, DECODER_NORM1, x);
        x = lk_op_add(x, attend(layer, DECODER_MULTIHEAD_ATTN, DECODER_DROPOUT2, x, in[1], in[3], in[5]));
        x = through(layer, DECODER_NORM2, x);
        x = lk_op_add(x, feed_forward(layer, DECODER_LINEAR1, DECODER_DROPOUT3, x));
        outputs[0] = through(layer, DECODER_NORM3, x);
    }
    return lk_value_graph(inputs[0])->status;
}

bool lki_is_decoder_layer(const lk_module *module)
{
    return module->call == decoder_layer_call;
}

/* ---- making them ---- */

/* What both kinds are made of. */
typedef struct parts {
    int64_t d_model, heads, width;
    lk_multihead_attention_options attention;
    lk_dropout_options dropout;
    lk_norm_options norm;
} parts;

static parts plan_parts(int64_t d_model, int64_t heads, const lk_transformer_encoder_layer_options *options)
{
    double p = lki_number_or(options->dropout, 0.1);
    return (parts){
        .d_model = d_model,
        .heads = heads,
        .width = options->dim_feedforward ? options->dim_feedforward : 2048,
        .attention = {LK_SIZE(lk_multihead_attention_options), .dropout = p,
                      .batch_first = options->batch_first},
        .dropout = {LK_SIZE(lk_dropout_options), .p = lki_number_meant(p)},
        .norm = {LK_SIZE(lk_norm_options), .eps = options->layer_norm_eps},
    };
}

/* One after the other, in the order of the draws; a failure is noted in the layer. */
static bool add(lk_module *layer, const char *name, lk_module *child)
{
    return lk_module_add_child(layer, name, child) == LK_OK;
}

static bool add_attention(lk_module *layer, const char *name, const parts *p, bool is_causal)
{
    lk_multihead_attention_options options = p->attention;
    options.is_causal = is_causal;
    return add(layer, name, lk_multihead_attention_with(p->d_model, p->heads, &options));
}

static bool add_feed_forward(lk_module *layer, const parts *p)
{
    return add(layer, "linear1", lk_linear(p->d_model, p->width)) &&
           add(layer, "dropout", lk_dropout_with(&p->dropout)) &&
           add(layer, "linear2", lk_linear(p->width, p->d_model));
}

static bool add_norms_and_dropouts(lk_module *layer, const parts *p, int count)
{
    static const char *const norms[] = {"norm1", "norm2", "norm3"}, *const dropouts[] = {
                                                                        "dropout1", "dropout2", "dropout3"};
    for (int i = 0; i < count; i++)
        if (!add(layer, norms[i], lk_layer_norm_last_with(p->d_model, &p->norm))) return false;
    for (int i = 0; i < count; i++)
        if (!add(layer, dropouts[i], lk_dropout_with(&p->dropout))) return false;
    return true;
}

static lk_module *create(const char *type, lk_module_call_function call, const char *names, int required,
                         const lk_transformer_encoder_layer_options *options)
{
    layer_context own = {options->activation, options->norm_first};
    if (options->activation != LK_TRANSFORMER_RELU && options->activation != LK_TRANSFORMER_GELU)
        return lki_fail_null(LK_ERR_INVALID, "%s: there is no activation %d", type, (int)options->activation);
    return lki_module_of_named(type, call, names, required, &own, sizeof own);
}

lk_module *lk_transformer_encoder_layer_with(int64_t d_model, int64_t heads,
                                             const lk_transformer_encoder_layer_options *given)
{
    LKI_TAKE(lk_transformer_encoder_layer_options, options, given, NULL);
    parts p = plan_parts(d_model, heads, &options);
    lk_module *layer = create("TransformerEncoderLayer", encoder_layer_call,
                              "src src_mask src_key_padding_mask", 1, &options);
    if (!layer) return NULL;
    if (add_attention(layer, "self_attn", &p, options.is_causal) && add_feed_forward(layer, &p))
        add_norms_and_dropouts(layer, &p, 2);
    return lki_module_checked(layer);
}

lk_module *lk_transformer_decoder_layer_with(int64_t d_model, int64_t heads,
                                             const lk_transformer_decoder_layer_options *given)
{
    LKI_TAKE(lk_transformer_decoder_layer_options, options, given, NULL);
    parts p = plan_parts(d_model, heads, &options);
    lk_module *layer =
        create("TransformerDecoderLayer", decoder_layer_call,
               "tgt memory tgt_mask memory_mask tgt_key_padding_mask memory_key_padding_mask", 2, &options);
    if (!layer) return NULL;
    if (add_attention(layer, "self_attn", &p, options.is_causal) &&
        add_attention(layer, "multihead_attn", &p, false) && add_feed_forward(layer, &p))
        add_norms_and_dropouts(layer, &p, 3);
    return lki_module_checked(layer);
}
