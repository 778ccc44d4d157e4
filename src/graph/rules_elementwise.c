/* Elementwise ops: they broadcast, and a gradient is summed back over the axes that broadcasting added. */
#include "graph/rules.h"

#include "base/status.h"
#include "graph/record_util.h"

#include <math.h>

static lk_status infer_broadcast(lki_node *node, int a, int b, lk_shape *shape)
{
    LKI_TRY(lki_expect_float(node, a));
    LKI_TRY(lki_expect_float(node, b));
    LKI_TRY(lki_expect_same_dtype(node, a, b));
    lk_status status = lki_broadcast(shape, node->in[a]->shape, node->in[b]->shape);
    return status ? lki_fail_prefix(status, "%s", lk_op_name(node->op)) : LK_OK;
}

lk_status lki_infer_full(lki_node *node)
{
    lki_set_output(node, 0, node->attr.fill.dtype, node->attr.fill.shape);
    return LK_OK;
}

lk_status lki_infer_binary(lki_node *node)
{
    lk_shape shape;
    LKI_TRY(infer_broadcast(node, 0, 1, &shape));
    lki_set_output(node, 0, node->in[0]->dtype, shape);
    return LK_OK;
}

/* Of any one dtype. */
lk_status lki_infer_compare(lki_node *node)
{
    lk_shape shape;
    LKI_TRY(lki_expect_same_dtype(node, 0, 1));
    lk_status status = lki_broadcast(&shape, node->in[0]->shape, node->in[1]->shape);
    if (status) return lki_fail_prefix(status, "%s", lk_op_name(node->op));
    lki_set_output(node, 0, LK_BOOL, shape);
    return LK_OK;
}

lk_status lki_infer_where(lki_node *node)
{
    lk_shape shape;
    LKI_TRY(lki_expect_dtype(node, 0, LK_BOOL));
    LKI_TRY(infer_broadcast(node, 1, 2, &shape));
    lk_status status = lki_broadcast(&shape, node->in[0]->shape, shape);
    if (status) return lki_fail_prefix(status, "where");
    lki_set_output(node, 0, node->in[1]->dtype, shape);
    return LK_OK;
}

lk_status lki_infer_unary(lki_node *node)
{
    LKI_TRY(lki_expect_float(node, 0));
    lki_set_output(node, 0, node->in[0]->dtype, node->in[0]->shape);
    return LK_OK;
}

lk_status lki_infer_clamp(lki_node *node)
{
    double min = node->attr.scalar.clamp.min, max = node->attr.scalar.clamp.max;
    if (isnan(min) || isnan(max))
        return lki_fail(LK_ERR_INVALID, "clamp: the limits %g and %g are no numbers", min, max);
    return lki_infer_unary(node);
}

lk_status lki_infer_softplus(lki_node *node)
{
    double beta = node->attr.scalar.softplus.beta;
    if (!(beta > 0)) return lki_fail(LK_ERR_INVALID, "softplus: beta must be above 0, not %g", beta);
    return lki_infer_unary(node);
}

lk_status lki_infer_cast(lki_node *node)
{
    lki_set_output(node, 0, node->attr.cast.dtype, node->in[0]->shape);
    return LK_OK;
}

lk_status lki_infer_copy(lki_node *node)
{
    lki_set_output(node, 0, node->in[0]->dtype, node->in[0]->shape);
    return LK_OK;
}

/* A chain gives what its last step gives. */
lk_status lki_infer_fused(lki_node *node)
{
    const lk_fused *chain = node->attr.fused.chain;
    lk_op last = chain->step[chain->step_count - 1].op;
    lk_dtype dtype = LK_BOOL;
    bool compares = last == LK_OP_GREATER || last == LK_OP_GREATER_EQUAL || last == LK_OP_EQUAL;
    for (int i = 0; i < node->input_count && !compares && dtype == LK_BOOL; i++)
        if (lk_dtype_is_float(node->in[i]->dtype)) dtype = node->in[i]->dtype;
    lki_set_output(node, 0, dtype, node->attr.fused.shape);
    return LK_OK;
}

/* Hands input i its gradient, summed to its shape. */
static void give(lki_node *node, lk_value **grad_in, int i, lk_value *gradient)
{
    grad_in[i] = lki_sum_to(gradient, node->in[i]->shape);
}

/* da = dy, db = dy */
lk_status lki_backward_add(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    for (int i = 0; i < 2; i++)
        if (node->in[i]->needs_grad) give(node, grad_in, i, grad_out[0]);
    return lki_recorded(node);
}

/* da = dy, db = -dy */
lk_status lki_backward_sub(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    if (node->in[0]->needs_grad) give(node, grad_in, 0, grad_out[0]);
    /* Summed first: the negation then touches the smaller of the two. */
    if (node->in[1]->needs_grad)
        grad_in[1] = LKI_EMIT(LK_OP_NEG, NULL, lki_sum_to(grad_out[0], node->in[1]->shape));
    return lki_recorded(node);
}

/* da = dy b, db = dy a */
lk_status lki_backward_mul(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    for (int i = 0; i < 2; i++)
        if (node->in[i]->needs_grad)
            give(node, grad_in, i, LKI_EMIT(LK_OP_MUL, NULL, grad_out[0], node->in[1 - i]));
    return lki_recorded(node);
}

/* da = dy / b, db = -dy y / b */
lk_status lki_backward_div(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    lk_value *quotient = LKI_EMIT(LK_OP_DIV, NULL, grad_out[0], node->in[1]);
    if (node->in[0]->needs_grad) give(node, grad_in, 0, quotient);
    if (node->in[1]->needs_grad) {
        lk_value *product = LKI_EMIT(LK_OP_MUL, NULL, quotient, node->out[0]);
        grad_in[1] = LKI_EMIT(LK_OP_NEG, NULL, lki_sum_to(product, node->in[1]->shape));
    }
    return lki_recorded(node);
}

/* y = a^b: da = dy b a^(b-1), 0 where b = 0; db = dy y ln a, 0 where a = 0 and b >= 0 */
lk_status lki_backward_pow(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    lk_value *a = node->in[0], *b = node->in[1], *zero = lki_scalar_like(a, 0);
    if (a->needs_grad) {
        lk_value *less = LKI_EMIT(LK_OP_ADD_SCALAR, LKI_ATTR(.scalar.number = -1), b);
        lk_value *slope = LKI_EMIT(LK_OP_MUL, NULL, b, LKI_EMIT(LK_OP_POW, NULL, a, less));
        lk_value *product = LKI_EMIT(LK_OP_MUL, NULL, grad_out[0], slope);
        give(node, grad_in, 0,
             LKI_EMIT(LK_OP_WHERE, NULL, LKI_EMIT(LK_OP_EQUAL, NULL, b, zero), zero, product));
    }
    if (b->needs_grad) {
        lk_value *slope = LKI_EMIT(LK_OP_MUL, NULL, node->out[0], LKI_EMIT(LK_OP_LOG, NULL, a));
        lk_value *product = LKI_EMIT(LK_OP_MUL, NULL, grad_out[0], slope);
        lk_value *flat = LKI_EMIT(LK_OP_GREATER_EQUAL, NULL, b, zero);
        lk_value *at_zero = LKI_EMIT(LK_OP_WHERE, NULL, flat, zero, product);
        give(node, grad_in, 1,
             LKI_EMIT(LK_OP_WHERE, NULL, LKI_EMIT(LK_OP_EQUAL, NULL, a, zero), at_zero, product));
    }
    return lki_recorded(node);
}

/* maximum: da = dy where a > b, dy / 2 where a = b, 0 where a < b; db the other way round. minimum is its
 * mirror. */
lk_status lki_backward_extremum(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    lk_value *dy = grad_out[0], *zero = lki_scalar_like(dy, 0);
    lk_value *equal = LKI_EMIT(LK_OP_EQUAL, NULL, node->in[0], node->in[1]);
    lk_value *shared = LKI_EMIT(LK_OP_WHERE, NULL, equal, lki_scaled(dy, 0.5), dy);
    for (int i = 0; i < 2; i++) {
        if (!node->in[i]->needs_grad) continue;
        lk_value *mine = node->in[i], *other = node->in[1 - i];
        bool maximum = node->op == LK_OP_MAXIMUM;
        lk_value *lost = LKI_EMIT(LK_OP_GREATER, NULL, maximum ? other : mine, maximum ? mine : other);
        give(node, grad_in, i, LKI_EMIT(LK_OP_WHERE, NULL, lost, zero, shared));
    }
    return lki_recorded(node);
}

/* da = dy where the condition holds, db = dy where it does not */
lk_status lki_backward_where(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    lk_value *dy = grad_out[0], *zero = lki_scalar_like(dy, 0);
    if (node->in[1]->needs_grad) give(node, grad_in, 1, LKI_EMIT(LK_OP_WHERE, NULL, node->in[0], dy, zero));
    if (node->in[2]->needs_grad) give(node, grad_in, 2, LKI_EMIT(LK_OP_WHERE, NULL, node->in[0], zero, dy));
    return lki_recorded(node);
}

/* From here on there is one operand: it needs a gradient, or autodiff would not ask. */

/* dx = -dy */
lk_status lki_backward_neg(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    grad_in[0] = LKI_EMIT(LK_OP_NEG, NULL, grad_out[0]);
    return lki_recorded(node);
}

/* dx = dy sign(x), 0 at 0 */
lk_status lki_backward_abs(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    grad_in[0] = LKI_EMIT(LK_OP_MUL, NULL, grad_out[0], LKI_EMIT(LK_OP_SIGN, NULL, node->in[0]));
    return lki_recorded(node);
}

/* dx = dy y */
lk_status lki_backward_exp(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    grad_in[0] = LKI_EMIT(LK_OP_MUL, NULL, grad_out[0], node->out[0]);
    return lki_recorded(node);
}

/* dx = dy / x */
lk_status lki_backward_log(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    grad_in[0] = LKI_EMIT(LK_OP_DIV, NULL, grad_out[0], node->in[0]);
    return lki_recorded(node);
}

/* dx = dy / (2 y) */
lk_status lki_backward_sqrt(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    grad_in[0] = LKI_EMIT(LK_OP_DIV, NULL, grad_out[0], lki_scaled(node->out[0], 2));
    return lki_recorded(node);
}

/* dx = dy cos(x) */
lk_status lki_backward_sin(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    grad_in[0] = LKI_EMIT(LK_OP_MUL, NULL, grad_out[0], LKI_EMIT(LK_OP_COS, NULL, node->in[0]));
    return lki_recorded(node);
}

/* dx = -dy sin(x) */
lk_status lki_backward_cos(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    lk_value *product = LKI_EMIT(LK_OP_MUL, NULL, grad_out[0], LKI_EMIT(LK_OP_SIN, NULL, node->in[0]));
    grad_in[0] = LKI_EMIT(LK_OP_NEG, NULL, product);
    return lki_recorded(node);
}

/* dx = dy 2 / sqrt(pi) exp(-x^2) */
lk_status lki_backward_erf(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    lk_value *square = LKI_EMIT(LK_OP_MUL, NULL, node->in[0], node->in[0]);
    lk_value *bell = LKI_EMIT(LK_OP_EXP, NULL, LKI_EMIT(LK_OP_NEG, NULL, square));
    grad_in[0] = LKI_EMIT(LK_OP_MUL, NULL, grad_out[0], lki_scaled(bell, M_2_SQRTPI));
    return lki_recorded(node);
}

/* The activations have a gradient op each, which reads the result or the input and the same attributes. */
static lk_op activation_gradient(lk_op op, bool *from_result)
{
    *from_result = op == LK_OP_TANH || op == LK_OP_SIGMOID || op == LK_OP_RELU;
    switch (op) {
    case LK_OP_TANH: return LK_OP_TANH_GRAD;
    case LK_OP_SIGMOID: return LK_OP_SIGMOID_GRAD;
    case LK_OP_RELU: return LK_OP_RELU_GRAD;
    case LK_OP_LEAKY_RELU: return LK_OP_LEAKY_RELU_GRAD;
    case LK_OP_ELU: return LK_OP_ELU_GRAD;
    case LK_OP_GELU: return LK_OP_GELU_GRAD;
    case LK_OP_SILU: return LK_OP_SILU_GRAD;
    case LK_OP_SOFTPLUS: return LK_OP_SOFTPLUS_GRAD;
    default: return LK_OP_CLAMP_GRAD;
    }
}

/* tanh: dx = dy (1 - y^2). sigmoid: dy y (1 - y). relu: dy where y > 0. leaky_relu: dy where x > 0, else
 * slope dy. elu: dy where x > 0, else dy alpha exp(x). gelu: dy (Phi(x) + x phi(x)), or of the tanh form.
 * silu: with s = sigmoid(x), dy s (1 + x (1 - s)). softplus: dy sigmoid(beta x), dy where beta x > threshold.
 * clamp: dy where min <= x <= max. */
lk_status lki_backward_activation(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    bool from_result;
    lk_op op = activation_gradient(node->op, &from_result);
    grad_in[0] = LKI_EMIT(op, &node->attr, grad_out[0], from_result ? node->out[0] : node->in[0]);
    return lki_recorded(node);
}

/* y = x + number, or a copy of x: dx = dy */
lk_status lki_backward_identity(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    grad_in[0] = grad_out[0];
    return lki_recorded(node);
}

/* dx = number dy */
lk_status lki_backward_mul_scalar(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    grad_in[0] = lki_scaled(grad_out[0], node->attr.scalar.number);
    return lki_recorded(node);
}

/* dx = dy n x^(n - 1), 0 where n = 0 */
lk_status lki_backward_pow_scalar(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    double exponent = node->attr.scalar.number;
    if (exponent == 0) {
        grad_in[0] = lki_full_like(node->in[0], 0);
        return lki_recorded(node);
    }
    lk_value *power = node->in[0];
    if (exponent != 2)
        power = LKI_EMIT(LK_OP_POW_SCALAR, LKI_ATTR(.scalar.number = exponent - 1), node->in[0]);
    grad_in[0] = LKI_EMIT(LK_OP_MUL, NULL, grad_out[0], lki_scaled(power, exponent));
    return lki_recorded(node);
}

/* dx = dy, back in the dtype of x; what is no float has no gradient */
lk_status lki_backward_cast(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    lk_dtype from = node->in[0]->dtype;
    if (!lk_dtype_is_float(from) || !lk_dtype_is_float(node->attr.cast.dtype)) return LK_OK;
    grad_in[0] = from == node->attr.cast.dtype
                     ? grad_out[0]
                     : LKI_EMIT(LK_OP_CAST, LKI_ATTR(.cast.dtype = from), grad_out[0]);
    return lki_recorded(node);
}
