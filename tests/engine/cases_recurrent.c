/* Cases of recurrent layers: every kind and direction, with and without each operand; batches on both sides
 * of what a thread takes, widths on both sides of a vector and of a panel of weights. */
#include "case.h"

/* What a layer is made of. */
typedef struct layer {
    lk_recurrent kind;
    bool reverse, bias, first, projected, lengths;
    int64_t steps, batch, hidden;
} layer;

static int64_t gates_of(const layer *l)
{
    return (l->kind == LK_RECURRENT_LSTM ? 4 : l->kind == LK_RECURRENT_GRU ? 3 : 1) * l->hidden;
}

static int64_t width_of(const layer *l)
{
    return l->projected ? (l->hidden + 1) / 2 : l->hidden;
}

static int64_t state_of(const layer *l)
{
    return width_of(l) + (l->kind == LK_RECURRENT_LSTM ? l->hidden : 0);
}

static void operand(lkt_case *c, bool given, lk_shape shape)
{
    if (given)
        lkt_in_f32(c, shape, LKT_UNIT);
    else
        lkt_in_absent(c);
}

/* Sequences of 0 steps and of all of them are among them. */
static void lengths(lkt_case *c, const layer *l)
{
    if (l->lengths)
        lkt_in_index(c, LK_SHAPE(l->batch), l->steps + 1);
    else
        lkt_in_absent(c);
}

static lkt_case *add(lkt_case_list *list, lk_op op, const layer *l)
{
    lkt_case *c =
        lkt_case_add(list, op, "kind %d%s%s%s%s%s, %lld steps, batch %lld, hidden %lld", (int)l->kind,
                     l->reverse ? " reverse" : "", l->bias ? " bias" : "", l->first ? " first" : "",
                     l->projected ? " projected" : "", l->lengths ? " lengths" : "", (long long)l->steps,
                     (long long)l->batch, (long long)l->hidden);
    c->attr.recurrent = (lk_recurrent_attr){.kind = l->kind, .reverse = l->reverse};
    c->tolerance = 5e-5;
    return c;
}

static lkt_case *forward(lkt_case_list *list, const layer *l)
{
    bool is_lstm = l->kind == LK_RECURRENT_LSTM;
    lkt_case *c = add(list, LK_OP_RECURRENT, l);
    lkt_in_f32(c, LK_SHAPE(l->steps, l->batch, gates_of(l)), LKT_NORMAL);
    lk_tensor *weight = lkt_in_f32(c, LK_SHAPE(gates_of(l), width_of(l)), LKT_NORMAL);
    int64_t count = lk_tensor_count(weight);
    for (int64_t i = 0; i < count; i++)
        lk_tensor_set(weight, i, lk_tensor_get(weight, i) / (1 + (double)l->hidden / 4));
    operand(c, l->bias, LK_SHAPE(gates_of(l)));
    operand(c, l->first, LK_SHAPE(l->batch, width_of(l)));
    operand(c, l->first && is_lstm, LK_SHAPE(l->batch, l->hidden));
    operand(c, l->projected, LK_SHAPE(width_of(l), l->hidden));
    lengths(c, l);
    lkt_out_f32(c, LK_SHAPE(l->steps, l->batch, width_of(l)));
    lkt_out_f32(c, LK_SHAPE(l->batch, state_of(l)));
    lkt_out_f32(c, LK_SHAPE(l->steps, l->batch,
                            is_lstm                       ? 5 * l->hidden
                            : l->kind == LK_RECURRENT_GRU ? 4 * l->hidden
                                                          : 0));
    return c;
}

static lkt_case *backward(lkt_case_list *list, const layer *l, const lkt_case *of, bool has_dy,
                          bool has_dlast)
{
    lkt_case *c = add(list, LK_OP_RECURRENT_GRAD, l);
    lkt_in_result(c, of, 0);
    lkt_in_result(c, of, 2);
    lkt_in_operand(c, of, 1);
    operand(c, has_dy, LK_SHAPE(l->steps, l->batch, width_of(l)));
    operand(c, has_dlast, LK_SHAPE(l->batch, state_of(l)));
    lkt_in_operand(c, of, 3);
    lkt_in_operand(c, of, 4);
    lkt_in_operand(c, of, 5);
    lkt_in_operand(c, of, 6);
    lkt_out_f32(c, LK_SHAPE(l->steps, l->batch, gates_of(l)));
    lkt_out_f32(c, LK_SHAPE(l->batch, state_of(l)));
    lkt_out_f32(c, LK_SHAPE(l->steps, l->batch, l->projected ? width_of(l) : 0));
    return c;
}

static void cases_of(lkt_case_list *list, layer l)
{
    lkt_case *of = forward(list, &l);
    lkt_case *back = backward(list, &l, of, true, l.first);
    if (l.first) backward(list, &l, of, false, true);
    lkt_case *c = add(list, LK_OP_RECURRENT_GRAD_WEIGHT, &l);
    lkt_in_result(c, back, 0);
    lkt_in_result(c, of, 0);
    lkt_in_result(c, of, 2);
    lkt_in_operand(c, of, 3);
    if (l.projected)
        lkt_in_result(c, back, 2);
    else
        lkt_in_absent(c);
    lkt_in_operand(c, of, 6);
    lkt_out_f32(c, LK_SHAPE(gates_of(&l), width_of(&l)));
    lkt_out_f32(c, LK_SHAPE(gates_of(&l)));
    lkt_out_f32(c, LK_SHAPE(l.projected ? width_of(&l) : 0, l.hidden));
}

void lkt_cases_recurrent(lkt_case_list *list)
{
    for (int kind = LK_RECURRENT_LSTM; kind <= LK_RECURRENT_RNN_RELU; kind++) {
        lk_recurrent k = (lk_recurrent)kind;
        for (int reverse = 0; reverse < 2; reverse++) {
            cases_of(list, (layer){k, reverse, false, false, false, false, 3, 2, 5});
            cases_of(list, (layer){k, reverse, true, true, false, false, 4, 5, 17});
            cases_of(list, (layer){k, reverse, true, true, false, true, 5, 9, 8});
        }
        cases_of(list, (layer){k, false, true, true, false, false, 1, 1, 1});
        cases_of(list, (layer){k, false, true, false, false, false, 9, 16, 33});
        /* Narrow vectors pack tiles from 18 sequences on. */
        cases_of(list, (layer){k, true, true, true, false, true, 2, 45, 70});
        cases_of(list, (layer){k, false, true, false, false, false, 3, 20, 70});
    }
    for (int reverse = 0; reverse < 2; reverse++) {
        cases_of(list, (layer){LK_RECURRENT_LSTM, reverse, true, true, true, false, 4, 3, 9});
        cases_of(list, (layer){LK_RECURRENT_LSTM, reverse, false, true, true, true, 4, 9, 36});
        cases_of(list, (layer){LK_RECURRENT_LSTM, reverse, false, true, true, true, 2, 45, 70});
    }
    /* No steps: the first states are the last ones. No sequences: nothing, and gradients of 0. */
    cases_of(list, (layer){LK_RECURRENT_LSTM, false, true, true, false, false, 0, 2, 3});
    cases_of(list, (layer){LK_RECURRENT_GRU, true, true, true, false, true, 3, 0, 4});
}
