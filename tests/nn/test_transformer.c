/* Transformers, their masks and positions against PyTorch 1.13 (tests/oracle/nn_transformer.py), and what
 * they refuse. */
#include "layer_parity.h"

#include <lockstep/nodes.h>

/* ---- masks ---- */

static lk_value *constant(lk_graph *graph, lk_tensor *tensor)
{
    lkt_not_null(tensor);
    lk_value *value = lk_graph_constant(graph, tensor);
    lk_tensor_free(tensor);
    return value;
}

static lk_value *causal(lk_graph *graph, int64_t size)
{
    lk_tensor *mask = lk_tensor_create(LK_F32, LK_SHAPE(size, size));
    for (int64_t i = 0; i < size * size; i++)
        if (i % size > i / size) lk_tensor_set(mask, i, -INFINITY);
    return constant(graph, mask);
}

/* Two sequences, of which the places after a and b are ignored. */
static lk_value *padding(lk_graph *graph, int64_t a, int64_t b, int64_t size)
{
    lk_tensor *mask = lk_tensor_create(LK_BOOL, LK_SHAPE(2, size));
    for (int64_t i = 0; i < 2 * size; i++) lk_tensor_set(mask, i, i % size >= (i < size ? a : b));
    return constant(graph, mask);
}

/* 0, 0.1, ... in 3 rows of 4. */
static lk_value *slopes(lk_graph *graph)
{
    lk_tensor *mask = lk_tensor_create(LK_F32, LK_SHAPE(3, 4));
    for (int i = 0; i < 12; i++) lk_tensor_set(mask, i, (double)((float)i / 10.0F));
    return constant(graph, mask);
}

/* ---- modules of one and of two sequences ---- */

static lk_value *call(lk_module *module, lk_value *const *inputs, int count)
{
    lk_value *y = NULL;
    lk_module_call(lk_module_child(module, "part"), inputs, count, &y, 1);
    return y;
}

#define PART(forward_, module_)                                                                              \
    lk_custom_module(.forward = (forward_), .children = lk_children({"part", module_}))

static lk_value *plain(lk_module *module, lk_value *x)
{
    return call(module, LK_VALUES(x));
}

static lk_value *padded_attention(lk_module *module, lk_value *x)
{
    return call(module, LK_VALUES(x, x, x, padding(lk_value_graph(x), 3, 5, 5)));
}

static lk_value *masked_encoder(lk_module *module, lk_value *x)
{
    lk_graph *graph = lk_value_graph(x);
    return call(module, LK_VALUES(x, causal(graph, 5), padding(graph, 3, 5, 5)));
}

static lk_value *first_three(lk_module *module, lk_value *x)
{
    return call(module, LK_VALUES(lk_op_slice(x, 0, 0, 3, 1), lk_op_slice(x, 0, 3, 7, 1)));
}

static lk_value *first_four(lk_module *module, lk_value *x)
{
    return call(module, LK_VALUES(lk_op_slice(x, 0, 0, 4, 1), lk_op_slice(x, 0, 4, 7, 1)));
}

static lk_value *first_four_of_batches(lk_module *module, lk_value *x)
{
    return call(module, LK_VALUES(lk_op_slice(x, 1, 0, 4, 1), lk_op_slice(x, 1, 4, 7, 1)));
}

static lk_value *masked_decoder(lk_module *module, lk_value *x)
{
    lk_graph *graph = lk_value_graph(x);
    return call(module, LK_VALUES(lk_op_slice(x, 1, 0, 3, 1), lk_op_slice(x, 1, 3, 7, 1), causal(graph, 3),
                                  slopes(graph), padding(graph, 3, 2, 3), padding(graph, 2, 4, 4)));
}

static lk_value *masked_transformer(lk_module *module, lk_value *x)
{
    lk_graph *graph = lk_value_graph(x);
    return call(module, LK_VALUES(lk_op_slice(x, 0, 0, 4, 1), lk_op_slice(x, 0, 4, 7, 1), causal(graph, 4),
                                  causal(graph, 3), slopes(graph), padding(graph, 3, 4, 4),
                                  padding(graph, 3, 2, 3), padding(graph, 2, 4, 4)));
}

/* clang-format off */
#define ENCODER_LAYER(...) lk_transformer_encoder_layer(8, 2, .dim_feedforward = 12, .dropout = LK_ZERO, __VA_ARGS__)
#define DECODER_LAYER(...) lk_transformer_decoder_layer(8, 2, .dim_feedforward = 12, __VA_ARGS__)
#define TRANSFORMER(...) lk_transformer(.d_model = 8, .nhead = 2, .num_encoder_layers = 2, .num_decoder_layers = 2, \
                                        .dim_feedforward = 12, .dropout = LK_ZERO, __VA_ARGS__)
#define LAYERS(X) \
    X(attention_causal, PART(plain, lk_multihead_attention(8, 2, .is_causal = true))) \
    X(attention_padding, PART(padded_attention, lk_multihead_attention(8, 2, .batch_first = true))) \
    X(encoder_layer_causal, PART(plain, ENCODER_LAYER(.is_causal = true))) \
    X(encoder_causal, PART(plain, lk_transformer_encoder(ENCODER_LAYER(.norm_first = false), 2, .is_causal = true))) \
    X(encoder_masks, PART(masked_encoder, lk_transformer_encoder(ENCODER_LAYER(.norm_first = false), 2))) \
    X(decoder_layer, PART(first_three, DECODER_LAYER(.dropout = LK_ZERO))) \
    X(decoder_layer_dropout, PART(first_three, DECODER_LAYER(.dropout = 0.2))) \
    X(decoder_layer_options, PART(masked_decoder, DECODER_LAYER(.dropout = LK_ZERO, .norm_first = true, .batch_first = true, \
                                                                .activation = LK_TRANSFORMER_GELU, .layer_norm_eps = 1e-3))) \
    X(decoder, PART(first_three, lk_transformer_decoder(DECODER_LAYER(.dropout = LK_ZERO), 2, .norm = lk_layer_norm(8)))) \
    X(decoder_causal, PART(first_three, lk_transformer_decoder(DECODER_LAYER(.dropout = LK_ZERO), 2, .is_causal = true))) \
    X(transformer, PART(first_four, TRANSFORMER(.is_causal = false))) \
    X(transformer_causal, PART(first_four_of_batches, TRANSFORMER(.is_causal = true, .batch_first = true, .norm_first = true))) \
    X(transformer_masks, PART(masked_transformer, TRANSFORMER(.is_causal = false))) \
    X(transformer_custom, PART(first_four, TRANSFORMER(.custom_encoder = lk_transformer_encoder(ENCODER_LAYER(.norm_first = false), 2)))) \
    X(rms_norm, lk_rms_norm(6)) \
    X(rms_norm_options, lk_rms_norm(LK_SHAPE(4, 6), .eps = 1e-2, .no_affine = true)) \
    X(learned_positions, lk_learned_positions(7, 6)) \
    X(learned_positions_options, lk_learned_positions(5, 6, .std = 0.02, .dim = LK_ZERO)) \
    X(sinusoidal_positions, lk_sinusoidal_positions()) \
    X(rotary_positions, lk_rotary_positions()) \
    X(rotary_positions_heads, lk_rotary_positions(.num_heads = 2, .features = 4, .base = 100)) \
    X(rotary_positions_interleaved, lk_rotary_positions(.num_heads = 3, .interleaved = true))
/* clang-format on */

#define X(symbol, ...)                                                                                       \
    static lk_module *make_##symbol(void)                                                                    \
    {                                                                                                        \
        return __VA_ARGS__;                                                                                  \
    }
LAYERS(X)
#undef X

static const parity_case cases[] = {
#define X(symbol, ...) {.name = #symbol, .make = make_##symbol},
    LAYERS(X)
#undef X
};
enum { CASE_COUNT = sizeof cases / sizeof *cases };

static void layer_equals_pytorch(void **state)
{
    const parity_case *test = *state;
    check_layer(test, strstr(test->name, "dropout") != NULL);
}

/* ---- what is refused ---- */

static void bad_arguments(void **state)
{
    (void)state;
    assert_null(lk_transformer_decoder(lk_transformer_decoder_layer(8, 2), 0));
    lkt_contains(lk_error(), "TransformerDecoder: expected at least 1 layer, found 0");
    assert_null(lk_transformer_decoder(lk_transformer_decoder_layer(8, 3), 1, .norm = lk_layer_norm(8)));
    lkt_contains(lk_error(), "3 heads do not divide embed_dim 8");
    assert_null(lk_transformer_decoder_layer(8, 2, .activation = (lk_transformer_activation)7));
    lkt_contains(lk_error(), "TransformerDecoderLayer: there is no activation 7");
    assert_null(lk_transformer_encoder(lk_linear(8, 8), 2, .is_causal = true));
    lkt_contains(lk_error(), "TransformerEncoder: is_causal: a Linear does not know it");
    assert_null(lk_transformer(.d_model = 8, .nhead = 2, .is_causal = true, .custom_decoder = lk_relu(),
                               .custom_encoder = lk_relu()));
    lkt_contains(lk_error(), "say it to the custom decoder");
    assert_null(lk_transformer(.d_model = 8, .nhead = 2, .num_decoder_layers = -1));
    lkt_contains(lk_error(), "TransformerDecoder: expected at least 1 layer, found -1");
    assert_null(lk_rms_norm(0));
    lkt_contains(lk_error(), "RMSNorm: expected a shape");
    assert_null(lk_rms_norm(4, .eps = -1));
    lkt_contains(lk_error(), "RMSNorm: eps");
    assert_null(lk_learned_positions(0, 4));
    lkt_contains(lk_error(), "LearnedPositions: expected at least 1 place");
    assert_null(lk_learned_positions(4, 4, .std = -1));
    lkt_contains(lk_error(), "LearnedPositions: std");
    assert_null(lk_learned_positions(4, 4, .base = 10));
    lkt_contains(lk_error(), "base belongs to SinusoidalPositions");
    assert_null(lk_sinusoidal_positions(.std = 1));
    lkt_contains(lk_error(), "std belongs to LearnedPositions");
    assert_null(lk_sinusoidal_positions(.base = 0.5));
    lkt_contains(lk_error(), "SinusoidalPositions: base: expected more than 1, found 0.5");
    assert_null(lk_rotary_positions(.features = 3));
    lkt_contains(lk_error(), "RotaryPositions: features: expected an even number, found 3");
    assert_null(lk_rotary_positions(.num_heads = -1));
    lkt_contains(lk_error(), "RotaryPositions: num_heads");
    assert_null(lk_rotary_positions(.base = 1));
    lkt_contains(lk_error(), "RotaryPositions: base");
}

typedef struct bad_input {
    lk_module *module;
    lk_shape shapes[5];
    int count;
    const char *fragment;
} bad_input;

static void inputs_that_do_not_fit(void **state)
{
    (void)state;
    const bad_input cases_[] = {
        {lk_multihead_attention(8, 2),
         {LK_SHAPE(5, 2, 8), LK_SHAPE(5, 2, 8), LK_SHAPE(5, 2, 8), LK_SHAPE(2, 4)},
         4,
         "key_padding_mask: expected (2, 5), found (2, 4)"},
        {lk_multihead_attention(8, 2),
         {LK_SHAPE(5, 2, 8), LK_SHAPE(5, 2, 8), LK_SHAPE(5, 2, 8), LK_SHAPE(2, 5), LK_SHAPE(4, 5)},
         5,
         "attn_mask: expected (5, 5) or (4, 5, 5), found (4, 5)"},
        {lk_transformer_encoder_layer(8, 2),
         {LK_SHAPE(5, 2, 8), LK_SHAPE(5, 5), LK_SHAPE(5, 5), LK_SHAPE(5, 5)},
         4,
         "TransformerEncoderLayer takes 3 values, found 4"},
        {lk_transformer_decoder_layer(8, 2),
         {LK_SHAPE(5, 2, 8)},
         1,
         "TransformerDecoderLayer takes 6 values, found 1"},
        {lk_transformer_encoder(lk_linear(8, 8), 2),
         {LK_SHAPE(5, 2, 8), LK_SHAPE(5, 5)},
         2,
         "Linear takes 1 value, found 2"},
        {lk_transformer(.d_model = 8, .nhead = 2),
         {LK_SHAPE(5, 2, 8), LK_SHAPE(5, 3, 8)},
         2,
         "batches of one size on axis 1, found (5, 2, 8) and (5, 3, 8)"},
        {lk_learned_positions(4, 8), {LK_SHAPE(2, 5, 8)}, 1, "at most 4 places on axis 1"},
        {lk_sinusoidal_positions(.dim = 2), {LK_SHAPE(2, 5, 8)}, 1, "axis 2 of (2, 5, 8) cannot be that"},
        {lk_rotary_positions(.num_heads = 3), {LK_SHAPE(2, 5, 8)}, 1, "the last of 3 heads"},
        {lk_rms_norm(4), {LK_SHAPE(2, 5)}, 1, "the last axes must have the shape (4,), found (2, 5)"},
    };
    for (size_t i = 0; i < sizeof cases_ / sizeof *cases_; i++) {
        lk_graph *graph = lk_graph_create(true);
        lk_value *inputs[5] = {NULL}, *y = NULL;
        char name[16];
        for (int k = 0; k < cases_[i].count; k++) {
            snprintf(name, sizeof name, "in%d", k);
            inputs[k] = lk_graph_input(graph, name, LK_F32, cases_[i].shapes[k]);
        }
        lkt_not_null(cases_[i].module);
        assert_int_not_equal(lk_module_call(cases_[i].module, inputs, cases_[i].count, &y, 1), LK_OK);
        lkt_contains(lk_error(), cases_[i].fragment);
        lk_module_free(cases_[i].module);
        lk_graph_free(graph);
    }
}

/* ---- in a graph of modules ---- */

static lk_module *graph_of(const char *inputs)
{
    return lk_node_graph(lk_nodes(lk_node("fc", lk_linear(8, 8), "x"),
                                  lk_node("encode", lk_transformer_encoder_layer(8, 2), inputs)),
                         .inputs = "x pad");
}

/* A node names what it gives; what it does not name is left out. */
static void nodes_name_their_inputs(void **state)
{
    (void)state;
    lk_manual_seed(3);
    lk_module *named = graph_of("fc, src_key_padding_mask=pad"), *copy = lk_module_clone(named);
    lkt_not_null(named);
    lkt_not_null(copy);
    lk_graph *graph = lk_graph_create(false);
    lk_value *x = lk_graph_input(graph, "x", LK_F32, LK_SHAPE(5, 2, 8)),
             *pad = lk_graph_input(graph, "pad", LK_BOOL, LK_SHAPE(2, 5)), *y = NULL;
    lkt_ok(lk_module_call(named, LK_VALUES(x, pad), &y, 1));
    lkt_ok(lk_module_call(copy, LK_VALUES(x, pad), &y, 1));
    lk_graph_free(graph);
    lk_module_free(named);
    lk_module_free(copy);
    assert_null(graph_of("fc, padding=pad"));
    lkt_contains(lk_error(),
                 "node \"encode\": TransformerEncoderLayer has no input \"padding\": it takes src "
                 "src_mask src_key_padding_mask");
    assert_null(graph_of("src_mask=pad, fc"));
    lkt_contains(lk_error(), "\"fc\" comes after a named input and has no name");
    assert_null(graph_of("fc, src=pad"));
    lkt_contains(lk_error(), "node \"encode\" gets one input of TransformerEncoderLayer twice");
    assert_null(graph_of("src_mask=fc, src_key_padding_mask=pad"));
    lkt_contains(lk_error(), "node \"encode\": input 1 of TransformerEncoderLayer is missing");
}

int main(void)
{
    lkt_golden *golden = lkt_golden_open("nn/transformer.lkg");
    const struct CMUnitTest plain_tests[] = {cmocka_unit_test(bad_arguments),
                                             cmocka_unit_test(inputs_that_do_not_fit),
                                             cmocka_unit_test(nodes_name_their_inputs)};
    int failed = run_parity_cases("transformers", cases, CASE_COUNT, golden, layer_equals_pytorch);
    failed += cmocka_run_group_tests(plain_tests, NULL, NULL);
    lkt_golden_free(golden);
    return failed;
}
