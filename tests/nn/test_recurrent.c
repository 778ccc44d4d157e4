/* LSTM, GRU, RNN and their cells against PyTorch 1.13, on every engine of this build. */
#include "layer_parity.h"

/* A test may ask for what its golden file calls "layer" or "cell". */
static bool is_lstm(const lk_module *layer)
{
    return strncmp(lk_module_type(layer), "LSTM", 4) == 0;
}

static lk_value *flat(lk_value *x)
{
    return lk_op_reshape(x, LK_SHAPE(-1));
}

/* First states from the input's last rows, and everything that comes out, flattened into one. */
static lk_value *with_all(lk_module *module, lk_value *x, lk_value *lengths)
{
    lk_module *layer = lk_module_child(module, "layer");
    lk_param *projection = lk_module_param(layer, "weight_hr_l0");
    int64_t width = projection ? projection->value->shape.dim[0] : 6;
    int64_t count = lk_module_param(layer, "weight_ih_l0_reverse") ? 4 : 2;
    lk_value *rest = lk_op_slice(x, 0, 5, 5 + count, 1), *parts[3] = {NULL};
    parts[0] =
        lk_recurrent_forward(layer, lk_op_slice(x, 0, 0, 5, 1), .h_0 = lk_op_slice(rest, 2, 0, width, 1),
                             .c_0 = is_lstm(layer) ? lk_op_slice(rest, 2, 1, 7, 1) : NULL, .lengths = lengths,
                             .h_n = &parts[1], .c_n = is_lstm(layer) ? &parts[2] : NULL);
    for (int i = 0; i < 3; i++) parts[i] = flat(parts[i]);
    return lk_op_concat(parts, is_lstm(layer) ? 3 : 2, 0);
}

static lk_value *with_states(lk_module *module, lk_value *x)
{
    return with_all(module, x, NULL);
}

static lk_value *with_lengths(lk_module *module, lk_value *x)
{
    const int64_t lengths[] = {3, 5, 1, 4};
    lk_tensor *tensor = lk_tensor_from(LK_I64, LK_SHAPE(4), lengths);
    lk_value *value = lk_graph_constant(lk_value_graph(x), tensor);
    lk_tensor_free(tensor);
    return with_all(module, x, value);
}

/* Two steps of a cell, the second from the states of the first. */
static lk_value *two_steps(lk_module *module, lk_value *x)
{
    lk_module *cell = lk_module_child(module, "cell");
    lk_value *parts[2] = {NULL}, *steps[2];
    for (int i = 0; i < 2; i++) steps[i] = lk_op_reshape(lk_op_slice(x, 0, i, i + 1, 1), LK_SHAPE(4, 7));
    for (int i = 0; i < 2; i++)
        lk_recurrent_forward(cell, steps[i], .h_0 = parts[0], .c_0 = parts[1], .h_n = &parts[0],
                             .c_n = is_lstm(cell) ? &parts[1] : NULL);
    if (!is_lstm(cell)) return flat(parts[0]);
    return lk_op_concat((lk_value *const[]){flat(parts[0]), flat(parts[1])}, 2, 0);
}

/* clang-format off */
#define LAYERS(X) \
    X(lstm, lk_lstm(7, 6)) \
    X(lstm_deep, lk_lstm(7, 6, .num_layers = 2, .bidirectional = true, .batch_first = true)) \
    X(lstm_last, lk_lstm(7, 6, .num_layers = 2, .bidirectional = true, .no_bias = true, .returns = LK_RETURNS_LAST)) \
    X(lstm_dropout, lk_lstm(7, 6, .num_layers = 3, .dropout = 0.3, .batch_first = true)) \
    X(lstm_states, lk_custom_module(.forward = with_states, .children = lk_children({"layer", lk_lstm(7, 6, .num_layers = 2)}))) \
    X(lstm_lengths, lk_custom_module(.forward = with_lengths, .children = lk_children({"layer", lk_lstm(7, 6, .num_layers = 2, .bidirectional = true)}))) \
    X(gru, lk_gru(7, 6)) \
    X(gru_deep, lk_gru(7, 6, .num_layers = 2, .bidirectional = true, .batch_first = true)) \
    X(gru_last, lk_gru(7, 6, .num_layers = 2, .bidirectional = true, .no_bias = true, .returns = LK_RETURNS_LAST)) \
    X(gru_dropout, lk_gru(7, 6, .num_layers = 3, .dropout = 0.3, .batch_first = true)) \
    X(gru_states, lk_custom_module(.forward = with_states, .children = lk_children({"layer", lk_gru(7, 6, .num_layers = 2)}))) \
    X(gru_lengths, lk_custom_module(.forward = with_lengths, .children = lk_children({"layer", lk_gru(7, 6, .num_layers = 2, .bidirectional = true)}))) \
    X(rnn, lk_rnn(7, 6)) \
    X(rnn_deep, lk_rnn(7, 6, .num_layers = 2, .bidirectional = true, .batch_first = true)) \
    X(rnn_last, lk_rnn(7, 6, .num_layers = 2, .bidirectional = true, .no_bias = true, .returns = LK_RETURNS_LAST)) \
    X(rnn_dropout, lk_rnn(7, 6, .num_layers = 3, .dropout = 0.3, .batch_first = true)) \
    X(rnn_states, lk_custom_module(.forward = with_states, .children = lk_children({"layer", lk_rnn(7, 6, .num_layers = 2)}))) \
    X(rnn_lengths, lk_custom_module(.forward = with_lengths, .children = lk_children({"layer", lk_rnn(7, 6, .num_layers = 2, .bidirectional = true)}))) \
    X(rnn_relu, lk_rnn(7, 6, .relu = true)) \
    X(rnn_relu_deep, lk_rnn(7, 6, .num_layers = 2, .bidirectional = true, .batch_first = true, .relu = true)) \
    X(rnn_relu_last, lk_rnn(7, 6, .num_layers = 2, .bidirectional = true, .no_bias = true, .returns = LK_RETURNS_LAST, .relu = true)) \
    X(rnn_relu_dropout, lk_rnn(7, 6, .num_layers = 3, .dropout = 0.3, .batch_first = true, .relu = true)) \
    X(rnn_relu_states, lk_custom_module(.forward = with_states, .children = lk_children({"layer", lk_rnn(7, 6, .num_layers = 2, .relu = true)}))) \
    X(rnn_relu_lengths, lk_custom_module(.forward = with_lengths, .children = lk_children({"layer", lk_rnn(7, 6, .num_layers = 2, .bidirectional = true, .relu = true)}))) \
    X(lstm_proj, lk_lstm(7, 6, .proj_size = 3)) \
    X(lstm_proj_deep, lk_lstm(7, 6, .num_layers = 2, .bidirectional = true, .batch_first = true, .proj_size = 3)) \
    X(lstm_proj_last, lk_lstm(7, 6, .num_layers = 2, .bidirectional = true, .no_bias = true, .returns = LK_RETURNS_LAST, .proj_size = 3)) \
    X(lstm_proj_dropout, lk_lstm(7, 6, .num_layers = 3, .dropout = 0.3, .batch_first = true, .proj_size = 3)) \
    X(lstm_proj_states, lk_custom_module(.forward = with_states, .children = lk_children({"layer", lk_lstm(7, 6, .num_layers = 2, .proj_size = 3)}))) \
    X(lstm_proj_lengths, lk_custom_module(.forward = with_lengths, .children = lk_children({"layer", lk_lstm(7, 6, .num_layers = 2, .bidirectional = true, .proj_size = 3)}))) \
    X(lstm_unbatched, lk_lstm(7, 6)) \
    X(gru_unbatched_last, lk_gru(7, 6, .bidirectional = true, .returns = LK_RETURNS_LAST)) \
    X(lstm_wide, lk_lstm(9, 33)) \
    X(gru_wide, lk_gru(9, 33, .bidirectional = true)) \
    X(rnn_one_step, lk_rnn(7, 6)) \
    X(lstm_cell, lk_lstm_cell(7, 6)) \
    X(gru_cell, lk_gru_cell(7, 6)) \
    X(rnn_cell, lk_rnn_cell(7, 6, .no_bias = true, .relu = true)) \
    X(gru_cell_unbatched, lk_gru_cell(7, 6)) \
    X(lstm_cell_states, lk_custom_module(.forward = two_steps, .children = lk_children({"cell", lk_lstm_cell(7, 6)}))) \
    X(gru_cell_states, lk_custom_module(.forward = two_steps, .children = lk_children({"cell", lk_gru_cell(7, 6)}))) \
    X(rnn_cell_states, lk_custom_module(.forward = two_steps, .children = lk_children({"cell", lk_rnn_cell(7, 6)})))
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

int main(void)
{
    lkt_golden *golden = lkt_golden_open("nn/recurrent.lkg");
    int failed = run_parity_cases("recurrent", cases, CASE_COUNT, golden, layer_equals_pytorch);
    lkt_golden_free(golden);
    return failed;
}
