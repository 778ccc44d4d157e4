/* The public recurrent layer. */
#include "graph/record_util.h"

lk_value *lk_op_recurrent(lk_recurrent kind, bool reverse, const lk_recurrent_operands *operands,
                          lk_value **last, lk_value **last_cell)
{
    const lk_recurrent_operands *o = operands;
    lk_value *y =
        LKI_EMIT(LK_OP_RECURRENT, LKI_ATTR(.recurrent = {.kind = kind, .reverse = reverse}), o->gates,
                 o->weight_hh, o->bias_hh, o->first, o->first_cell, o->weight_hr, o->lengths);
    if (!y) return NULL;
    int64_t width = y->shape.dim[2];
    lk_value *states = lki_output_of(y, 1);
    if (last_cell && kind != LK_RECURRENT_LSTM)
        return lki_graph_fail(y->graph, LK_ERR_INVALID, "recurrent: only an LSTM has a cell state");
    if (last) *last = states->shape.dim[1] == width ? states : lk_op_slice(states, 1, 0, width, 1);
    if (last_cell) *last_cell = lk_op_slice(states, 1, width, states->shape.dim[1], 1);
    return y;
}
