/* Losses. */
#include "graph/rules.h"

#include "base/status.h"
#include "graph/record_util.h"

/* (n, c, s...) without its classes: (n, s...) */
static lk_shape without_classes(lk_shape shape)
{
    return lki_reduced_shape(shape, 1u << 1, false);
}

static lk_status check_reduction(const lki_node *node, bool allow_batch_mean)
{
    int last = allow_batch_mean ? LK_REDUCTION_BATCH_MEAN : LK_REDUCTION_NONE;
    int reduction = (int)lki_loss_reduction(node);
    if (reduction >= 0 && reduction <= last) return LK_OK;
    return lki_fail(LK_ERR_INVALID, "%s: its reduction is mean, sum or none%s, not %d", lki_node_name(node),
                    allow_batch_mean ? " or batch mean" : "", reduction);
}

static lk_status check_logits(const lki_node *node)
{
    lk_shape logits = node->in[0]->shape;
    LKI_TRY(lki_expect_float(node, 0));
    LKI_TRY(check_reduction(node, false));
    if (logits.rank < 2 || logits.dim[1] < 1)
        return lki_fail(LK_ERR_SHAPE, "%s: input %s: expected at least 2 dimensions, (batch, classes, ...)",
                        lki_node_name(node), LKI_SHOW(logits));
    LKI_TRY(lki_expect_operand(node, 2, "weight", LK_SHAPE(logits.dim[1])));
    return lki_expect_no_grad(node, 2, "weight");
}

static lk_status fail_target(const lki_node *node, lk_shape expected)
{
    lk_value *target = node->in[1];
    return lki_fail(LK_ERR_SHAPE, "%s: target %s does not fit input %s: expected %s", lki_node_name(node),
                    LKI_SHOW(target->shape), LKI_SHOW(node->in[0]->shape), LKI_SHOW(expected));
}

static void set_loss(lki_node *node, lk_shape unreduced)
{
    bool reduced = lki_loss_reduction(node) != LK_REDUCTION_NONE;
    lki_set_output(node, 0, node->in[0]->dtype, reduced ? lk_scalar_shape() : unreduced);
}

/* (logits (n, c, s...), target i64 (n, s...) or f of the logits' shape, weight? (c)) -> loss,
 * log-probabilities */
lk_status lki_infer_cross_entropy(lki_node *node)
{
    LKI_TRY(check_logits(node));
    lk_value *logits = node->in[0], *target = node->in[1];
    lk_shape classes_out = without_classes(logits->shape);
    bool soft = lk_dtype_is_float(target->dtype);
    if (!soft && target->dtype != LK_I64)
        return lki_fail(LK_ERR_DTYPE,
                        "cross_entropy: target %s is %s: expected i64 of shape %s, or %s of shape %s",
                        LKI_SHOW(target->shape), lk_dtype_name(target->dtype), LKI_SHOW(classes_out),
                        lk_dtype_name(logits->dtype), LKI_SHOW(logits->shape));
    if (soft && !lk_shape_equal(target->shape, logits->shape) && lk_shape_equal(target->shape, classes_out))
        return lki_fail(LK_ERR_DTYPE,
                        "cross_entropy: target %s is %s: expected i64, or probabilities of shape %s",
                        LKI_SHOW(target->shape), lk_dtype_name(target->dtype), LKI_SHOW(logits->shape));
    if (soft) LKI_TRY(lki_expect_same_dtype(node, 0, 1));
    lk_shape expected = soft ? logits->shape : classes_out;
    if (!lk_shape_equal(target->shape, expected)) return fail_target(node, expected);
    if (!(node->attr.class_loss.label_smoothing >= 0 && node->attr.class_loss.label_smoothing <= 1))
        return lki_fail(LK_ERR_INVALID, "cross_entropy: label smoothing must lie between 0 and 1, but is %g",
                        node->attr.class_loss.label_smoothing);
    set_loss(node, classes_out);
    lki_set_output(node, 1, logits->dtype, logits->shape);
    return LK_OK;
}

/* (logp (n, c, s...), target i64 (n, s...), weight? (c)) -> loss */
lk_status lki_infer_nll(lki_node *node)
{
    LKI_TRY(check_logits(node));
    lk_shape expected = without_classes(node->in[0]->shape);
    if (node->in[1]->dtype != LK_I64)
        return lki_fail(LK_ERR_DTYPE, "nll: target %s is %s: expected i64 of shape %s",
                        LKI_SHOW(node->in[1]->shape), lk_dtype_name(node->in[1]->dtype), LKI_SHOW(expected));
    if (!lk_shape_equal(node->in[1]->shape, expected)) return fail_target(node, expected);
    set_loss(node, expected);
    return LK_OK;
}

/* (x, target, weight?, pos_weight?), all of one shape -> loss */
lk_status lki_infer_pointwise_loss(lki_node *node)
{
    lk_shape shape = node->in[0]->shape;
    lk_pointwise_loss_attr attr = node->attr.pointwise_loss;
    int kind = (int)attr.kind;
    LKI_TRY(lki_expect_float(node, 0));
    LKI_TRY(check_reduction(node, true));
    if (kind < LK_LOSS_MSE || kind > LK_LOSS_KL_DIV)
        return lki_fail(LK_ERR_INVALID, "there is no loss %d", kind);
    LKI_TRY(lki_expect_operand(node, 1, "target", shape));
    LKI_TRY(lki_expect_operand(node, 2, "weight", shape));
    LKI_TRY(lki_expect_operand(node, 3, "pos_weight", shape));
    LKI_TRY(lki_expect_no_grad(node, 2, "weight"));
    LKI_TRY(lki_expect_no_grad(node, 3, "pos_weight"));
    if (lki_has_input(node, 3) && kind != LK_LOSS_BCE_WITH_LOGITS)
        return lki_fail(LK_ERR_INVALID, "%s: only bce_with_logits_loss has a pos_weight",
                        lki_node_name(node));
    if ((kind == LK_LOSS_HUBER && !(attr.parameter > 0)) ||
        (kind == LK_LOSS_SMOOTH_L1 && !(attr.parameter >= 0)))
        return lki_fail(LK_ERR_INVALID, "%s: its parameter must be %s 0, but is %g", lki_node_name(node),
                        kind == LK_LOSS_HUBER ? "above" : "at least", attr.parameter);
    if (attr.reduction == LK_REDUCTION_BATCH_MEAN && shape.rank == 0)
        return lki_fail(LK_ERR_SHAPE, "%s: input () has no batch to take the mean over", lki_node_name(node));
    set_loss(node, shape);
    return LK_OK;
}

/* The same -> loss, dx */
lk_status lki_infer_pointwise_loss_with_grad(lki_node *node)
{
    LKI_TRY(lki_infer_pointwise_loss(node));
    if (node->attr.pointwise_loss.reduction == LK_REDUCTION_NONE)
        return lki_fail(LK_ERR_INVALID, "pointwise_loss_with_grad: its reduction must not be none");
    lki_set_output(node, 1, node->in[0]->dtype, node->in[0]->shape);
    return LK_OK;
}

/* (dloss, x or logp, ...) -> dx */
lk_status lki_infer_loss_grad(lki_node *node)
{
    lki_set_output(node, 0, node->in[1]->dtype, node->in[1]->shape);
    return LK_OK;
}

static lk_value *optional(const lki_node *node, int index)
{
    return lki_has_input(node, index) ? node->in[index] : NULL;
}

/* dloss as something to multiply elementwise in the shape of x: a mean's is divided by what the mean divided
 * by. */
static lk_value *per_element(const lki_node *node, lk_value *dloss)
{
    lk_shape shape = node->in[0]->shape;
    int64_t count = 1;
    if (lki_loss_reduction(node) == LK_REDUCTION_BATCH_MEAN) count = shape.dim[0];
    if (lki_loss_reduction(node) == LK_REDUCTION_MEAN) {
        count = lk_shape_count(shape);
        /* A mean of cross entropies is one over the places, not over the classes too. */
        if (node->op == LK_OP_CROSS_ENTROPY) count /= shape.dim[1];
    }
    return lki_scaled(dloss, 1 / (double)(count ? count : 1));
}

/* Soft targets t with smoothing s: dt = -(1 - s) weight logp dloss */
static lk_value *soft_target_gradient(const lki_node *node, lk_value *dloss)
{
    lk_shape shape = node->in[0]->shape, kept = shape, channel = {.rank = shape.rank};
    lk_value *weight = optional(node, 2);
    kept.dim[1] = 1;
    for (int i = 0; i < channel.rank; i++) channel.dim[i] = i == 1 ? shape.dim[1] : 1;
    dloss = lki_scaled(per_element(node, dloss), -(1 - node->attr.class_loss.label_smoothing));
    if (node->attr.class_loss.reduction == LK_REDUCTION_NONE) dloss = lki_reshaped(dloss, kept);
    lk_value *logp = node->out[1];
    if (weight) logp = LKI_EMIT(LK_OP_MUL, NULL, logp, lki_reshaped(weight, channel));
    return LKI_EMIT(LK_OP_MUL, NULL, logp, dloss);
}

/* With q the (smoothed, weighted) target distribution: dlogits = (softmax sum(q) - q) dloss */
lk_status lki_backward_cross_entropy(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    lk_value *target = node->in[1], *of_logp = NULL;
    /* Only the gradient reads the log-probabilities: this is its own gradient. */
    if (grad_out[1] && node->in[0]->needs_grad)
        of_logp = LKI_EMIT(LK_OP_LOG_SOFTMAX_GRAD, LKI_ATTR(.axis.axis = 1), grad_out[1], node->out[1]);
    grad_in[0] = of_logp;
    if (!grad_out[0]) return lki_recorded(node);
    if (node->in[0]->needs_grad)
        grad_in[0] = LKI_EMIT(LK_OP_CROSS_ENTROPY_GRAD, &node->attr, grad_out[0], node->out[1], target,
                              optional(node, 2));
    if (of_logp) grad_in[0] = LKI_EMIT(LK_OP_ADD, NULL, grad_in[0], of_logp);
    if (target->needs_grad) grad_in[1] = soft_target_gradient(node, grad_out[0]);
    return lki_recorded(node);
}

/* dlogp = -weight[target] dloss at the target, 0 elsewhere; a mean's is divided by the sum of the weights */
lk_status lki_backward_nll(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    grad_in[0] =
        LKI_EMIT(LK_OP_NLL_GRAD, &node->attr, grad_out[0], node->in[0], node->in[1], optional(node, 2));
    return lki_recorded(node);
}

/* log x, not below -100 */
static lk_value *bounded_log(lk_value *x)
{
    return LKI_EMIT(LK_OP_MAXIMUM, NULL, LKI_EMIT(LK_OP_LOG, NULL, x), lki_scalar_like(x, -100));
}

static lk_value *one_minus(lk_value *x)
{
    return LKI_EMIT(LK_OP_ADD_SCALAR, LKI_ATTR(.scalar.number = 1), LKI_EMIT(LK_OP_NEG, NULL, x));
}

/* d loss / d t of one element. bce: log(1 - x) - log x. bce_with_logits: -x + (pos_weight - 1) softplus(-x).
 * kl_div: log t + 1 - x; with log targets exp(t) (t - x + 1). */
static lk_value *target_slope(const lki_node *node)
{
    lk_value *x = node->in[0], *t = node->in[1], *pos_weight = optional(node, 3);
    if (node->attr.pointwise_loss.kind == LK_LOSS_BCE)
        return LKI_EMIT(LK_OP_SUB, NULL, bounded_log(one_minus(x)), bounded_log(x));
    if (node->attr.pointwise_loss.kind == LK_LOSS_BCE_WITH_LOGITS) {
        lk_value *slope = LKI_EMIT(LK_OP_NEG, NULL, x);
        if (!pos_weight) return slope;
        lk_value *softplus =
            LKI_EMIT(LK_OP_SOFTPLUS, LKI_ATTR(.scalar.softplus = {.beta = 1, .threshold = 20}), slope);
        lk_value *more = LKI_EMIT(LK_OP_ADD_SCALAR, LKI_ATTR(.scalar.number = -1), pos_weight);
        return LKI_EMIT(LK_OP_ADD, NULL, slope, LKI_EMIT(LK_OP_MUL, NULL, more, softplus));
    }
    bool log_target = node->attr.pointwise_loss.parameter == 1;
    lk_value *ahead = log_target ? t : LKI_EMIT(LK_OP_LOG, NULL, t);
    lk_value *sum =
        LKI_EMIT(LK_OP_ADD_SCALAR, LKI_ATTR(.scalar.number = 1), LKI_EMIT(LK_OP_SUB, NULL, ahead, x));
    return log_target ? LKI_EMIT(LK_OP_MUL, NULL, LKI_EMIT(LK_OP_EXP, NULL, t), sum) : sum;
}

/* mse: 2 (x - t). l1: sign(x - t). smooth_l1: (x - t) / b inside of b, else the sign. huber: b times that.
 * bce: (x - t) / (x (1 - x)). bce_with_logits: (1 - t) - (1 + (pos_weight - 1) t) sigmoid(-x).
 * kl_div: -t, or -exp(t). Each times the weight and dloss, divided by what the reduction divides by. */
static lk_value *input_gradient(const lki_node *node, lk_value *dloss, lk_value *x, lk_value *target)
{
    return LKI_EMIT(LK_OP_POINTWISE_LOSS_GRAD, &node->attr, dloss, x, target, optional(node, 2),
                    optional(node, 3));
}

/* A loss of |x - t| alone stays the same when x and t change places: its dt is the dx of that. */
lk_status lki_backward_pointwise_loss(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    lk_value *x = node->in[0], *target = node->in[1], *weight = optional(node, 2);
    if (x->needs_grad) grad_in[0] = input_gradient(node, grad_out[0], x, target);
    if (target->needs_grad && node->attr.pointwise_loss.kind <= LK_LOSS_HUBER) {
        grad_in[1] = input_gradient(node, grad_out[0], target, x);
    } else if (target->needs_grad) {
        lk_value *gradient = LKI_EMIT(LK_OP_MUL, NULL, target_slope(node), per_element(node, grad_out[0]));
        grad_in[1] = weight ? LKI_EMIT(LK_OP_MUL, NULL, gradient, weight) : gradient;
    }
    return lki_recorded(node);
}
