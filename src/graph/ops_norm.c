/* The public normalisations, and dropout. */
#include "graph/ddp.h"
#include "graph/record_util.h"

lk_value *lk_op_batch_norm(lk_value *x, lk_value *weight, lk_value *bias, lk_value *running_mean,
                           lk_value *running_var, double momentum, double eps)
{
    lk_attr attr = {.norm = {.eps = eps, .momentum = momentum}};
    if (!x) return NULL;
    /* As in PyTorch: a layer that keeps no running values looks at the batch in both modes. */
    attr.norm.training = x->graph->training || (!running_mean && !running_var);
    if (x->graph->training && x->graph->sync_comm && x->shape.rank >= 2)
        return lki_record_sync_batch_norm(x, weight, bias, running_mean, running_var, momentum, eps);
    return LKI_EMIT(LK_OP_BATCH_NORM, &attr, x, weight, bias, running_mean, running_var);
}

lk_value *lk_op_layer_norm(lk_value *x, lk_value *weight, lk_value *bias, int axis_count, double eps)
{
    return LKI_EMIT(LK_OP_LAYER_NORM, LKI_ATTR(.norm = {.eps = eps, .axis_count = axis_count}), x, weight,
                    bias);
}

lk_value *lk_op_group_norm(lk_value *x, lk_value *weight, lk_value *bias, int64_t group_count, double eps)
{
    return LKI_EMIT(LK_OP_GROUP_NORM, LKI_ATTR(.norm = {.eps = eps, .group_count = group_count}), x, weight,
                    bias);
}

/* As in PyTorch, p = 0 and p = 1 draw no random numbers. */
lk_value *lk_op_dropout(lk_value *x, double p)
{
    if (!x) return NULL;
    if (!(p >= 0 && p <= 1))
        return lki_graph_fail(x->graph, LK_ERR_INVALID, "dropout: p must lie between 0 and 1, but is %g", p);
    if (!x->graph->training || p == 0) return x;
    if (p == 1) return lki_scaled(x, 0);
    return LKI_EMIT(LK_OP_DROPOUT, LKI_ATTR(.dropout.p = p), x);
}
