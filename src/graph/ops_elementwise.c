/* The public elementwise ops: thin, the rules check and the recorder records. */
#include "graph/record_util.h"

static lk_value *unary(lk_op op, lk_value *x)
{
    return LKI_EMIT(op, NULL, x);
}

static lk_value *binary(lk_op op, lk_value *a, lk_value *b)
{
    return LKI_EMIT(op, NULL, a, b);
}

lk_value *lk_op_add(lk_value *a, lk_value *b)
{
    return binary(LK_OP_ADD, a, b);
}

lk_value *lk_op_sub(lk_value *a, lk_value *b)
{
    return binary(LK_OP_SUB, a, b);
}

lk_value *lk_op_mul(lk_value *a, lk_value *b)
{
    return binary(LK_OP_MUL, a, b);
}

lk_value *lk_op_div(lk_value *a, lk_value *b)
{
    return binary(LK_OP_DIV, a, b);
}

lk_value *lk_op_pow(lk_value *a, lk_value *b)
{
    return binary(LK_OP_POW, a, b);
}

lk_value *lk_op_maximum(lk_value *a, lk_value *b)
{
    return binary(LK_OP_MAXIMUM, a, b);
}

lk_value *lk_op_minimum(lk_value *a, lk_value *b)
{
    return binary(LK_OP_MINIMUM, a, b);
}

lk_value *lk_op_greater(lk_value *a, lk_value *b)
{
    return binary(LK_OP_GREATER, a, b);
}

lk_value *lk_op_greater_equal(lk_value *a, lk_value *b)
{
    return binary(LK_OP_GREATER_EQUAL, a, b);
}

lk_value *lk_op_equal(lk_value *a, lk_value *b)
{
    return binary(LK_OP_EQUAL, a, b);
}

lk_value *lk_op_less(lk_value *a, lk_value *b)
{
    return binary(LK_OP_GREATER, b, a);
}

lk_value *lk_op_less_equal(lk_value *a, lk_value *b)
{
    return binary(LK_OP_GREATER_EQUAL, b, a);
}

lk_value *lk_op_not_equal(lk_value *a, lk_value *b)
{
    return lk_op_logical_not(lk_op_equal(a, b));
}

lk_value *lk_op_logical_not(lk_value *x)
{
    if (!x) return NULL;
    if (x->dtype != LK_BOOL)
        return lki_graph_fail(x->graph, LK_ERR_DTYPE, "logical_not: expected bool, found %s",
                              lk_dtype_name(x->dtype));
    return lk_op_equal(x, lki_scalar_like(x, 0));
}

lk_value *lk_op_where(lk_value *condition, lk_value *a, lk_value *b)
{
    return LKI_EMIT(LK_OP_WHERE, NULL, condition, a, b);
}

lk_value *lk_op_neg(lk_value *x)
{
    return unary(LK_OP_NEG, x);
}

lk_value *lk_op_abs(lk_value *x)
{
    return unary(LK_OP_ABS, x);
}

lk_value *lk_op_sign(lk_value *x)
{
    return unary(LK_OP_SIGN, x);
}

lk_value *lk_op_floor(lk_value *x)
{
    return unary(LK_OP_FLOOR, x);
}

lk_value *lk_op_ceil(lk_value *x)
{
    return unary(LK_OP_CEIL, x);
}

lk_value *lk_op_round(lk_value *x)
{
    return unary(LK_OP_ROUND, x);
}

lk_value *lk_op_detach(lk_value *x)
{
    return unary(LK_OP_DETACH, x);
}

lk_value *lk_op_exp(lk_value *x)
{
    return unary(LK_OP_EXP, x);
}

lk_value *lk_op_log(lk_value *x)
{
    return unary(LK_OP_LOG, x);
}

lk_value *lk_op_sqrt(lk_value *x)
{
    return unary(LK_OP_SQRT, x);
}

lk_value *lk_op_sin(lk_value *x)
{
    return unary(LK_OP_SIN, x);
}

lk_value *lk_op_cos(lk_value *x)
{
    return unary(LK_OP_COS, x);
}

lk_value *lk_op_erf(lk_value *x)
{
    return unary(LK_OP_ERF, x);
}

lk_value *lk_op_tanh(lk_value *x)
{
    return unary(LK_OP_TANH, x);
}

lk_value *lk_op_sigmoid(lk_value *x)
{
    return unary(LK_OP_SIGMOID, x);
}

lk_value *lk_op_relu(lk_value *x)
{
    return unary(LK_OP_RELU, x);
}

lk_value *lk_op_silu(lk_value *x)
{
    return unary(LK_OP_SILU, x);
}

lk_value *lk_op_add_scalar(lk_value *x, double scalar)
{
    return LKI_EMIT(LK_OP_ADD_SCALAR, LKI_ATTR(.scalar.number = scalar), x);
}

lk_value *lk_op_mul_scalar(lk_value *x, double scalar)
{
    return LKI_EMIT(LK_OP_MUL_SCALAR, LKI_ATTR(.scalar.number = scalar), x);
}

lk_value *lk_op_pow_scalar(lk_value *x, double exponent)
{
    return LKI_EMIT(LK_OP_POW_SCALAR, LKI_ATTR(.scalar.number = exponent), x);
}

lk_value *lk_op_leaky_relu(lk_value *x, double slope)
{
    return LKI_EMIT(LK_OP_LEAKY_RELU, LKI_ATTR(.scalar.slope = slope), x);
}

lk_value *lk_op_elu(lk_value *x, double alpha)
{
    return LKI_EMIT(LK_OP_ELU, LKI_ATTR(.scalar.alpha = alpha), x);
}

lk_value *lk_op_softplus(lk_value *x, double beta, double threshold)
{
    return LKI_EMIT(LK_OP_SOFTPLUS, LKI_ATTR(.scalar.softplus = {.beta = beta, .threshold = threshold}), x);
}

lk_value *lk_op_clamp(lk_value *x, double min, double max)
{
    return LKI_EMIT(LK_OP_CLAMP, LKI_ATTR(.scalar.clamp = {.min = min, .max = max}), x);
}

lk_value *lk_op_gelu(lk_value *x, bool tanh_approximation)
{
    return LKI_EMIT(LK_OP_GELU, LKI_ATTR(.scalar.by_tanh = tanh_approximation), x);
}

lk_value *lk_op_cast(lk_value *x, lk_dtype dtype)
{
    if (x && x->dtype == dtype) return x;
    return LKI_EMIT(LK_OP_CAST, LKI_ATTR(.cast.dtype = dtype), x);
}
