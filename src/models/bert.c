/* BERT, with Hugging Face's names. */
#include "models/models.h"
#include "nn/nodes.h"

#include "base/arguments.h"
#include "base/status.h"
#include "base/take.h"
#include "graph/graph.h"

#include <stdio.h>

static lk_value *embeddings_forward(lk_module *module, lk_value *ids, lk_value *types, double p)
{
    lk_shape shape = lk_value_shape(ids);
    if (shape.rank != 2) {
        char text[128];
        return lki_graph_fail(lk_value_graph(ids), LK_ERR_SHAPE, "expected token numbers (N, T), found %s",
                              lk_shape_format(text, sizeof text, shape));
    }
    if (!types) types = lk_op_zeros_like(ids);
    lk_value *x = lk_op_add(lki_model_run(module, "word_embeddings", ids),
                            lki_model_run(module, "token_type_embeddings", types));
    x = lk_op_add(x, lki_model_places(module, "position_embeddings", ids, shape.dim[1]));
    return lk_op_dropout(lki_model_run(module, "LayerNorm", x), p);
}

/* LayerNorm(x + dropout(dense(y))). */
static lk_value *add_and_norm(lk_module *module, lk_value *y, lk_value *x, double p)
{
    if (!x || !y) return NULL;
    lk_graph *graph = lk_value_graph(x);
    lki_module_enter(module, graph);
    y = lk_op_dropout(lki_model_run(module, "dense", y), p);
    return lki_module_leave(module, graph, lki_model_run(module, "LayerNorm", lk_op_add(y, x)));
}

typedef struct bert_context {
    int64_t heads;
    double dropout;
} bert_context;

/* One layer; `mask` (N, 1, 1, T) is added to the scores, NULL: none. */
static lk_value *layer_forward(const bert_context *own, lk_module *layer, lk_value *x, lk_value *mask)
{
    if (!x) return NULL;
    lk_graph *graph = lk_value_graph(x);
    lk_module *attention = lki_model_child(layer, "attention"), *self = lki_model_child(attention, "self");
    lki_module_enter(layer, graph);
    lk_value *y = lki_attend(lki_model_run(self, "query", x), lki_model_run(self, "key", x),
                             lki_model_run(self, "value", x),
                             &(lki_attention){.heads = own->heads, .mask = mask, .dropout = own->dropout});
    x = add_and_norm(lki_model_child(attention, "output"), y, x, own->dropout);
    y = lk_op_gelu(lki_model_run(lki_model_child(layer, "intermediate"), "dense", x), false);
    x = add_and_norm(lki_model_child(layer, "output"), y, x, own->dropout);
    return lki_module_leave(layer, graph, x);
}

/* 1 becomes 0, and 0 the lowest number there is: (N, T) -> (N, 1, 1, T). */
static lk_value *to_scores_mask(lk_value *mask)
{
    if (!mask) return NULL;
    lk_shape shape = lk_value_shape(mask);
    mask = lk_op_mul_scalar(lk_op_add_scalar(lk_op_cast(mask, LK_F32), -1), 3.4028234663852886e38);
    return lk_op_reshape(mask, LK_SHAPE(shape.dim[0], 1, 1, shape.dim[1]));
}

static lk_status bert_call(lk_module *module, lk_value *const *inputs, int input_count, lk_value **outputs,
                           int output_count)
{
    const bert_context *own = module->context;
    lk_graph *graph = lk_value_graph(inputs[0]);
    if (input_count > 3 || output_count > 2) {
        lki_graph_fail(graph, LK_ERR_INVALID, "BERT takes up to 3 values and gives up to 2, found %d and %d",
                       input_count, output_count);
        return LK_ERR_INVALID;
    }
    lk_value *mask = to_scores_mask(input_count > 1 ? inputs[1] : NULL);
    lk_module *layers = lki_model_child(lki_model_child(module, "encoder"), "layer");
    lk_value *x = embeddings_forward(lki_model_child(module, "embeddings"), inputs[0],
                                     input_count > 2 ? inputs[2] : NULL, own->dropout);
    for (int i = 0; x && i < layers->child_count; i++)
        x = layer_forward(own, layers->children[i].module, x, mask);
    outputs[0] = x;
    if (output_count < 2 || !x) return LK_OK;
    lk_shape shape = lk_value_shape(x);
    lk_value *first = lk_op_reshape(lk_op_slice(x, 1, 0, 1, 1), LK_SHAPE(shape.dim[0], shape.dim[2]));
    outputs[1] = lk_op_tanh(lki_model_run(lki_model_child(module, "pooler"), "dense", first));
    return LK_OK;
}

/* ---- making ---- */

static lk_status init_linear(lk_module *linear)
{
    LKI_TRY(lk_init_normal(lki_module_own_param(linear, "weight"), 0, 0.02));
    return lk_init_constant(lki_module_own_param(linear, "bias"), 0);
}

static lk_module *make_part(const char *type)
{
    return lki_module_create(type, NULL, NULL, 0);
}

static lk_module *make_output(int64_t in, int64_t out, double eps)
{
    lk_module *module = make_part("BertOutput");
    lki_model_add(module, "dense", lk_linear(in, out));
    lki_model_add(module, "LayerNorm", lk_layer_norm(out, .eps = eps));
    return lki_module_checked(module);
}

static lk_module *make_dense(const char *type, int64_t in, int64_t out)
{
    lk_module *module = make_part(type);
    lki_model_add(module, "dense", lk_linear(in, out));
    return lki_module_checked(module);
}

static lk_module *make_layer(const lk_bert_options *options)
{
    int64_t width = options->hidden_size;
    lk_module *layer = make_part("BertLayer"), *attention = make_part("BertAttention"),
              *self = make_part("BertSelfAttention");
    lki_model_add(self, "query", lk_linear(width, width));
    lki_model_add(self, "key", lk_linear(width, width));
    lki_model_add(self, "value", lk_linear(width, width));
    lki_model_add(attention, "self", lki_module_checked(self));
    lki_model_add(attention, "output", make_output(width, width, options->layer_norm_eps));
    lki_model_add(layer, "attention", lki_module_checked(attention));
    lki_model_add(layer, "intermediate", make_dense("BertIntermediate", width, options->intermediate_size));
    lki_model_add(layer, "output", make_output(options->intermediate_size, width, options->layer_norm_eps));
    return lki_module_checked(layer);
}

static lk_module *make_embeddings(const lk_bert_options *options)
{
    lk_module *module = make_part("BertEmbeddings");
    int64_t width = options->hidden_size;
    lki_model_add(module, "word_embeddings", lki_make_embedding(options->vocab_size, width));
    lki_model_add(module, "position_embeddings", lki_make_embedding(options->max_position_embeddings, width));
    lki_model_add(module, "token_type_embeddings", lki_make_embedding(options->type_vocab_size, width));
    lki_model_add(module, "LayerNorm", lk_layer_norm(width, .eps = options->layer_norm_eps));
    return lki_module_checked(module);
}

static lk_module *make_bert(const lk_bert_options *options)
{
    bert_context own = {options->num_attention_heads, options->dropout};
    lk_module *module = lki_module_create("BertModel", NULL, &own, sizeof own),
              *encoder = make_part("BertEncoder"), *layers = make_part("ModuleList");
    if (module) module->call = bert_call;
    lki_model_add(module, "embeddings", make_embeddings(options));
    for (int64_t i = 0; i < options->num_hidden_layers; i++)
        lki_model_add_at(layers, (int)i, make_layer(options));
    lki_model_add(encoder, "layer", lki_module_checked(layers));
    lki_model_add(module, "encoder", lki_module_checked(encoder));
    lki_model_add(module, "pooler", make_dense("BertPooler", options->hidden_size, options->hidden_size));
    lki_model_each(module, "Linear", init_linear);
    return lki_module_checked(module);
}

/* The classifier of sequences: classifier(dropout(pooled)). The context is the share that is dropped. */
static lk_status classifier_call(lk_module *module, lk_value *const *inputs, int input_count,
                                 lk_value **outputs, int output_count)
{
    lk_value *both[2];
    (void)output_count;
    LKI_TRY(lk_module_call(lki_model_child(module, "bert"), inputs, input_count, both, 2));
    lk_value *pooled = lk_op_dropout(both[1], *(const double *)module->context);
    outputs[0] = lki_model_run(module, "classifier", pooled);
    return LK_OK;
}

static lk_status take_options(lk_bert_options *options)
{
    LKI_TRY(lki_size_or("BERT", "vocab_size", options->vocab_size, 30522, &options->vocab_size));
    LKI_TRY(lki_size_or("BERT", "max_position_embeddings", options->max_position_embeddings, 512,
                        &options->max_position_embeddings));
    LKI_TRY(lki_size_or("BERT", "type_vocab_size", options->type_vocab_size, 2, &options->type_vocab_size));
    LKI_TRY(lki_size_or("BERT", "hidden_size", options->hidden_size, 768, &options->hidden_size));
    LKI_TRY(lki_size_or("BERT", "num_hidden_layers", options->num_hidden_layers, 12,
                        &options->num_hidden_layers));
    LKI_TRY(lki_size_or("BERT", "num_attention_heads", options->num_attention_heads, 12,
                        &options->num_attention_heads));
    LKI_TRY(lki_size_or("BERT", "intermediate_size", options->intermediate_size, 4 * options->hidden_size,
                        &options->intermediate_size));
    LKI_TRY(lki_size_or("BERT", "num_labels", options->num_labels, 0, &options->num_labels));
    if (options->hidden_size % options->num_attention_heads)
        return lki_fail(LK_ERR_INVALID,
                        "BERT: hidden_size %lld is not a multiple of num_attention_heads %lld",
                        (long long)options->hidden_size, (long long)options->num_attention_heads);
    options->dropout = lki_number_or(options->dropout, 0.1);
    if (!(options->dropout >= 0 && options->dropout <= 1))
        return lki_fail(LK_ERR_INVALID, "BERT: dropout: expected a probability, found %g", options->dropout);
    if (!options->layer_norm_eps) options->layer_norm_eps = 1e-12;
    return LK_OK;
}

lk_module *lk_bert_with(const lk_bert_options *given)
{
    LKI_TAKE(lk_bert_options, options, given, NULL);
    if (take_options(&options) != LK_OK) return NULL;
    lk_module *bert = make_bert(&options);
    if (!options.num_labels || !bert) return bert;
    lk_module *module = lki_module_create("BertForSequenceClassification", NULL, &options.dropout,
                                          sizeof options.dropout),
              *head = lk_linear(options.hidden_size, options.num_labels);
    if (module) module->call = classifier_call;
    lki_model_each(head, "Linear", init_linear);
    lki_model_add(module, "bert", bert);
    lki_model_add(module, "classifier", lki_module_checked(head));
    return lki_module_checked(module);
}
