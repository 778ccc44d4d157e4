/* Elementwise ops over one tile: n floats in, n floats out. The result may overlie an operand. */
#ifndef LKI_CPU_KERNELS_ELEMENTWISE_H
#define LKI_CPU_KERNELS_ELEMENTWISE_H

#include "engine/cpu/kernels.h"
#include "engine/cpu/kernels/math.h"
#include "tensor/half.h"

#define TILE_HEAD(name)                                                                                      \
    static void tile_##name(float *out, const float *p, const float *q, const float *r, int64_t n,           \
                            const lki_tile_args *args)                                                       \
    {                                                                                                        \
        const v alpha = v_set(args->alpha), beta = v_set(args->beta), zero = v_set(0.0f), one = v_set(1.0f); \
        (void)alpha, (void)beta, (void)zero, (void)one, (void)q, (void)r;                                    \
        int64_t i = 0;

#define UNARY(name, expression)                                                                              \
    TILE_HEAD(name)                                                                                          \
    for (; i + VN <= n; i += VN) {                                                                           \
        v x = v_load(p + i);                                                                                 \
        v_store(out + i, expression);                                                                        \
    }                                                                                                        \
    if (i < n) {                                                                                             \
        v x = v_load_n(p + i, n - i);                                                                        \
        v_store_n(out + i, expression, n - i);                                                               \
    }                                                                                                        \
    }

#define BINARY(name, expression)                                                                             \
    TILE_HEAD(name)                                                                                          \
    for (; i + VN <= n; i += VN) {                                                                           \
        v x = v_load(p + i), y = v_load(q + i);                                                              \
        v_store(out + i, expression);                                                                        \
    }                                                                                                        \
    if (i < n) {                                                                                             \
        v x = v_load_n(p + i, n - i), y = v_load_n(q + i, n - i);                                            \
        v_store_n(out + i, expression, n - i);                                                               \
    }                                                                                                        \
    }

BINARY(add, x + y)
BINARY(sub, x - y)
BINARY(mul, x *y)
BINARY(div, x / y)
BINARY(maximum, v_select(v_unequal(x, x), x, v_max(x, y)))
BINARY(minimum, v_select(v_unequal(x, x), x, v_min(x, y)))
BINARY(greater, v_and(v_less(y, x), one))
BINARY(greater_equal, v_and(v_less_equal(y, x), one))
BINARY(equal, v_and(v_equal(x, y), one))

UNARY(neg, -x)
UNARY(abs, v_abs(x))
UNARY(sign, v_and(v_less(zero, x), one) - v_and(v_less(x, zero), one))
UNARY(floor, v_round(x) - v_and(v_less(x, v_round(x)), one))
UNARY(ceil, v_round(x) + v_and(v_less(v_round(x), x), one))
UNARY(round, v_round(x))
UNARY(exp, v_exp(x))
UNARY(log, v_log(x))
UNARY(sqrt, v_sqrt(x))
UNARY(erf, v_erf(x))
UNARY(tanh, v_tanh(x))
UNARY(sigmoid, v_sigmoid(x))
UNARY(relu, v_max(zero, x)) /* in this order a NaN stays one */
UNARY(leaky_relu, v_select(v_less(zero, x), x, x *alpha))
UNARY(elu, v_select(v_less_equal(x, zero), alpha *v_expm1_negative(v_min(x, zero)), x))
UNARY(silu, x / (one + v_exp(-x)))
UNARY(clamp, v_min(beta, v_max(alpha, x)))
UNARY(add_scalar, x + alpha)
UNARY(mul_scalar, x *alpha)
UNARY(copy, x)

/* x Phi(x), with Phi(x) = (1 + erf(x / sqrt 2)) / 2. */
INLINE v gelu_erf(v x)
{
    return v_set(0.5f) * x * (v_set(1.0f) + v_erf(x * v_set(0.70710678f)));
}

INLINE v gelu_inner(v x)
{
    return v_set(0.79788456f) * (x + v_set(0.044715f) * x * x * x);
}

INLINE v gelu_tanh(v x)
{
    return v_set(0.5f) * x * (v_set(1.0f) + v_tanh(gelu_inner(x)));
}

UNARY(gelu_erf, gelu_erf(x))
UNARY(gelu_tanh, gelu_tanh(x))

/* Phi(x) + x phi(x) */
INLINE v gelu_erf_slope(v x)
{
    v cdf = v_set(0.5f) * (v_set(1.0f) + v_erf(x * v_set(0.70710678f)));
    v pdf = v_set(0.39894228f) * v_exp(v_set(-0.5f) * x * x);
    return v_fma(x, pdf, cdf);
}

INLINE v gelu_tanh_slope(v x)
{
    v t = v_tanh(gelu_inner(x));
    v inner_slope = v_set(0.79788456f) * (v_set(1.0f) + v_set(3 * 0.044715f) * x * x);
    return v_set(0.5f) * (v_set(1.0f) + t) + v_set(0.5f) * x * (v_set(1.0f) - t * t) * inner_slope;
}

/* log(1 + exp(b x)) / b, and x itself where b x passes the threshold. */
INLINE v softplus(v x, v b, v threshold)
{
    v z = x * b;
    v soft = (v_max(z, v_set(0.0f)) + v_log1p_unit(v_exp(-v_abs(z)))) / b;
    return v_select(v_less(threshold, z), x, soft);
}

INLINE v silu_slope(v x)
{
    v s = v_sigmoid(x);
    return s * (v_set(1.0f) + x * (v_set(1.0f) - s));
}

UNARY(softplus, softplus(x, alpha, beta))
BINARY(tanh_grad, x *(one - y * y))
BINARY(sigmoid_grad, x *((one - y) * y))
BINARY(relu_grad, v_select(v_less_equal(y, zero), zero, x))
BINARY(leaky_relu_grad, v_select(v_less(zero, y), x, x *alpha))
BINARY(elu_grad, v_select(v_less_equal(y, zero), x *alpha *v_exp(v_min(y, zero)), x))
BINARY(gelu_erf_grad, x *gelu_erf_slope(y))
BINARY(gelu_tanh_grad, x *gelu_tanh_slope(y))
BINARY(silu_grad, x *silu_slope(y))
BINARY(softplus_grad, v_select(v_less(beta, y *alpha), x, x *v_sigmoid(y *alpha)))
BINARY(clamp_grad, v_and(v_less_equal(alpha, y), v_and(v_less_equal(y, beta), x)))
BINARY(mask_scale, v_and(v_unequal(y, zero), x *alpha)) /* (dy, mask) */

static void tile_where(float *out, const float *p, const float *q, const float *r, int64_t n,
                       const lki_tile_args *args)
{
    (void)args;
    const v zero = v_set(0.0f);
    int64_t i = 0;
    for (; i + VN <= n; i += VN)
        v_store(out + i, v_select(v_unequal(v_load(p + i), zero), v_load(q + i), v_load(r + i)));
    if (i < n)
        v_store_n(
            out + i,
            v_select(v_unequal(v_load_n(p + i, n - i), zero), v_load_n(q + i, n - i), v_load_n(r + i, n - i)),
            n - i);
}

/* Too rare, or too hard to do well in f32 alone, for vectors of our own. */
#define SCALAR(name, expression)                                                                             \
    static void tile_##name(float *out, const float *p, const float *q, const float *r, int64_t n,           \
                            const lki_tile_args *args)                                                       \
    {                                                                                                        \
        (void)q, (void)r, (void)args;                                                                        \
        for (int64_t i = 0; i < n; i++) out[i] = expression;                                                 \
    }

SCALAR(sin, sinf(p[i]))
SCALAR(cos, cosf(p[i]))
SCALAR(pow, powf(p[i], q[i]))
SCALAR(pow_scalar_any, powf(p[i], args->alpha))

static void tile_pow_scalar(float *out, const float *p, const float *q, const float *r, int64_t n,
                            const lki_tile_args *args)
{
    float power = args->alpha;
    if (power == 2)
        tile_mul(out, p, p, r, n, args);
    else if (power == 1)
        tile_copy(out, p, q, r, n, args);
    else if (power == 0.5f)
        tile_sqrt(out, p, q, r, n, args);
    else
        tile_pow_scalar_any(out, p, q, r, n, args);
}

static void tile_gelu(float *out, const float *p, const float *q, const float *r, int64_t n,
                      const lki_tile_args *args)
{
    (args->mode ? tile_gelu_tanh : tile_gelu_erf)(out, p, q, r, n, args);
}

static void tile_gelu_grad(float *out, const float *p, const float *q, const float *r, int64_t n,
                           const lki_tile_args *args)
{
    (args->mode ? tile_gelu_tanh_grad : tile_gelu_erf_grad)(out, p, q, r, n, args);
}

/* Between a tile of floats and memory of another dtype; the compiler's own vectors do. */
static void tile_load(float *out, const void *data, lk_dtype dtype, int64_t n)
{
    switch (dtype) {
    case LK_F32: memcpy(out, data, (size_t)n * sizeof(float)); break;
    case LK_BF16:
        for (int64_t i = 0; i < n; i++) out[i] = lki_bf16_to_f32(((const uint16_t *)data)[i]);
        break;
    case LK_F16:
        for (int64_t i = 0; i < n; i++) out[i] = lki_f16_to_f32(((const uint16_t *)data)[i]);
        break;
    case LK_F64:
        for (int64_t i = 0; i < n; i++) out[i] = (float)((const double *)data)[i];
        break;
    case LK_I64:
        for (int64_t i = 0; i < n; i++) out[i] = (float)((const int64_t *)data)[i];
        break;
    case LK_I32:
        for (int64_t i = 0; i < n; i++) out[i] = (float)((const int32_t *)data)[i];
        break;
    case LK_U8:
        for (int64_t i = 0; i < n; i++) out[i] = ((const uint8_t *)data)[i];
        break;
    case LK_BOOL:
        for (int64_t i = 0; i < n; i++) out[i] = ((const uint8_t *)data)[i] != 0;
        break;
    }
}

static void tile_save(void *data, const float *in, lk_dtype dtype, int64_t n)
{
    switch (dtype) {
    case LK_F32: memcpy(data, in, (size_t)n * sizeof(float)); break;
    case LK_BF16:
        for (int64_t i = 0; i < n; i++) ((uint16_t *)data)[i] = lki_f32_to_bf16(in[i]);
        break;
    case LK_F16:
        for (int64_t i = 0; i < n; i++) ((uint16_t *)data)[i] = lki_f32_to_f16(in[i]);
        break;
    case LK_F64:
        for (int64_t i = 0; i < n; i++) ((double *)data)[i] = in[i];
        break;
    case LK_I64:
        for (int64_t i = 0; i < n; i++) ((int64_t *)data)[i] = (int64_t)in[i];
        break;
    case LK_I32:
        for (int64_t i = 0; i < n; i++) ((int32_t *)data)[i] = (int32_t)in[i];
        break;
    case LK_U8:
        for (int64_t i = 0; i < n; i++) ((uint8_t *)data)[i] = (uint8_t)(int64_t)in[i];
        break;
    case LK_BOOL:
        for (int64_t i = 0; i < n; i++) ((uint8_t *)data)[i] = in[i] != 0;
        break;
    }
}

static void tile_fill(float *out, float value, int64_t n)
{
    v x = v_set(value);
    int64_t i = 0;
    for (; i + VN <= n; i += VN) v_store(out + i, x);
    if (i < n) v_store_n(out + i, x, n - i);
}

static const lki_tile_fn tile_functions[LK_OP_COUNT] = {
    [LK_OP_ADD] = tile_add,
    [LK_OP_SUB] = tile_sub,
    [LK_OP_MUL] = tile_mul,
    [LK_OP_DIV] = tile_div,
    [LK_OP_POW] = tile_pow,
    [LK_OP_MAXIMUM] = tile_maximum,
    [LK_OP_MINIMUM] = tile_minimum,
    [LK_OP_GREATER] = tile_greater,
    [LK_OP_GREATER_EQUAL] = tile_greater_equal,
    [LK_OP_EQUAL] = tile_equal,
    [LK_OP_WHERE] = tile_where,
    [LK_OP_NEG] = tile_neg,
    [LK_OP_ABS] = tile_abs,
    [LK_OP_SIGN] = tile_sign,
    [LK_OP_FLOOR] = tile_floor,
    [LK_OP_CEIL] = tile_ceil,
    [LK_OP_ROUND] = tile_round,
    [LK_OP_EXP] = tile_exp,
    [LK_OP_LOG] = tile_log,
    [LK_OP_SQRT] = tile_sqrt,
    [LK_OP_SIN] = tile_sin,
    [LK_OP_COS] = tile_cos,
    [LK_OP_ERF] = tile_erf,
    [LK_OP_TANH] = tile_tanh,
    [LK_OP_SIGMOID] = tile_sigmoid,
    [LK_OP_RELU] = tile_relu,
    [LK_OP_LEAKY_RELU] = tile_leaky_relu,
    [LK_OP_ELU] = tile_elu,
    [LK_OP_GELU] = tile_gelu,
    [LK_OP_SILU] = tile_silu,
    [LK_OP_SOFTPLUS] = tile_softplus,
    [LK_OP_CLAMP] = tile_clamp,
    [LK_OP_ADD_SCALAR] = tile_add_scalar,
    [LK_OP_MUL_SCALAR] = tile_mul_scalar,
    [LK_OP_POW_SCALAR] = tile_pow_scalar,
    [LK_OP_CAST] = tile_copy,
    [LK_OP_COPY] = tile_copy,
    [LK_OP_EXPAND] = tile_copy,
    [LK_OP_TANH_GRAD] = tile_tanh_grad,
    [LK_OP_SIGMOID_GRAD] = tile_sigmoid_grad,
    [LK_OP_RELU_GRAD] = tile_relu_grad,
    [LK_OP_LEAKY_RELU_GRAD] = tile_leaky_relu_grad,
    [LK_OP_ELU_GRAD] = tile_elu_grad,
    [LK_OP_GELU_GRAD] = tile_gelu_grad,
    [LK_OP_SILU_GRAD] = tile_silu_grad,
    [LK_OP_SOFTPLUS_GRAD] = tile_softplus_grad,
    [LK_OP_CLAMP_GRAD] = tile_clamp_grad,
    [LK_OP_DROPOUT_GRAD] = tile_mask_scale,
};

#endif
