#include "nn/running.h"

#include "graph/graph.h"
#include "graph/record_util.h"

void lki_assign(lk_value *param, lk_value *value)
{
    if (!param || !value) return;
    lk_value *operands[] = {param, value};
    lki_record(lk_value_graph(param), LK_OP_ASSIGN, operands, 2, 2, NULL);
}

void lki_move_running(lk_value *running, lk_value *value, lk_value *share)
{
    if (!running || !value || !share) return;
    value = lk_op_cast(value, lk_value_dtype(running));
    share = lk_op_cast(share, lk_value_dtype(running));
    lk_value *kept = lk_op_mul(running, lk_op_add_scalar(lk_op_neg(share), 1));
    lki_assign(running, lk_op_add(kept, lk_op_mul(value, share)));
}
