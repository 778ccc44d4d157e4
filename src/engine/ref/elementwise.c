/* Elementwise ops: one number at a time, with broadcasting. An output may lie over an input of the same shape
 * and dtype, because every element is read before its place is written. */
#include "engine/ref/ref.h"

#include <math.h>
#include <string.h>

/* PyTorch's maximum and minimum: a NaN on either side wins. */
static double maximum(double a, double b)
{
    return isnan(a) || isnan(b) ? NAN : a > b ? a : b;
}

static double minimum(double a, double b)
{
    return isnan(a) || isnan(b) ? NAN : a < b ? a : b;
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double softplus(double x, double beta, double threshold)
{
    return x * beta > threshold ? x : log1p(exp(x * beta)) / beta;
}

/* erf: x Phi(x). tanh: x/2 (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3). */
static double gelu(bool by_tanh, double x)
{
    if (!by_tanh) return 0.5 * x * (1 + erf(x * M_SQRT1_2));
    double u = M_SQRT2 * 0.5 * M_2_SQRTPI * (x + 0.044715 * x * x * x);
    return 0.5 * x * (1 + tanh(u));
}

/* erf: Phi(x) + x phi(x). tanh: (1 + tanh u)/2 + x/2 (1 - tanh^2 u) u'. */
static double gelu_slope(bool by_tanh, double x)
{
    if (!by_tanh) {
        double density = 0.5 * M_2_SQRTPI * M_SQRT1_2 * exp(-0.5 * x * x);
        return 0.5 * (1 + erf(x * M_SQRT1_2)) + x * density;
    }
    double k = M_SQRT2 * 0.5 * M_2_SQRTPI;
    double t = tanh(k * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * k * (1 + 3 * 0.044715 * x * x);
}

/* (dy, y or x) -> dx. */
static double gradient(lk_op op, const lk_scalar_attr *attr, double dy, double x)
{
    switch (op) {
    case LK_OP_TANH_GRAD: return dy * (1 - x * x);
    case LK_OP_SIGMOID_GRAD: return dy * (1 - x) * x;
    case LK_OP_RELU_GRAD: return x <= 0 ? 0 : dy;
    case LK_OP_LEAKY_RELU_GRAD: return x > 0 ? dy : dy * attr->slope;
    case LK_OP_ELU_GRAD: return x <= 0 ? dy * attr->alpha * exp(x) : dy;
    case LK_OP_GELU_GRAD: return dy * gelu_slope(attr->by_tanh, x);
    case LK_OP_SILU_GRAD: return dy * sigmoid(x) * (1 + x * (1 - sigmoid(x)));
    case LK_OP_SOFTPLUS_GRAD:
        return x * attr->softplus.beta > attr->softplus.threshold ? dy
                                                                  : dy * sigmoid(x * attr->softplus.beta);
    case LK_OP_CLAMP_GRAD: return attr->clamp.min <= x && x <= attr->clamp.max ? dy : 0;
    default: return NAN;
    }
}

static double unary(lk_op op, const lk_scalar_attr *attr, double x)
{
    switch (op) {
    case LK_OP_NEG: return -x;
    case LK_OP_ABS: return fabs(x);
    case LK_OP_SIGN: return (x > 0) - (x < 0);
    case LK_OP_FLOOR: return floor(x);
    case LK_OP_CEIL: return ceil(x);
    case LK_OP_ROUND: return nearbyint(x);
    case LK_OP_EXP: return exp(x);
    case LK_OP_LOG: return log(x);
    case LK_OP_SQRT: return sqrt(x);
    case LK_OP_SIN: return sin(x);
    case LK_OP_COS: return cos(x);
    case LK_OP_ERF: return erf(x);
    case LK_OP_TANH: return tanh(x);
    case LK_OP_SIGMOID: return sigmoid(x);
    case LK_OP_RELU: return x < 0 ? 0 : x;
    case LK_OP_LEAKY_RELU: return x > 0 ? x : x * attr->slope;
    case LK_OP_ELU: return x <= 0 ? expm1(x) * attr->alpha : x;
    case LK_OP_GELU: return gelu(attr->by_tanh, x);
    case LK_OP_SILU: return x * sigmoid(x);
    case LK_OP_SOFTPLUS: return softplus(x, attr->softplus.beta, attr->softplus.threshold);
    case LK_OP_CLAMP: return minimum(maximum(x, attr->clamp.min), attr->clamp.max);
    case LK_OP_ADD_SCALAR: return x + attr->number;
    case LK_OP_MUL_SCALAR: return x * attr->number;
    case LK_OP_POW_SCALAR: return pow(x, attr->number);
    case LK_OP_CAST:
    case LK_OP_COPY: return x;
    default: return NAN;
    }
}

double lki_ref_scalar(lk_op op, const lk_scalar_attr *attr, double a, double b, double c)
{
    switch (op) {
    case LK_OP_ADD: return a + b;
    case LK_OP_SUB: return a - b;
    case LK_OP_MUL: return a * b;
    case LK_OP_DIV: return a / b;
    case LK_OP_POW: return pow(a, b);
    case LK_OP_MAXIMUM: return maximum(a, b);
    case LK_OP_MINIMUM: return minimum(a, b);
    case LK_OP_GREATER: return a > b;
    case LK_OP_GREATER_EQUAL: return a >= b;
    case LK_OP_EQUAL: return a == b;
    case LK_OP_WHERE: return a != 0 ? b : c;
    case LK_OP_TANH_GRAD:
    case LK_OP_SIGMOID_GRAD:
    case LK_OP_RELU_GRAD:
    case LK_OP_LEAKY_RELU_GRAD:
    case LK_OP_ELU_GRAD:
    case LK_OP_GELU_GRAD:
    case LK_OP_SILU_GRAD:
    case LK_OP_SOFTPLUS_GRAD:
    case LK_OP_CLAMP_GRAD: return gradient(op, attr, a, b);
    default: return unary(op, attr, a);
    }
}

/* An i64 need not fit in a double. */
static bool compare_i64(lk_op op, int64_t a, int64_t b)
{
    return op == LK_OP_EQUAL ? a == b : op == LK_OP_GREATER ? a > b : a >= b;
}

static lk_status compare_integers(const lk_call *call)
{
    const lk_tensor *out = &call->out[0];
    lk_tensor a = lki_ref_broadcast(&call->in[0], out->shape),
              b = lki_ref_broadcast(&call->in[1], out->shape);
    int64_t count = lk_tensor_count(out);
    for (int64_t i = 0; i < count; i++)
        lki_ref_set(out, i,
                    compare_i64(call->op, lki_ref_get_i64(&a, lki_ref_offset(&a, i)),
                                lki_ref_get_i64(&b, lki_ref_offset(&b, i))));
    return LK_OK;
}

static bool compares_integers(const lk_call *call)
{
    bool compares = call->op == LK_OP_EQUAL || call->op == LK_OP_GREATER || call->op == LK_OP_GREATER_EQUAL;
    return compares && !lk_dtype_is_float(call->in[0].dtype);
}

lk_status lki_ref_elementwise(const lk_call *call)
{
    if (compares_integers(call)) return compare_integers(call);
    const lk_tensor *out = &call->out[0];
    lk_tensor in[3] = {{0}};
    for (int k = 0; k < call->input_count && k < 3; k++) in[k] = lki_ref_broadcast(&call->in[k], out->shape);
    int64_t count = lk_tensor_count(out);
    for (int64_t i = 0; i < count; i++) {
        double value[3] = {0};
        for (int k = 0; k < call->input_count && k < 3; k++)
            value[k] = lki_ref_get(&in[k], lki_ref_offset(&in[k], i));
        double result = lki_ref_scalar(call->op, &call->attr->scalar, value[0], value[1], value[2]);
        lki_ref_set(out, i, result);
    }
    return LK_OK;
}

lk_status lki_ref_full(const lk_call *call)
{
    lki_ref_fill(&call->out[0], call->attr->fill.value);
    return LK_OK;
}

lk_status lki_ref_copy(const lk_call *call)
{
    size_t nbytes = lk_tensor_nbytes(&call->out[0]);
    if (nbytes) memmove(call->out[0].data, call->in[0].data, nbytes);
    return LK_OK;
}

/* Between integers nothing passes through a double, which could not hold every i64. */
static void set_i64(const lk_tensor *tensor, int64_t index, int64_t value)
{
    switch (tensor->dtype) {
    case LK_I64: ((int64_t *)tensor->data)[index] = value; break;
    case LK_I32: ((int32_t *)tensor->data)[index] = (int32_t)value; break;
    case LK_U8: ((uint8_t *)tensor->data)[index] = (uint8_t)value; break;
    default: lki_ref_set(tensor, index, (double)value); break;
    }
}

lk_status lki_ref_cast(const lk_call *call)
{
    const lk_tensor *in = &call->in[0], *out = &call->out[0];
    if (in->dtype == out->dtype) return lki_ref_copy(call);
    int64_t count = lk_tensor_count(out);
    for (int64_t i = 0; i < count; i++) {
        double value = lki_ref_get(in, i);
        if (!lk_dtype_is_float(in->dtype))
            set_i64(out, i, lki_ref_get_i64(in, i));
        else if (out->dtype == LK_U8) /* by way of i64, so that -1 becomes 255 as in PyTorch */
            set_i64(out, i, (int64_t)value);
        else
            lki_ref_set(out, i, value);
    }
    return LK_OK;
}
