/* Transformers: encoders, decoders, and both together. */
#include "nn/transformer.h"

#include "base/status.h"
#include "base/take.h"
#include "graph/graph.h"
#include "nn/nodes.h"

#include <stdio.h>

/* ---- a stack of layers ---- */

/* The layers one after the other, then the norm. Each gets the other inputs, too. */
static lk_value *run_stack(lk_module *stack, lk_value *const *inputs, int count)
{
    lk_value *given[6] = {NULL}, *x = inputs[0];
    lk_graph *graph = lk_value_graph(x);
    lk_module *layers = stack->children[0].module;
    int given_count = 1;
    for (int i = 1; i < count; i++) {
        given[i] = inputs[i];
        if (given[i]) given_count = i + 1;
    }
    lki_module_enter(layers, graph);
    for (int i = 0; i < layers->child_count; i++) {
        given[0] = x;
        x = lki_call_for_one(layers->children[i].module, given, given_count);
    }
    lki_module_leave(layers, graph, x);
    return stack->child_count > 1 ? lk_module_forward(stack->children[1].module, x) : x;
}

static lk_status stack_call(lk_module *stack, lk_value *const *inputs, int count, lk_value **outputs,
                            int output_count)
{
    (void)output_count;
    outputs[0] = run_stack(stack, inputs, count);
    return lk_value_graph(inputs[0])->status;
}

lk_value *lk_transformer_encoder_forward(lk_module *module, lk_value *x, lk_value *attn_mask,
                                         lk_value *key_padding_mask)
{
    if (!x) return NULL;
    lk_graph *graph = lk_value_graph(x);
    if (!module) return lki_graph_fail(graph, LK_ERR_INVALID, "the module is NULL: %s", lk_error());
    if (!lki_is_encoder_layer(module) && (module->call != stack_call || module->required_inputs != 1))
        return lki_graph_fail(graph, LK_ERR_INVALID, "expected a transformer encoder, found a %s",
                              module->type);
    return lki_call_for_one(module, (lk_value *const[]){x, attn_mask, key_padding_mask}, 3);
}

/* The layer itself and count - 1 copies of it. */
static lk_module *copies_of(lk_module *layer_owned, int count)
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

static lk_status check_stack(const char *type, const lk_module *layer, int count, bool is_causal)
{
    if (count < 1) return lki_fail(LK_ERR_INVALID, "%s: expected at least 1 layer, found %d", type, count);
    if (is_causal && !lki_is_encoder_layer(layer) && !lki_is_decoder_layer(layer))
        return lki_fail(LK_ERR_INVALID, "%s: is_causal: a %s does not know it", type, layer->type);
    return LK_OK;
}

static lk_module *create_stack(const char *type, const char *names, int required, lk_module *layer_owned,
                               int count, const lk_transformer_encoder_options *given)
{
    lk_transformer_encoder_options options;
    lk_status status = lki_take(&options, sizeof options, given, "lk_transformer_encoder_options");
    lk_module *stack = NULL;
    if (status == LK_OK && layer_owned && !check_stack(type, layer_owned, count, options.is_causal))
        stack = lki_module_of_named(type, stack_call, names, required, NULL, 0);
    if (!stack) {
        lk_module_free(layer_owned);
        lk_module_free(options.norm);
        return NULL;
    }
    if (options.is_causal) lki_attention_make_causal(layer_owned->children[0].module);
    if (lk_module_add_child(stack, "layers", copies_of(layer_owned, count)) != LK_OK)
        lk_module_free(options.norm);
    else if (options.norm)
        lk_module_add_child(stack, "norm", options.norm);
    return lki_module_checked(stack);
}

lk_module *lk_transformer_encoder_with(lk_module *layer_owned, int count,
                                       const lk_transformer_encoder_options *options)
{
    return create_stack("TransformerEncoder", "src mask src_key_padding_mask", 1, layer_owned, count,
                        options);
}

lk_module *lk_transformer_decoder_with(lk_module *layer_owned, int count,
                                       const lk_transformer_decoder_options *options)
{
    return create_stack("TransformerDecoder",
                        "tgt memory tgt_mask memory_mask tgt_key_padding_mask memory_key_padding_mask", 2,
                        layer_owned, count, options);
}

/* ---- encoder and decoder ---- */

typedef struct transformer_context {
    int64_t d_model;
    bool batch_first;
} transformer_context;

static bool fits(const transformer_context *own, lk_value *src, lk_value *tgt)
{
    char mine[128], theirs[128];
    lk_shape a = lk_value_shape(src), b = lk_value_shape(tgt);
    int batch = own->batch_first ? 0 : 1;
    if (a.rank == 3 && b.rank == 3 && a.dim[batch] == b.dim[batch] && a.dim[2] == own->d_model &&
        b.dim[2] == own->d_model)
        return true;
    lki_graph_fail(lk_value_graph(src), LK_ERR_SHAPE,
                   "expected src and tgt of 3 dimensions, the last of %lld, with batches of one size on axis "
                   "%d, found %s and %s",
                   (long long)own->d_model, batch, lk_shape_format(mine, sizeof mine, a),
                   lk_shape_format(theirs, sizeof theirs, b));
    return false;
}

/* src, tgt, src_mask, tgt_mask, memory_mask, src_key_padding_mask, tgt_key_padding_mask,
 * memory_key_padding_mask */
static lk_status transformer_call(lk_module *module, lk_value *const *inputs, int count, lk_value **outputs,
                                  int output_count)
{
    lk_value *in[8] = {NULL};
    (void)output_count;
    for (int i = 0; i < count; i++) in[i] = inputs[i];
    if (!fits(module->context, in[0], in[1])) return LK_ERR_SHAPE;
    lk_value *const to_encode[] = {in[0], in[2], in[5]};
    lk_value *memory = lki_call_for_one(module->children[0].module, to_encode, in[5] ? 3 : in[2] ? 2 : 1);
    lk_value *const to_decode[] = {in[1], memory, in[3], in[4], in[6], in[7]};
    int last = 6;
    while (last > 2 && !to_decode[last - 1]) last--;
    outputs[0] = lki_call_for_one(module->children[1].module, to_decode, last);
    return lk_value_graph(inputs[0])->status;
}

static lk_module *default_encoder(const lk_transformer_options *options, int64_t d_model, int64_t heads,
                                  const lk_transformer_encoder_layer_options *layer)
{
    int count = options->num_encoder_layers ? (int)options->num_encoder_layers : 6;
    lk_norm_options norm = {LK_SIZE(lk_norm_options), .eps = options->layer_norm_eps};
    lk_module *first = lk_transformer_encoder_layer_with(d_model, heads, layer);
    if (!first) return NULL;
    lk_module *last = lk_layer_norm_last_with(d_model, &norm);
    return lk_transformer_encoder(first, count, .norm = last);
}

static lk_module *default_decoder(const lk_transformer_options *options, int64_t d_model, int64_t heads,
                                  const lk_transformer_encoder_layer_options *layer)
{
    int count = options->num_decoder_layers ? (int)options->num_decoder_layers : 6;
    lk_norm_options norm = {LK_SIZE(lk_norm_options), .eps = options->layer_norm_eps};
    lk_transformer_decoder_layer_options own = *layer;
    own.is_causal = options->is_causal;
    lk_module *first = lk_transformer_decoder_layer_with(d_model, heads, &own);
    if (!first) return NULL;
    lk_module *last = lk_layer_norm_last_with(d_model, &norm);
    return lk_transformer_decoder(first, count, .norm = last);
}

/* As PyTorch's _reset_parameters: every matrix is drawn again. */
static lk_status draw_again(const lk_module *module)
{
    lk_param_list list;
    LKI_TRY(lki_module_params(module, &list));
    lk_status status = LK_OK;
    for (int i = 0; i < list.count && status == LK_OK; i++) {
        lk_param *param = list.items[i].param;
        if (!param->is_buffer && param->value->shape.rank > 1) status = lk_init_xavier_uniform(param, 1);
    }
    lk_param_list_free(&list);
    return status;
}

lk_module *lk_transformer_with(const lk_transformer_options *given)
{
    lk_transformer_options options;
    lk_status status = lki_take(&options, sizeof options, given, "lk_transformer_options");
    int64_t d_model = options.d_model ? options.d_model : 512, heads = options.nhead ? options.nhead : 8;
    lk_transformer_encoder_layer_options layer = {LK_SIZE(lk_transformer_encoder_layer_options),
                                                  .dim_feedforward = options.dim_feedforward,
                                                  .dropout = options.dropout,
                                                  .activation = options.activation,
                                                  .layer_norm_eps = options.layer_norm_eps,
                                                  .batch_first = options.batch_first,
                                                  .norm_first = options.norm_first};
    transformer_context own = {d_model, options.batch_first};
    lk_module *module = NULL, *encoder = options.custom_encoder, *decoder = options.custom_decoder;
    if (status == LK_OK && options.is_causal && decoder)
        lki_fail(LK_ERR_INVALID, "Transformer: is_causal: say it to the custom decoder");
    else if (status == LK_OK)
        module = lki_module_of_named("Transformer", transformer_call,
                                     "src tgt src_mask tgt_mask memory_mask src_key_padding_mask "
                                     "tgt_key_padding_mask memory_key_padding_mask",
                                     2, &own, sizeof own);
    if (!module) {
        lk_module_free(encoder);
        lk_module_free(decoder);
        return NULL;
    }
    if (!encoder) encoder = default_encoder(&options, d_model, heads, &layer);
    if (lk_module_add_child(module, "encoder", encoder) != LK_OK) {
        lk_module_free(decoder);
        return lki_module_checked(module);
    }
    if (!decoder) decoder = default_decoder(&options, d_model, heads, &layer);
    if (lk_module_add_child(module, "decoder", decoder) == LK_OK) lki_module_note(module, draw_again(module));
    return lki_module_checked(module);
}
