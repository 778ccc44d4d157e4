/* Transformer encoders, children named and drawn in PyTorch's order. */
#include "nn/module.h"

#include "base/status.h"
#include "base/take.h"
#include "graph/graph.h"

#include <stdio.h>
#include <string.h>

typedef struct encoder_layer_context {
    lk_transformer_activation activation;
    bool norm_first;
} encoder_layer_context;

/* The places of the children, as PyTorch's constructor makes them. */
enum { SELF_ATTN, LINEAR1, DROPOUT, LINEAR2, NORM1, NORM2, DROPOUT1, DROPOUT2 };

static lk_value *through(lk_module *layer, int child, lk_value *x)
{
    return lk_module_forward(layer->children[child].module, x);
}

static lk_value *self_attention(lk_module *layer, lk_value *x,
                                const lk_multihead_attention_forward_options *masks)
{
    lk_value *mixed = lk_multihead_attention_forward_with(layer->children[SELF_ATTN].module, x, x, x, masks);
    return through(layer, DROPOUT1, mixed);
}

static lk_value *feed_forward(lk_module *layer, lk_value *x)
{
    const encoder_layer_context *own = layer->context;
    x = through(layer, LINEAR1, x);
    x = own->activation == LK_TRANSFORMER_GELU ? lk_op_gelu(x, false) : lk_op_relu(x);
    return through(layer, DROPOUT2, through(layer, LINEAR2, through(layer, DROPOUT, x)));
}

static lk_value *layer_body(lk_module *layer, lk_value *x,
                            const lk_multihead_attention_forward_options *masks)
{
    const encoder_layer_context *own = layer->context;
    if (own->norm_first) {
        x = lk_op_add(x, self_attention(layer, through(layer, NORM1, x), masks));
        return lk_op_add(x, feed_forward(layer, through(layer, NORM2, x)));
    }
    x = through(layer, NORM1, lk_op_add(x, self_attention(layer, x, masks)));
    return through(layer, NORM2, lk_op_add(x, feed_forward(layer, x)));
}

static lk_value *layer_forward(lk_module *layer, lk_value *x)
{
    return layer_body(layer, x, LK_OPTIONS(lk_multihead_attention_forward_options));
}

lk_module *lk_transformer_encoder_layer_with(int64_t d_model, int64_t heads,
                                             const lk_transformer_encoder_layer_options *given)
{
    LKI_TAKE(lk_transformer_encoder_layer_options, options, given, NULL);
    encoder_layer_context own = {options.activation, options.norm_first};
    int64_t width = options.dim_feedforward ? options.dim_feedforward : 2048;
    double p = lki_number_or(options.dropout, 0.1);
    lk_norm_options norm = {LK_SIZE(lk_norm_options), .eps = options.layer_norm_eps};
    lk_dropout_options dropout = {LK_SIZE(lk_dropout_options), .p = lki_number_meant(p)};
    lk_multihead_attention_options attention = {LK_SIZE(lk_multihead_attention_options), .dropout = p,
                                                .batch_first = options.batch_first};
    if (options.activation != LK_TRANSFORMER_RELU && options.activation != LK_TRANSFORMER_GELU)
        return lki_fail_null(LK_ERR_INVALID, "TransformerEncoderLayer: there is no activation %d",
                             (int)options.activation);
    lk_module *layer = lki_module_create("TransformerEncoderLayer", layer_forward, &own, sizeof own);
    if (!layer) return NULL;
    /* One after the other: the order of the draws. */
    if (lk_module_add_child(layer, "self_attn", lk_multihead_attention_with(d_model, heads, &attention)) ==
            LK_OK &&
        lk_module_add_child(layer, "linear1", lk_linear(d_model, width)) == LK_OK &&
        lk_module_add_child(layer, "dropout", lk_dropout_with(&dropout)) == LK_OK &&
        lk_module_add_child(layer, "linear2", lk_linear(width, d_model)) == LK_OK &&
        lk_module_add_child(layer, "norm1", lk_layer_norm_last_with(d_model, &norm)) == LK_OK &&
        lk_module_add_child(layer, "norm2", lk_layer_norm_last_with(d_model, &norm)) == LK_OK &&
        lk_module_add_child(layer, "dropout1", lk_dropout_with(&dropout)) == LK_OK)
        lk_module_add_child(layer, "dropout2", lk_dropout_with(&dropout));
    return lki_module_checked(layer);
}

/* ---- the stack ---- */

static lk_value *masked_layer(lk_module *layer, lk_value *x,
                              const lk_multihead_attention_forward_options *masks)
{
    if (!x) return NULL;
    if (layer->forward != layer_forward) return lk_module_forward(layer, x);
    lki_module_enter(layer, lk_value_graph(x));
    return lki_module_leave(layer, lk_value_graph(x), layer_body(layer, x, masks));
}

static lk_value *encoder_body(lk_module *encoder, lk_value *x,
                              const lk_multihead_attention_forward_options *masks)
{
    if (!x) return NULL;
    lk_graph *graph = lk_value_graph(x);
    lk_module *layers = encoder->children[0].module;
    lki_module_enter(layers, graph);
    for (int i = 0; i < layers->child_count; i++) x = masked_layer(layers->children[i].module, x, masks);
    lki_module_leave(layers, graph, x);
    return encoder->child_count > 1 ? lk_module_forward(encoder->children[1].module, x) : x;
}

static lk_value *encoder_forward(lk_module *encoder, lk_value *x)
{
    return encoder_body(encoder, x, LK_OPTIONS(lk_multihead_attention_forward_options));
}

lk_value *lk_transformer_encoder_forward(lk_module *module, lk_value *x, lk_value *attn_mask,
                                         lk_value *key_padding_mask)
{
    if (!x) return NULL;
    lk_graph *graph = lk_value_graph(x);
    lk_multihead_attention_forward_options masks = {LK_SIZE(lk_multihead_attention_forward_options),
                                                    .attn_mask = attn_mask,
                                                    .key_padding_mask = key_padding_mask};
    if (!module) return lki_graph_fail(graph, LK_ERR_INVALID, "the module is NULL: %s", lk_error());
    if (module->forward == layer_forward) return masked_layer(module, x, &masks);
    if (module->forward != encoder_forward)
        return lki_graph_fail(graph, LK_ERR_INVALID, "expected a transformer encoder, found a %s",
                              module->type);
    lki_module_enter(module, graph);
    return lki_module_leave(module, graph, encoder_body(module, x, &masks));
}

/* The layer itself and count - 1 copies of it. */
static lk_module *stack(lk_module *layer_owned, int count)
{
    lk_module *layers = lk_module_list_with(NULL, 0);
    if (!layers) {
        lk_module_free(layer_owned);
        return NULL;
    }
    lk_status status = lk_module_add_child(layers, "0", layer_owned);
    for (int i = 1; i < count && status == LK_OK; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        status = lk_module_add_child(layers, name, lk_module_clone(layer_owned));
    }
    return lki_module_checked(layers);
}

lk_module *lk_transformer_encoder_with(lk_module *layer_owned, int count,
                                       const lk_transformer_encoder_options *given)
{
    lk_transformer_encoder_options options;
    lk_status status = lki_take(&options, sizeof options, given, "lk_transformer_encoder_options");
    lk_module *encoder = NULL;
    if (status != LK_OK || !layer_owned) goto failed;
    if (count < 1) {
        lki_fail(LK_ERR_INVALID, "TransformerEncoder: expected at least 1 layer, found %d", count);
        goto failed;
    }
    encoder = lki_module_create("TransformerEncoder", encoder_forward, NULL, 0);
    if (!encoder) goto failed;
    if (lk_module_add_child(encoder, "layers", stack(layer_owned, count)) != LK_OK)
        lk_module_free(options.norm);
    else if (options.norm)
        lk_module_add_child(encoder, "norm", options.norm);
    return lki_module_checked(encoder);
failed:
    lk_module_free(layer_owned);
    lk_module_free(options.norm);
    return NULL;
}
