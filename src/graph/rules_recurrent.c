/* Recurrent layers. */
#include "graph/rules.h"

#include "base/status.h"
#include "graph/record_util.h"

/* The sizes of a layer; see LK_OP_LIST. */
typedef struct sizes {
    int64_t steps, batch, gates, hidden, width; /* T, N, G, H, R */
} sizes;

enum { FORWARD_BIAS = 2, FORWARD_H0, FORWARD_C0, FORWARD_PROJECTION, FORWARD_LENGTHS };

static bool is_lstm(const lki_node *node)
{
    return node->attr.recurrent.kind == LK_RECURRENT_LSTM;
}

static int64_t gate_count(const lki_node *node)
{
    return is_lstm(node) ? 4 : node->attr.recurrent.kind == LK_RECURRENT_GRU ? 3 : 1;
}

/* What the gradient reads: of an LSTM the gates and c, of a GRU the gates and W_hn h + b_hn. */
static int64_t saved_width(const lki_node *node, int64_t hidden)
{
    int64_t gates = gate_count(node);
    return gates > 1 ? (gates + 1) * hidden : 0;
}

static int64_t state_width(const lki_node *node, const sizes *s)
{
    return s->width + (is_lstm(node) ? s->hidden : 0);
}

static lk_status measure(const lki_node *node, sizes *s)
{
    lk_shape gates = node->in[0]->shape, weight = node->in[1]->shape;
    int kind = (int)node->attr.recurrent.kind;
    if (kind < LK_RECURRENT_LSTM || kind > LK_RECURRENT_RNN_RELU)
        return lki_fail(LK_ERR_INVALID, "recurrent: there is no kind %d", kind);
    if (gates.rank != 3 || weight.rank != 2 || gates.dim[2] != weight.dim[0] ||
        gates.dim[2] % gate_count(node))
        return lki_fail(
            LK_ERR_SHAPE,
            "recurrent: gates %s do not fit weight %s: expected (steps, batch, %lld * hidden) and "
            "(%lld * hidden, width)",
            LKI_SHOW(gates), LKI_SHOW(weight), (long long)gate_count(node), (long long)gate_count(node));
    *s =
        (sizes){gates.dim[0], gates.dim[1], gate_count(node), gates.dim[2] / gate_count(node), weight.dim[1]};
    if (!lki_has_input(node, FORWARD_PROJECTION) && s->width != s->hidden)
        return lki_fail(LK_ERR_SHAPE, "recurrent: weight %s does not fit a hidden state of %lld",
                        LKI_SHOW(weight), (long long)s->hidden);
    if (s->width > s->hidden)
        return lki_fail(LK_ERR_SHAPE,
                        "recurrent: a projection to %lld is wider than the hidden state of %lld",
                        (long long)s->width, (long long)s->hidden);
    return LK_OK;
}

/* (gates (T, N, G H), w_hh (G H, R), b_hh? (G H), h0? (N, R), c0? (N, H), w_hr? (R, H), lengths? i64 (N)) ->
 * y (T, N, R), last (N, R [+ H]), saved (T, N, S) */
lk_status lki_infer_recurrent(lki_node *node)
{
    sizes s;
    LKI_TRY(lki_expect_float(node, 0));
    LKI_TRY(lki_expect_same_dtype(node, 0, 1));
    LKI_TRY(measure(node, &s));
    LKI_TRY(lki_expect_operand(node, FORWARD_BIAS, "bias", LK_SHAPE(s.gates * s.hidden)));
    LKI_TRY(lki_expect_operand(node, FORWARD_H0, "h_0", LK_SHAPE(s.batch, s.width)));
    LKI_TRY(lki_expect_operand(node, FORWARD_C0, "c_0", LK_SHAPE(s.batch, s.hidden)));
    LKI_TRY(lki_expect_operand(node, FORWARD_PROJECTION, "projection", LK_SHAPE(s.width, s.hidden)));
    if (!is_lstm(node) && (lki_has_input(node, FORWARD_C0) || lki_has_input(node, FORWARD_PROJECTION)))
        return lki_fail(LK_ERR_INVALID, "recurrent: only an LSTM has a cell state and a projection");
    if (lki_has_input(node, FORWARD_LENGTHS)) {
        LKI_TRY(lki_expect_dtype(node, FORWARD_LENGTHS, LK_I64));
        if (!lk_shape_equal(node->in[FORWARD_LENGTHS]->shape, LK_SHAPE(s.batch)))
            return lki_fail(LK_ERR_SHAPE, "recurrent: lengths %s: expected one per sequence, (%lld,)",
                            LKI_SHOW(node->in[FORWARD_LENGTHS]->shape), (long long)s.batch);
    }
    lk_dtype dtype = node->in[0]->dtype;
    lki_set_output(node, 0, dtype, LK_SHAPE(s.steps, s.batch, s.width));
    lki_set_output(node, 1, dtype, LK_SHAPE(s.batch, state_width(node, &s)));
    lki_set_output(node, 2, dtype, LK_SHAPE(s.steps, s.batch, saved_width(node, s.hidden)));
    return LK_OK;
}

/* (y, saved, w_hh, dy?, dlast?, h0?, c0?, w_hr?, lengths?) -> dgates (T, N, G H), dfirst (N, R [+ H]), dh */
lk_status lki_infer_recurrent_grad(lki_node *node)
{
    lk_shape y = node->in[0]->shape, weight = node->in[2]->shape;
    sizes s = {y.dim[0], y.dim[1], gate_count(node), weight.dim[0] / gate_count(node), weight.dim[1]};
    lk_dtype dtype = node->in[0]->dtype;
    bool projected = lki_has_input(node, 7);
    lki_set_output(node, 0, dtype, LK_SHAPE(s.steps, s.batch, weight.dim[0]));
    lki_set_output(node, 1, dtype, LK_SHAPE(s.batch, state_width(node, &s)));
    lki_set_output(node, 2, dtype, LK_SHAPE(s.steps, s.batch, projected ? s.width : 0));
    return LK_OK;
}

/* (dgates, y, saved, h0?, dh?, lengths?) -> dw_hh (G H, R), db_hh (G H), dw_hr (R, H) */
lk_status lki_infer_recurrent_grad_weight(lki_node *node)
{
    int64_t rows = node->in[0]->shape.dim[2], width = node->in[1]->shape.dim[2];
    lk_dtype dtype = node->in[0]->dtype;
    lki_set_output(node, 0, dtype, LK_SHAPE(rows, width));
    lki_set_output(node, 1, dtype, LK_SHAPE(rows));
    lki_set_output(node, 2, dtype, LK_SHAPE(lki_has_input(node, 4) ? width : 0, rows / gate_count(node)));
    return LK_OK;
}

static lk_value *optional(const lki_node *node, int index)
{
    return lki_has_input(node, index) ? node->in[index] : NULL;
}

static bool needs_grad(const lki_node *node, int index)
{
    return lki_has_input(node, index) && node->in[index]->needs_grad;
}

static lk_value *columns(lk_value *x, int64_t begin, int64_t end)
{
    return lk_op_slice(x, 1, begin, end, 1);
}

/* Back through the steps; then the weights' gradients in one product over all steps. */
lk_status lki_backward_recurrent(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    sizes s;
    LKI_TRY(measure(node, &s));
    lk_value *lengths = optional(node, FORWARD_LENGTHS);
    lk_value *dgates = LKI_EMIT(LK_OP_RECURRENT_GRAD, &node->attr, node->out[0], node->out[2], node->in[1],
                                grad_out[0], grad_out[1], optional(node, FORWARD_H0),
                                optional(node, FORWARD_C0), optional(node, FORWARD_PROJECTION), lengths);
    grad_in[0] = dgates;
    if (needs_grad(node, FORWARD_H0)) grad_in[FORWARD_H0] = columns(lki_output_of(dgates, 1), 0, s.width);
    if (needs_grad(node, FORWARD_C0))
        grad_in[FORWARD_C0] = columns(lki_output_of(dgates, 1), s.width, s.width + s.hidden);
    bool trains_projection = needs_grad(node, FORWARD_PROJECTION);
    if (!needs_grad(node, 1) && !needs_grad(node, FORWARD_BIAS) && !trains_projection)
        return lki_recorded(node);
    lk_value *dh = trains_projection ? lki_output_of(dgates, 2) : NULL;
    lk_value *weights = LKI_EMIT(LK_OP_RECURRENT_GRAD_WEIGHT, &node->attr, dgates, node->out[0], node->out[2],
                                 optional(node, FORWARD_H0), dh, lengths);
    if (needs_grad(node, 1)) grad_in[1] = weights;
    if (needs_grad(node, FORWARD_BIAS)) grad_in[FORWARD_BIAS] = lki_output_of(weights, 1);
    if (trains_projection) grad_in[FORWARD_PROJECTION] = lki_output_of(weights, 2);
    return lki_recorded(node);
}
