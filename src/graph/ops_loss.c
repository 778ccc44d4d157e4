/* The public losses. */
#include "base/log.h"
#include "graph/record_util.h"

lk_value *lk_op_cross_entropy(lk_value *logits, lk_value *target, lk_value *weight, lk_reduction reduction,
                              int64_t ignore_index, double label_smoothing)
{
    lk_attr attr = {.class_loss = {.reduction = reduction,
                                   .ignore_index = ignore_index,
                                   .label_smoothing = label_smoothing}};
    return LKI_EMIT(LK_OP_CROSS_ENTROPY, &attr, logits, target, weight);
}

lk_value *lk_op_nll(lk_value *log_probabilities, lk_value *target, lk_value *weight, lk_reduction reduction,
                    int64_t ignore_index)
{
    lk_attr attr = {.class_loss = {.reduction = reduction, .ignore_index = ignore_index}};
    return LKI_EMIT(LK_OP_NLL, &attr, log_probabilities, target, weight);
}

/* Broadcast to `shape` where that is possible; else as it is, for the shape rule to complain about. */
static lk_value *stretched(lk_value *value, lk_shape shape)
{
    lk_shape together;
    if (!value || lk_shape_equal(value->shape, shape)) return value;
    if (lki_broadcast(&together, value->shape, shape) || !lk_shape_equal(together, shape)) return value;
    return lk_op_expand(value, shape);
}

/* PyTorch broadcasts the target of these losses with a warning, and refuses it for the cross entropies. */
static bool broadcasts(lk_pointwise_loss kind)
{
    return kind != LK_LOSS_BCE && kind != LK_LOSS_BCE_WITH_LOGITS;
}

lk_value *lk_op_pointwise_loss(lk_value *x, lk_value *target, lk_value *weight, lk_value *pos_weight,
                               lk_pointwise_loss kind, double parameter, lk_reduction reduction)
{
    lk_attr attr = {.pointwise_loss = {.kind = kind, .reduction = reduction, .parameter = parameter}};
    lk_shape together;
    if (!x || !target) return NULL;
    bool differ = !lk_shape_equal(x->shape, target->shape);
    if (differ && broadcasts(kind) && lki_broadcast(&together, x->shape, target->shape) == LK_OK) {
        const lki_node named = {.op = LK_OP_POINTWISE_LOSS, .attr = attr};
        lki_log(
            LKI_LOG_WARNING,
            "%s: the target has shape %s and the input %s; both are broadcast to %s, which is rarely meant",
            lki_node_name(&named), LKI_SHOW(target->shape), LKI_SHOW(x->shape), LKI_SHOW(together));
        x = stretched(x, together);
        target = stretched(target, together);
        if (!x) return NULL;
    }
    weight = stretched(weight, x->shape);
    pos_weight = stretched(pos_weight, x->shape);
    return LKI_EMIT(LK_OP_POINTWISE_LOSS, &attr, x, target, weight, pos_weight);
}
