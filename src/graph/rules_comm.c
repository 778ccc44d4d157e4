/* The rules of the ops between ranks. */
#include "graph/record_util.h"
#include "graph/rules.h"

#include "base/status.h"

lk_status lki_infer_all_reduce(lki_node *node)
{
    LKI_TRY(lki_expect_float(node, 0));
    lki_set_output(node, 0, node->in[0]->dtype, node->in[0]->shape);
    return LK_OK;
}

/* y = sum over ranks r of x_r, on every rank: d(sum of losses)/dx_r = sum over ranks of dy. */
lk_status lki_backward_all_reduce(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    grad_in[0] = LKI_EMIT(LK_OP_ALL_REDUCE, &node->attr, grad_out[0]);
    return grad_in[0] ? LK_OK : lki_last_status();
}
