/* GPT-2 and the char-LSTM. GPT-2 has Hugging Face's names, and its linear layers are stored as there: (in,
 * out). */
#include "models/models.h"
#include "nn/nodes.h"

#include "base/arguments.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "graph/graph.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* x (..., in) W (in, out) + b. */
static lk_value *conv1d_forward(lk_module *module, lk_value *x)
{
    lk_value *weight = lki_module_value(module, x, "weight");
    lk_shape shape = lk_value_shape(x);
    if (!weight || shape.rank < 2) return lk_op_matmul(x, weight);
    lk_value *rows = lk_op_reshape(x, LK_SHAPE(-1, shape.dim[shape.rank - 1]));
    rows = lk_op_add(lk_op_matmul(rows, weight), lki_module_value(module, x, "bias"));
    shape.dim[shape.rank - 1] = lk_value_shape(weight).dim[1];
    return lk_op_reshape(rows, shape);
}

static lk_module *make_conv1d(int64_t in, int64_t out, double std)
{
    lk_module *module = lki_module_create("Conv1D", conv1d_forward, NULL, 0);
    lk_param *weight = lki_module_new_param(module, "weight", LK_SHAPE(in, out));
    lki_module_new_param(module, "bias", LK_SHAPE(out));
    if (weight) lki_module_note(module, lk_init_normal(weight, 0, std));
    return lki_module_checked(module);
}

typedef struct attention_context {
    int64_t heads;
    double dropout;
} attention_context;

static lk_value *attention_forward(lk_module *module, lk_value *x)
{
    const attention_context *own = module->context;
    lk_value *mixed =
        lki_attend(lki_model_run(module, "c_attn", x), NULL, NULL,
                   &(lki_attention){.heads = own->heads, .is_causal = true, .dropout = own->dropout});
    return lk_op_dropout(lki_model_run(module, "c_proj", mixed), own->dropout);
}

/* The context is the share that is dropped. */
static lk_value *mlp_forward(lk_module *module, lk_value *x)
{
    x = lk_op_gelu(lki_model_run(module, "c_fc", x), true);
    return lk_op_dropout(lki_model_run(module, "c_proj", x), *(const double *)module->context);
}

static lk_value *block_forward(lk_module *module, lk_value *x)
{
    x = lk_op_add(x, lki_model_run(module, "attn", lki_model_run(module, "ln_1", x)));
    return lk_op_add(x, lki_model_run(module, "mlp", lki_model_run(module, "ln_2", x)));
}

static lk_module *make_block(const lk_gpt2_options *options)
{
    int64_t width = options->n_embd;
    double std = 0.02, last_std = 0.02 / sqrt(2.0 * (double)options->n_layer), p = options->dropout;
    attention_context own = {options->n_head, p};
    lk_module *block = lki_module_create("GPT2Block", block_forward, NULL, 0),
              *attn = lki_module_create("GPT2Attention", attention_forward, &own, sizeof own),
              *mlp = lki_module_create("GPT2MLP", mlp_forward, &p, sizeof p);
    lki_model_add(attn, "c_attn", make_conv1d(width, 3 * width, std));
    lki_model_add(attn, "c_proj", make_conv1d(width, width, last_std));
    lki_model_add(mlp, "c_fc", make_conv1d(width, 4 * width, std));
    lki_model_add(mlp, "c_proj", make_conv1d(4 * width, width, last_std));
    lki_model_add(block, "ln_1", lk_layer_norm(width, .eps = options->layer_norm_eps));
    lki_model_add(block, "attn", lki_module_checked(attn));
    lki_model_add(block, "ln_2", lk_layer_norm(width, .eps = options->layer_norm_eps));
    lki_model_add(block, "mlp", lki_module_checked(mlp));
    return lki_module_checked(block);
}

static lk_value *transformer_forward(lk_module *module, lk_value *ids)
{
    double p = *(const double *)module->context;
    lk_shape shape = lk_value_shape(ids);
    if (shape.rank != 2) {
        char text[128];
        return lki_graph_fail(lk_value_graph(ids), LK_ERR_SHAPE, "expected token numbers (N, T), found %s",
                              lk_shape_format(text, sizeof text, shape));
    }
    lk_value *places = lki_model_places(module, "wpe", ids, shape.dim[1]);
    lk_value *x = lk_op_add(lki_model_run(module, "wte", ids), places);
    return lki_model_run(module, "ln_f", lki_model_run(module, "h", lk_op_dropout(x, p)));
}

static lk_value *gpt2_forward(lk_module *module, lk_value *ids)
{
    return lki_model_run(module, "lm_head", lki_model_run(module, "transformer", ids));
}

/* logits = x W^T, W (vocabulary, E) being the embedding's. */
static lk_value *head_forward(lk_module *module, lk_value *x)
{
    return lk_op_linear(x, lki_module_value(module, x, "weight"), NULL);
}

static lk_module *make_tied_head(lk_module *transformer)
{
    lk_module *module = lki_module_create("Linear", head_forward, NULL, 0);
    lk_module_add_param(module, lk_param_share(lki_module_param(transformer, "wte.weight")));
    return lki_module_checked(module);
}

static lk_status take_options(const char *size, lk_gpt2_options *options)
{
    static const struct {
        const char *name;
        int64_t width, layers, heads;
    } known[] = {{"gpt2", 768, 12, 12},
                 {"gpt2-medium", 1024, 24, 16},
                 {"gpt2-large", 1280, 36, 20},
                 {"gpt2-xl", 1600, 48, 25}};
    int i = 0;
    while (i < 4 && strcmp(known[i].name, size ? size : "gpt2") != 0) i++;
    if (i == 4)
        return lki_fail(LK_ERR_INVALID,
                        "GPT-2: expected gpt2, gpt2-medium, gpt2-large or gpt2-xl, found \"%s\"", size);
    LKI_TRY(lki_size_or("GPT-2", "vocab_size", options->vocab_size, 50257, &options->vocab_size));
    LKI_TRY(lki_size_or("GPT-2", "n_positions", options->n_positions, 1024, &options->n_positions));
    LKI_TRY(lki_size_or("GPT-2", "n_embd", options->n_embd, known[i].width, &options->n_embd));
    LKI_TRY(lki_size_or("GPT-2", "n_layer", options->n_layer, known[i].layers, &options->n_layer));
    LKI_TRY(lki_size_or("GPT-2", "n_head", options->n_head, known[i].heads, &options->n_head));
    if (options->n_embd % options->n_head)
        return lki_fail(LK_ERR_INVALID, "GPT-2: n_embd %lld is not a multiple of n_head %lld",
                        (long long)options->n_embd, (long long)options->n_head);
    options->dropout = lki_number_or(options->dropout, 0.1);
    if (!(options->dropout >= 0 && options->dropout <= 1))
        return lki_fail(LK_ERR_INVALID, "GPT-2: dropout: expected a probability, found %g", options->dropout);
    return LK_OK;
}

lk_module *lk_gpt2_with(const char *size, const lk_gpt2_options *given)
{
    LKI_TAKE(lk_gpt2_options, options, given, NULL);
    if (take_options(size, &options) != LK_OK) return NULL;
    lk_module *module = lki_module_create("GPT2", gpt2_forward, NULL, 0),
              *transformer = lki_module_create("GPT2Model", transformer_forward, &options.dropout,
                                               sizeof options.dropout),
              *blocks = lki_model_chain();
    lki_model_add(transformer, "wte", lki_make_embedding(options.vocab_size, options.n_embd));
    lki_model_add(transformer, "wpe", lki_make_embedding(options.n_positions, options.n_embd));
    for (int64_t i = 0; i < options.n_layer; i++) lki_model_add_at(blocks, (int)i, make_block(&options));
    lki_model_add(transformer, "h", lki_module_checked(blocks));
    lki_model_add(transformer, "ln_f", lk_layer_norm(options.n_embd, .eps = options.layer_norm_eps));
    transformer = lki_module_checked(transformer);
    lk_module *head = transformer ? make_tied_head(transformer) : NULL;
    lki_model_add(module, "transformer", transformer);
    lki_model_add(module, "lm_head", head);
    return lki_module_checked(module);
}

/* ---- char-LSTM ---- */

lk_module *lk_char_lstm_with(int64_t vocab_size, const lk_char_lstm_options *given)
{
    LKI_TAKE(lk_char_lstm_options, options, given, NULL);
    int64_t dim, hidden, layers;
    if (lki_size_or("CharLSTM", "embedding_dim", options.embedding_dim, 16, &dim) ||
        lki_size_or("CharLSTM", "hidden_size", options.hidden_size, 128, &hidden) ||
        lki_size_or("CharLSTM", "num_layers", options.num_layers, 2, &layers))
        return NULL;
    lk_module *module = lki_module_create("CharLSTM", lki_module_chain, NULL, 0);
    lki_model_add(module, "embedding", lk_embedding(vocab_size, dim));
    lki_model_add(
        module, "lstm",
        lk_lstm(dim, hidden, .num_layers = layers, .dropout = options.dropout, .batch_first = true));
    lki_model_add(module, "head", lk_linear(hidden, vocab_size));
    return lki_module_checked(module);
}
