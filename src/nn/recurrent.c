/* LSTM, GRU, RNN and their cells, with PyTorch's parameters. Inside, everything is (steps T, batch N,
 * features): per layer and direction one product for the inputs of all steps, then the op that walks through
 * the steps. */
#include "nn/module.h"

#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "graph/record_util.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct recurrent_context {
    lk_recurrent kind;
    int64_t input, hidden, width, layers; /* width: of h */
    int directions;
    double dropout;
    bool batch_first, is_cell, has_bias;
    lk_recurrent_returns returns;
} recurrent_context;

enum { NAME_LENGTH = 48 };

/* "weight_ih_l1_reverse"; a cell's has no layer. */
static const char *param_name(char *text, const recurrent_context *own, const char *name, int64_t layer,
                              int direction)
{
    if (own->is_cell)
        snprintf(text, NAME_LENGTH, "%s", name);
    else
        snprintf(text, NAME_LENGTH, "%s_l%lld%s", name, (long long)layer, direction ? "_reverse" : "");
    return text;
}

/* ---- forward ---- */

/* What one recording works with. */
typedef struct recording {
    lk_module *module;
    const recurrent_context *own;
    bool is_alone; /* the input has no batch */
    int64_t batch;
    lk_value *h_0, *c_0, *lengths;
    lk_value **h_n, **c_n; /* one per layer and direction: (N, R) and (N, H) */
} recording;

/* The input as (T, N, input): a cell's has no steps, and one sequence no batch. */
static lk_value *to_steps(recording *r, lk_value *x)
{
    const recurrent_context *own = r->own;
    lk_shape shape = lk_value_shape(x);
    int batched = own->is_cell ? 2 : 3;
    if ((shape.rank != batched && shape.rank != batched - 1) || shape.dim[shape.rank - 1] != own->input)
        return lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE,
                              "input %s: expected %d dimensions, or %d without a batch, the last of %lld",
                              LKI_SHOW(shape), batched, batched - 1, (long long)own->input);
    r->is_alone = shape.rank == batched - 1;
    if (own->is_cell) return lk_op_reshape(x, LK_SHAPE(1, -1, own->input));
    if (r->is_alone) return lk_op_reshape(x, LK_SHAPE(-1, 1, own->input));
    return own->batch_first ? lk_op_transpose(x, 0, 1) : x;
}

/* The user's shape of a state of `width`: (layers * directions, N, width), a cell's (N, width), and no N of
 * one sequence. */
static lk_shape state_shape(const recording *r, int64_t width)
{
    lk_shape shape = {0};
    if (!r->own->is_cell) shape.dim[shape.rank++] = r->own->layers * r->own->directions;
    if (!r->is_alone) shape.dim[shape.rank++] = r->batch;
    shape.dim[shape.rank++] = width;
    return shape;
}

static bool check_state(const recording *r, lk_value *state, const char *name, int64_t width)
{
    if (!state || lk_shape_equal(lk_value_shape(state), state_shape(r, width))) return true;
    lki_graph_fail(lk_value_graph(state), LK_ERR_SHAPE, "%s %s: expected %s", name,
                   LKI_SHOW(lk_value_shape(state)), LKI_SHOW(state_shape(r, width)));
    return false;
}

/* The first state of layer and direction `index`, (N, width), or NULL for zero. */
static lk_value *first_state(const recording *r, lk_value *states, int64_t index, int64_t width)
{
    if (!states) return NULL;
    int64_t count = r->own->layers * r->own->directions;
    states = lk_op_reshape(states, LK_SHAPE(count, r->batch, width));
    if (count > 1) states = lk_op_slice(states, 0, index, index + 1, 1);
    return lk_op_reshape(states, LK_SHAPE(r->batch, width));
}

static lk_value *param(const recording *r, lk_value *x, const char *name, int64_t layer, int direction)
{
    char text[NAME_LENGTH];
    return lki_module_value(r->module, x, param_name(text, r->own, name, layer, direction));
}

/* One layer and direction: x (T, N, ...) -> (T, N, R). */
static lk_value *run_direction(recording *r, lk_value *x, int64_t layer, int direction)
{
    const recurrent_context *own = r->own;
    int64_t index = layer * own->directions + direction;
    if (!x) return NULL;
    lk_recurrent_operands operands = {
        .gates = lk_op_linear(x, param(r, x, "weight_ih", layer, direction),
                              param(r, x, "bias_ih", layer, direction)),
        .weight_hh = param(r, x, "weight_hh", layer, direction),
        .bias_hh = param(r, x, "bias_hh", layer, direction),
        .first = first_state(r, r->h_0, index, own->width),
        .first_cell = first_state(r, r->c_0, index, own->hidden),
        .weight_hr = param(r, x, "weight_hr", layer, direction),
        .lengths = r->lengths,
    };
    bool has_cell = own->kind == LK_RECURRENT_LSTM;
    return lk_op_recurrent(own->kind, direction == 1, &operands, &r->h_n[index],
                           has_cell ? &r->c_n[index] : NULL);
}

/* All layers: (T, N, directions * R). Dropout acts between layers. */
static lk_value *run_layers(recording *r, lk_value *x)
{
    const recurrent_context *own = r->own;
    for (int64_t layer = 0; layer < own->layers; layer++) {
        lk_value *y[2] = {NULL};
        for (int d = 0; d < own->directions; d++) y[d] = run_direction(r, x, layer, d);
        x = own->directions == 2 ? lk_op_concat(y, 2, -1) : y[0];
        if (layer + 1 < own->layers && own->dropout > 0) x = lk_op_dropout(x, own->dropout);
    }
    return x;
}

/* The last states of all layers and directions in the user's shape. */
static lk_value *join_states(const recording *r, lk_value **states, int64_t width)
{
    int count = (int)r->own->layers * r->own->directions;
    for (int i = 0; i < count; i++) states[i] = lk_op_reshape(states[i], LK_SHAPE(1, r->batch, width));
    return lk_op_reshape(count > 1 ? lk_op_concat(states, count, 0) : states[0], state_shape(r, width));
}

/* What the module gives, of all steps' (T, N, directions * R). */
static lk_value *result(const recording *r, lk_value *y)
{
    const recurrent_context *own = r->own;
    int64_t columns = own->directions * own->width;
    if (!y) return NULL;
    if (own->is_cell) return lk_op_reshape(y, state_shape(r, own->width));
    if (own->returns == LK_RETURNS_LAST) {
        lk_value *const *top = r->h_n + (own->layers - 1) * own->directions;
        lk_value *last = own->directions == 2 ? lk_op_concat(top, 2, -1) : top[0];
        return r->is_alone ? lk_op_reshape(last, LK_SHAPE(columns)) : last;
    }
    if (r->is_alone) return lk_op_reshape(y, LK_SHAPE(-1, columns));
    return own->batch_first ? lk_op_transpose(y, 0, 1) : y;
}

static lk_value *record(lk_module *module, lk_value *x, const lk_recurrent_forward_options *options)
{
    const recurrent_context *own = module->context;
    lk_graph *graph = lk_value_graph(x);
    size_t count = (size_t)own->layers * (size_t)own->directions;
    recording r = {.module = module, .own = own, .h_0 = options->h_0, .c_0 = options->c_0};
    r.lengths = options->lengths;
    x = to_steps(&r, x);
    if (!x) return NULL;
    r.batch = lk_value_shape(x).dim[1];
    if (own->kind != LK_RECURRENT_LSTM && (r.c_0 || options->c_n))
        return lki_graph_fail(graph, LK_ERR_INVALID, "c_0 and c_n: only an LSTM has a cell state");
    if (own->is_cell && r.lengths)
        return lki_graph_fail(graph, LK_ERR_INVALID, "lengths: a cell takes one step");
    if (!check_state(&r, r.h_0, "h_0", own->width) || !check_state(&r, r.c_0, "c_0", own->hidden))
        return NULL;
    r.h_n = LKI_NEW_ARRAY(lk_value *, 2 * count);
    if (!r.h_n) return lki_graph_fail(graph, LK_ERR_NOMEM, "out of memory");
    r.c_n = r.h_n + count;
    lk_value *y = result(&r, run_layers(&r, x));
    if (y && options->h_n) *options->h_n = join_states(&r, r.h_n, own->width);
    if (y && options->c_n) *options->c_n = join_states(&r, r.c_n, own->hidden);
    lki_free(r.h_n);
    return y;
}

static lk_value *recurrent_forward(lk_module *module, lk_value *x)
{
    lk_recurrent_forward_options options = {LK_SIZE(lk_recurrent_forward_options)};
    return record(module, x, &options);
}

/* x, h_0 and c_0; and y, h_n and c_n. */
static lk_status recurrent_call(lk_module *module, lk_value *const *inputs, int input_count,
                                lk_value **outputs, int output_count)
{
    const recurrent_context *own = module->context;
    lk_graph *graph = lk_value_graph(inputs[0]);
    int most = own->kind == LK_RECURRENT_LSTM ? 3 : 2;
    if (input_count > most || output_count > most) {
        lki_graph_fail(graph, LK_ERR_INVALID, "%s takes and gives at most %d values, found %d and %d",
                       module->type, most, input_count, output_count);
        return graph->status;
    }
    lk_recurrent_forward_options options = {
        LK_SIZE(lk_recurrent_forward_options),        .h_0 = input_count > 1 ? inputs[1] : NULL,
        .c_0 = input_count > 2 ? inputs[2] : NULL,    .h_n = output_count > 1 ? &outputs[1] : NULL,
        .c_n = output_count > 2 ? &outputs[2] : NULL,
    };
    outputs[0] = record(module, inputs[0], &options);
    return outputs[0] ? LK_OK : graph->status;
}

lk_value *lk_recurrent_forward_with(lk_module *module, lk_value *x, const lk_recurrent_forward_options *given)
{
    LKI_TAKE(lk_recurrent_forward_options, options, given, NULL);
    if (!x) return NULL;
    lk_graph *graph = lk_value_graph(x);
    if (!module) return lki_graph_fail(graph, LK_ERR_INVALID, "the module is NULL: %s", lk_error());
    if (module->forward != recurrent_forward)
        return lki_graph_fail(graph, LK_ERR_INVALID, "lk_recurrent_forward: %s is not a recurrent layer",
                              module->type);
    lk_value *y = NULL;
    if (lki_module_begin(module, NULL, &x, 1)) return NULL;
    y = record(module, x, &options);
    return lki_module_end(module, &x, 1, &y, 1, y ? LK_OK : graph->status) ? NULL : y;
}

/* ---- constructors ---- */

static void add_param(lk_module *module, const char *name, int64_t layer, int direction, lk_shape shape)
{
    char text[NAME_LENGTH];
    const recurrent_context *own = module->context;
    lk_param *param = lki_module_new_param(module, param_name(text, own, name, layer, direction), shape);
    double bound = 1 / sqrt((double)own->hidden);
    if (param) lki_module_note(module, lk_init_uniform(param, -bound, bound));
}

/* In PyTorch's order, each drawn from +-1 / sqrt(hidden_size). */
static lk_module *create(const char *type, const recurrent_context *own)
{
    int64_t rows = (own->kind == LK_RECURRENT_LSTM ? 4 : own->kind == LK_RECURRENT_GRU ? 3 : 1) * own->hidden;
    lk_module *module = lki_module_create(type, recurrent_forward, own, sizeof *own);
    if (module) module->call = recurrent_call;
    for (int64_t layer = 0; module && layer < own->layers; layer++)
        for (int d = 0; d < own->directions; d++) {
            int64_t input = layer ? own->directions * own->width : own->input;
            add_param(module, "weight_ih", layer, d, LK_SHAPE(rows, input));
            add_param(module, "weight_hh", layer, d, LK_SHAPE(rows, own->width));
            if (own->has_bias) {
                add_param(module, "bias_ih", layer, d, LK_SHAPE(rows));
                add_param(module, "bias_hh", layer, d, LK_SHAPE(rows));
            }
            if (own->width != own->hidden)
                add_param(module, "weight_hr", layer, d, LK_SHAPE(own->width, own->hidden));
        }
    return lki_module_checked(module);
}

static lk_status check_sizes(const char *type, int64_t input, int64_t hidden)
{
    if (input >= 1 && hidden >= 1) return LK_OK;
    return lki_fail(LK_ERR_INVALID,
                    "%s: expected an input_size and a hidden_size of at least 1, found %lld "
                    "and %lld",
                    type, (long long)input, (long long)hidden);
}

static lk_status check_options(const char *type, int64_t hidden, const lk_recurrent_options *options)
{
    bool is_lstm = !strcmp(type, "LSTM"), is_rnn = !strcmp(type, "RNN");
    if (options->num_layers < 0)
        return lki_fail(LK_ERR_INVALID, "%s: num_layers: expected at least 1, found %lld", type,
                        (long long)options->num_layers);
    if (options->relu && !is_rnn)
        return lki_fail(LK_ERR_INVALID, "%s: relu: only an RNN has another nonlinearity", type);
    if (options->proj_size && !is_lstm)
        return lki_fail(LK_ERR_INVALID, "%s: proj_size: only an LSTM has a projection", type);
    if (options->proj_size < 0 || (options->proj_size && options->proj_size >= hidden))
        return lki_fail(LK_ERR_INVALID,
                        "%s: proj_size: expected 0, or less than hidden_size %lld, found %lld", type,
                        (long long)hidden, (long long)options->proj_size);
    if (!(options->dropout >= 0 && options->dropout <= 1))
        return lki_fail(LK_ERR_INVALID, "%s: dropout: expected a probability, found %g", type,
                        options->dropout);
    if (options->dropout > 0 && options->num_layers < 2)
        return lki_fail(LK_ERR_INVALID,
                        "%s: dropout: it acts between layers; put a Dropout behind a single one", type);
    if ((int)options->returns < LK_RETURNS_ALL || options->returns > LK_RETURNS_LAST)
        return lki_fail(LK_ERR_INVALID, "%s: returns: there is no choice %d", type, (int)options->returns);
    return LK_OK;
}

static lk_module *create_layers(const char *type, lk_recurrent kind, int64_t input, int64_t hidden,
                                const lk_recurrent_options *options)
{
    if (check_sizes(type, input, hidden) || check_options(type, hidden, options)) return NULL;
    recurrent_context own = {
        .kind = kind,
        .input = input,
        .hidden = hidden,
        .width = options->proj_size ? options->proj_size : hidden,
        .layers = options->num_layers ? options->num_layers : 1,
        .directions = options->bidirectional ? 2 : 1,
        .dropout = options->dropout,
        .batch_first = options->batch_first,
        .has_bias = !options->no_bias,
        .returns = options->returns,
    };
    return create(type, &own);
}

lk_module *lk_lstm_with(int64_t input_size, int64_t hidden_size, const lk_recurrent_options *given)
{
    LKI_TAKE(lk_recurrent_options, options, given, NULL);
    return create_layers("LSTM", LK_RECURRENT_LSTM, input_size, hidden_size, &options);
}

lk_module *lk_gru_with(int64_t input_size, int64_t hidden_size, const lk_recurrent_options *given)
{
    LKI_TAKE(lk_recurrent_options, options, given, NULL);
    return create_layers("GRU", LK_RECURRENT_GRU, input_size, hidden_size, &options);
}

lk_module *lk_rnn_with(int64_t input_size, int64_t hidden_size, const lk_recurrent_options *given)
{
    LKI_TAKE(lk_recurrent_options, options, given, NULL);
    return create_layers("RNN", options.relu ? LK_RECURRENT_RNN_RELU : LK_RECURRENT_RNN_TANH, input_size,
                         hidden_size, &options);
}

static lk_module *create_cell(const char *type, lk_recurrent kind, int64_t input, int64_t hidden,
                              const lk_recurrent_cell_options *options)
{
    if (check_sizes(type, input, hidden)) return NULL;
    if (options->relu && strcmp(type, "RNNCell") != 0)
        return lki_fail_null(LK_ERR_INVALID, "%s: relu: only an RNNCell has another nonlinearity", type);
    recurrent_context own = {.kind = kind,
                             .input = input,
                             .hidden = hidden,
                             .width = hidden,
                             .layers = 1,
                             .directions = 1,
                             .is_cell = true,
                             .has_bias = !options->no_bias};
    return create(type, &own);
}

lk_module *lk_lstm_cell_with(int64_t input_size, int64_t hidden_size, const lk_recurrent_cell_options *given)
{
    LKI_TAKE(lk_recurrent_cell_options, options, given, NULL);
    return create_cell("LSTMCell", LK_RECURRENT_LSTM, input_size, hidden_size, &options);
}

lk_module *lk_gru_cell_with(int64_t input_size, int64_t hidden_size, const lk_recurrent_cell_options *given)
{
    LKI_TAKE(lk_recurrent_cell_options, options, given, NULL);
    return create_cell("GRUCell", LK_RECURRENT_GRU, input_size, hidden_size, &options);
}

lk_module *lk_rnn_cell_with(int64_t input_size, int64_t hidden_size, const lk_recurrent_cell_options *given)
{
    LKI_TAKE(lk_recurrent_cell_options, options, given, NULL);
    return create_cell("RNNCell", options.relu ? LK_RECURRENT_RNN_RELU : LK_RECURRENT_RNN_TANH, input_size,
                       hidden_size, &options);
}
