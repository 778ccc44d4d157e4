#include "engine/cuda/source.cuh"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

namespace
{

struct text {
    char *data;
    size_t used;
    bool overflowed;
};

__attribute__((format(printf, 2, 3))) void emit(text *t, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    size_t room = LKI_CUDA_SOURCE_NBYTES - t->used;
    int written = vsnprintf(t->data + t->used, room, format, arguments);
    va_end(arguments);
    if (written < 0 || (size_t)written >= room)
        t->overflowed = true;
    else
        t->used += (size_t)written;
}

/* What every kernel may use. C is what is computed in, F(exp) its expf or exp. Conversions to integers give
 * what the CPU gives for numbers that do not fit. Without headers: libnvrtc need not find any. */
const char prelude[] = R"(
static __device__ inline float from_bf16(unsigned short x) { return __uint_as_float((unsigned)x << 16); }
static __device__ inline float from_f16(unsigned short x)
{
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
    return y;
}
static __device__ inline unsigned short to_bf16(float x)
{
    unsigned short y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}
static __device__ inline unsigned short to_f16(float x)
{
    unsigned short y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}
static __device__ inline long long to_i64(long long x) { return x; }
static __device__ inline long long to_i64(double x)
{
    return x >= -0x1p63 && x < 0x1p63 ? (long long)x : (long long)(1ull << 63);
}
static __device__ inline long long to_i64(float x) { return to_i64((double)x); }
static __device__ inline int to_i32(long long x) { return (int)x; }
static __device__ inline int to_i32(double x)
{
    return x > -2147483649.0 && x < 2147483648.0 ? (int)x : (int)(1u << 31);
}
static __device__ inline int to_i32(float x) { return to_i32((double)x); }
)";

const char math[] = R"(
#define NOT_A_NUMBER ((C)__longlong_as_double(0x7ff8000000000000ll))
static __device__ inline C maximum(C a, C b) { return a != a || b != b ? NOT_A_NUMBER : a > b ? a : b; }
static __device__ inline C minimum(C a, C b) { return a != a || b != b ? NOT_A_NUMBER : a < b ? a : b; }
static __device__ inline C sigmoid(C x) { return (C)1 / ((C)1 + F(exp)(-x)); }
#define SQRT_HALF ((C)0.70710678118654752440)
#define GELU_K ((C)0.79788456080286535588)
static __device__ inline C gelu(C x) { return (C)0.5 * x * ((C)1 + F(erf)(x * SQRT_HALF)); }
static __device__ inline C gelu_tanh(C x)
{
    return (C)0.5 * x * ((C)1 + F(tanh)(GELU_K * (x + (C)0.044715 * x * x * x)));
}
static __device__ inline C gelu_slope(C x)
{
    return (C)0.5 * ((C)1 + F(erf)(x * SQRT_HALF)) + x * ((C)0.39894228040143267794 * F(exp)((C)-0.5 * x * x));
}
static __device__ inline C gelu_tanh_slope(C x)
{
    C t = F(tanh)(GELU_K * (x + (C)0.044715 * x * x * x));
    return (C)0.5 * ((C)1 + t) + (C)0.5 * x * ((C)1 - t * t) * GELU_K * ((C)1 + (C)0.134145 * x * x);
}
)";

const char *storage_of(lk_dtype dtype)
{
    switch (dtype) {
    case LK_F32: return "float";
    case LK_F64: return "double";
    case LK_BF16:
    case LK_F16: return "unsigned short";
    case LK_I64: return "long long";
    case LK_I32: return "int";
    case LK_U8:
    case LK_BOOL: return "unsigned char";
    }
    return "void";
}

const char *raw_of(lk_dtype dtype)
{
    switch (lki_cuda_dtype_nbytes(dtype)) {
    case 1: return "unsigned char";
    case 2: return "unsigned short";
    case 4: return "unsigned";
    default: return "unsigned long long";
    }
}

/* An element as it is stored (%s) as a C. */
const char *load_of(lk_dtype dtype)
{
    switch (dtype) {
    case LK_BF16: return "((C)from_bf16(x))";
    case LK_F16: return "((C)from_f16(x))";
    case LK_BOOL: return "((C)((x) != 0))";
    default: return "((C)(x))";
    }
}

const char *store_of(lk_dtype dtype)
{
    switch (dtype) {
    case LK_F32: return "((float)(double)(x))";
    case LK_F64: return "((double)(x))";
    case LK_BF16: return "to_bf16((float)(double)(x))";
    case LK_F16: return "to_f16((float)(double)(x))";
    case LK_I64: return "to_i64(x)";
    case LK_I32: return "to_i32(x)";
    case LK_U8: return "((unsigned char)to_i64(x))";
    case LK_BOOL: return "((unsigned char)((x) != 0))";
    }
    return "";
}

/* f64 wherever a wide number takes part, as the reference does; else f32. */
const char *compute_type(const lki_cuda_chain *chain)
{
    if (chain->integers) return "long long";
    bool wide = chain->out_dtype == LK_F64 || chain->out_dtype == LK_I64 || chain->out_dtype == LK_I32;
    for (int k = 0; k < chain->fused.input_count; k++) {
        lk_dtype dtype = chain->in_dtype[k];
        wide = wide || dtype == LK_F64 || dtype == LK_I64 || dtype == LK_I32;
    }
    return wide ? "double" : "float";
}

/* A scalar of type C, to the last bit. */
const char *scalar(char buffer[64], double value)
{
    unsigned long long bits;
    memcpy(&bits, &value, sizeof bits);
    snprintf(buffer, 64, "((C)__longlong_as_double(0x%llxll))", bits);
    return buffer;
}

/* What P and Q stand for in the formula of an op. */
double number_of(lk_op op, const lk_scalar_attr *attr, char name)
{
    bool first = name == 'P';
    switch (op) {
    case LK_OP_SOFTPLUS:
    case LK_OP_SOFTPLUS_GRAD: return first ? attr->softplus.beta : attr->softplus.threshold;
    case LK_OP_CLAMP:
    case LK_OP_CLAMP_GRAD: return first ? attr->clamp.min : attr->clamp.max;
    case LK_OP_LEAKY_RELU:
    case LK_OP_LEAKY_RELU_GRAD: return attr->slope;
    case LK_OP_ELU:
    case LK_OP_ELU_GRAD: return attr->alpha;
    default: return attr->number;
    }
}

/* An exponent that has a shorter formula. */
const char *power_formula(double exponent)
{
    return exponent == 2 ? "A * A" : exponent == 3 ? "A * A * A" : "F(pow)(A, P)";
}

/* What an op computes: A, B and D stand for its operands, P and Q for its numbers. */
const char *formula_of(lk_op op, const lk_scalar_attr *attr)
{
    switch (op) {
    case LK_OP_FULL: return "P";
    case LK_OP_ADD: return "A + B";
    case LK_OP_SUB: return "A - B";
    case LK_OP_MUL: return "A * B";
    case LK_OP_DIV: return "A / B";
    case LK_OP_POW: return "F(pow)(A, B)";
    case LK_OP_MAXIMUM: return "maximum(A, B)";
    case LK_OP_MINIMUM: return "minimum(A, B)";
    case LK_OP_GREATER: return "(C)(A > B)";
    case LK_OP_GREATER_EQUAL: return "(C)(A >= B)";
    case LK_OP_EQUAL: return "(C)(A == B)";
    case LK_OP_WHERE: return "A != (C)0 ? B : D";
    case LK_OP_NEG: return "-A";
    case LK_OP_ABS: return "F(fabs)(A)";
    case LK_OP_SIGN: return "(C)((A > (C)0) - (A < (C)0))";
    case LK_OP_FLOOR: return "F(floor)(A)";
    case LK_OP_CEIL: return "F(ceil)(A)";
    case LK_OP_ROUND: return "F(rint)(A)";
    case LK_OP_EXP: return "F(exp)(A)";
    case LK_OP_LOG: return "F(log)(A)";
    case LK_OP_SQRT: return "F(sqrt)(A)";
    case LK_OP_SIN: return "F(sin)(A)";
    case LK_OP_COS: return "F(cos)(A)";
    case LK_OP_ERF: return "F(erf)(A)";
    case LK_OP_TANH: return "F(tanh)(A)";
    case LK_OP_SIGMOID: return "sigmoid(A)";
    case LK_OP_RELU: return "A < (C)0 ? (C)0 : A";
    case LK_OP_LEAKY_RELU: return "A > (C)0 ? A : A * P";
    case LK_OP_ELU: return "A <= (C)0 ? F(expm1)(A) * P : A";
    case LK_OP_GELU: return attr->by_tanh ? "gelu_tanh(A)" : "gelu(A)";
    case LK_OP_SILU: return "A * sigmoid(A)";
    case LK_OP_SOFTPLUS: return "A * P > Q ? A : F(log1p)(F(exp)(A * P)) / P";
    case LK_OP_CLAMP: return "minimum(maximum(A, P), Q)";
    case LK_OP_ADD_SCALAR: return "A + P";
    case LK_OP_MUL_SCALAR: return "A * P";
    case LK_OP_POW_SCALAR: return power_formula(attr->number);
    case LK_OP_CAST:
    case LK_OP_COPY: return "A";
    case LK_OP_TANH_GRAD: return "A * ((C)1 - B * B)";
    case LK_OP_SIGMOID_GRAD: return "A * ((C)1 - B) * B";
    case LK_OP_RELU_GRAD: return "B <= (C)0 ? (C)0 : A";
    case LK_OP_LEAKY_RELU_GRAD: return "B > (C)0 ? A : A * P";
    case LK_OP_ELU_GRAD: return "B <= (C)0 ? A * P * F(exp)(B) : A";
    case LK_OP_GELU_GRAD: return attr->by_tanh ? "A * gelu_tanh_slope(B)" : "A * gelu_slope(B)";
    case LK_OP_SILU_GRAD: return "A * sigmoid(B) * ((C)1 + B * ((C)1 - sigmoid(B)))";
    case LK_OP_SOFTPLUS_GRAD: return "B * P > Q ? A : A * sigmoid(B * P)";
    case LK_OP_CLAMP_GRAD: return "P <= B && B <= Q ? A : (C)0";
    default: return NULL;
    }
}

/* Writes a formula with its operands put in. */
void emit_formula(text *t, const lk_fused *fused, int s, const char *formula)
{
    char number[64];
    for (const char *c = formula; *c; c++) {
        bool is_name = c > formula && (c[-1] == '_' || (c[-1] >= 'A' && c[-1] <= 'Z'));
        int operand = *c == 'A' ? 0 : *c == 'B' ? 1 : *c == 'D' ? 2 : -1;
        if (operand >= 0 && !is_name)
            emit(t, "v%d", fused->step[s].operand[operand]);
        else if ((*c == 'P' || *c == 'Q') && !is_name)
            emit(t, "%s", scalar(number, number_of(fused->step[s].op, &fused->step[s].scalar, *c)));
        else
            emit(t, "%c", *c);
    }
}

/* The chain as a function of its inputs' values. */
lk_status emit_chain(text *t, const lki_cuda_chain *chain)
{
    const lk_fused *fused = &chain->fused;
    emit(t, "static __device__ inline C chain(");
    for (int k = 0; k < fused->input_count; k++) emit(t, "%sC v%d", k ? ", " : "", k);
    emit(t, ")\n{\n");
    for (int s = 0; s < fused->step_count; s++) {
        lk_op op = fused->step[s].op;
        const char *formula = formula_of(op, &fused->step[s].scalar);
        if (!formula)
            return lki_cuda_fail(LK_ERR_UNSUPPORTED, "the cuda engine has no elementwise kernel for op %d",
                                 (int)op);
        emit(t, "    C v%d = ", fused->input_count + s);
        emit_formula(t, fused, s, formula);
        emit(t, ";\n");
    }
    emit(t, "    return v%d;\n}\n", fused->input_count + fused->step_count - 1);
    return LK_OK;
}

void emit_types(text *t, const lki_cuda_chain *chain)
{
    bool raw = chain->moves;
    const char *type = raw ? raw_of(chain->out_dtype) : compute_type(chain);
    emit(t, "typedef %s C;\n#define F(name) name%s\n", type, !strcmp(type, "float") ? "##f" : "");
    emit(t, "typedef %s I;\n", chain->count < 0x7fffffff ? "unsigned" : "long long");
    emit(t, "typedef %s O;\n#define STORE(x) %s\n",
         raw ? raw_of(chain->out_dtype) : storage_of(chain->out_dtype),
         raw ? "(x)" : store_of(chain->out_dtype));
    for (int k = 0; k < chain->fused.input_count; k++)
        emit(t, "typedef %s S%d;\n#define LOAD%d(x) %s\n",
             raw ? raw_of(chain->in_dtype[k]) : storage_of(chain->in_dtype[k]), k, k,
             raw ? "(x)" : load_of(chain->in_dtype[k]));
}

bool repeats_everywhere(const lki_cuda_chain *chain, int input)
{
    for (int i = 0; i < chain->rank; i++)
        if (chain->stride[input][i]) return false;
    return true;
}

/* An input that is laid out as the output is: its offset is the output's. */
bool is_whole(const lki_cuda_chain *chain, int input)
{
    int64_t next = 1;
    for (int i = chain->rank - 1; i >= 0; i--) {
        if (chain->stride[input][i] != next) return false;
        next *= chain->dim[i];
    }
    return true;
}

/* p<k>: where input k's element for output i lies. The first axis needs no division, so its size may change
 * without another kernel. */
void emit_offsets(text *t, const lki_cuda_chain *chain)
{
    bool divides = false;
    for (int k = 0; k < chain->fused.input_count; k++) {
        bool whole = is_whole(chain, k);
        emit(t, "        I p%d = %s;\n", k, whole ? "i" : "0");
        divides = divides || (!whole && !repeats_everywhere(chain, k));
    }
    if (!divides) return;
    emit(t, "        I r = i, c;\n");
    for (int axis = chain->rank - 1; axis >= 0; axis--) {
        if (axis > 0)
            emit(t, "        c = r %% (I)%lldll;\n        r /= (I)%lldll;\n", (long long)chain->dim[axis],
                 (long long)chain->dim[axis]);
        else
            emit(t, "        c = r;\n");
        for (int k = 0; k < chain->fused.input_count; k++)
            if (chain->stride[k][axis] && !is_whole(chain, k))
                emit(t, "        p%d += c * (I)%lldll;\n", k, (long long)chain->stride[k][axis]);
    }
}

void emit_signature(text *t, const lki_cuda_chain *chain, const char *name)
{
    emit(t, "extern \"C\" __global__ void __launch_bounds__(%d) %s(O *out, ", (int)LKI_CUDA_BLOCK, name);
    for (int k = 0; k < chain->fused.input_count; k++) emit(t, "const S%d *a%d, ", k, k);
    emit(t,
         "long long count)\n{\n    I first = (I)blockIdx.x * %d + threadIdx.x, stride = (I)gridDim.x * %d;\n",
         (int)LKI_CUDA_BLOCK, (int)LKI_CUDA_BLOCK);
}

void emit_plain_body(text *t, const lki_cuda_chain *chain)
{
    emit_offsets(t, chain);
    emit(t, "        out[i] = STORE(%s", chain->moves ? "(" : "chain(");
    for (int k = 0; k < chain->fused.input_count; k++) emit(t, "%sLOAD%d(a%d[p%d])", k ? ", " : "", k, k, k);
    emit(t, "));\n    }\n");
}

void emit_plain(text *t, const lki_cuda_chain *chain)
{
    emit_signature(t, chain, "plain");
    emit(t, "    for (I i = first; i < (I)count; i += stride) {\n");
    emit_plain_body(t, chain);
    emit(t, "}\n");
}

/* Dense inputs are read 16 bytes at a time, inputs that repeat along the last axis once for all of them. What
 * is left over at the end can only be where there is one axis. */
void emit_vector(text *t, const lki_cuda_chain *chain)
{
    int count = chain->fused.input_count, width = chain->width;
    emit(t, "template <typename T> struct alignas(sizeof(T) * %d) pack { T at[%d]; };\n", width, width);
    emit_signature(t, chain, "vector");
    emit(t, "    for (I j = first; j < (I)(count / %d); j += stride) {\n        I i = j * %d;\n", width,
         width);
    emit_offsets(t, chain);
    for (int k = 0; k < count; k++) {
        if (lki_cuda_chain_is_dense(chain, k))
            emit(t, "        pack<S%d> x%d = *(const pack<S%d> *)(a%d + p%d);\n", k, k, k, k, k);
        else
            emit(t, "        S%d x%d = a%d[p%d];\n", k, k, k, k);
    }
    emit(t, "        pack<O> y;\n        _Pragma(\"unroll\")\n        for (int e = 0; e < %d; e++)\n", width);
    emit(t, "            y.at[e] = STORE(%s", chain->moves ? "(" : "chain(");
    for (int k = 0; k < count; k++)
        emit(t, "%sLOAD%d(x%d%s)", k ? ", " : "", k, k, lki_cuda_chain_is_dense(chain, k) ? ".at[e]" : "");
    emit(t, "));\n        *(pack<O> *)(out + i) = y;\n    }\n");
    if (chain->rank <= 1) {
        emit(t, "    for (I i = (I)(count / %d * %d) + first; i < (I)count; i += stride) {\n", width, width);
        emit_plain_body(t, chain);
    }
    emit(t, "}\n");
}

/* As wide as 16 bytes of the widest operand; 1 where a row is no multiple of that. */
int width_of(const lki_cuda_chain *chain)
{
    size_t nbytes = lki_cuda_dtype_nbytes(chain->out_dtype);
    for (int k = 0; k < chain->fused.input_count; k++) {
        size_t own = lki_cuda_dtype_nbytes(chain->in_dtype[k]);
        if (own > nbytes) nbytes = own;
    }
    int width = (int)(16 / nbytes);
    return chain->rank > 1 && chain->dim[chain->rank - 1] % width ? 1 : width;
}

/* Axis `axis` of an input as it looks broadcast to the output. */
int64_t broadcast_stride(const lk_tensor *in, int out_rank, int axis)
{
    int own = axis - (out_rank - in->shape.rank);
    if (own < 0 || in->shape.dim[own] == 1) return 0;
    return lki_cuda_span(in->shape, own + 1, in->shape.rank);
}

/* Whether an axis continues the one before it, in every input. */
bool continues(const lki_cuda_chain *chain, const int64_t *stride, int64_t dim)
{
    if (!chain->rank) return false;
    for (int k = 0; k < chain->fused.input_count; k++)
        if (chain->stride[k][chain->rank - 1] != stride[k] * dim) return false;
    return true;
}

} // namespace

void lki_cuda_chain_axes(lki_cuda_chain *chain, const lk_tensor *in, const lk_tensor *out)
{
    int inputs = chain->fused.input_count;
    chain->rank = 0;
    chain->count = lki_cuda_count(out);
    for (int axis = 0; axis < out->shape.rank; axis++) {
        int64_t dim = out->shape.dim[axis], stride[LK_MAX_FUSED_INPUTS];
        if (dim == 1) continue;
        for (int k = 0; k < inputs; k++) stride[k] = broadcast_stride(&in[k], out->shape.rank, axis);
        if (continues(chain, stride, dim))
            chain->dim[chain->rank - 1] *= dim;
        else
            chain->dim[chain->rank++] = dim;
        for (int k = 0; k < inputs; k++) chain->stride[k][chain->rank - 1] = stride[k];
    }
    chain->width = width_of(chain);
}

bool lki_cuda_chain_is_dense(const lki_cuda_chain *chain, int input)
{
    return chain->rank && chain->stride[input][chain->rank - 1] == 1;
}

lk_status lki_cuda_chain_write(const lki_cuda_chain *chain, char source[LKI_CUDA_SOURCE_NBYTES])
{
    text t = {source, 0, false};
    emit(&t, "%s", prelude);
    emit_types(&t, chain);
    if (!chain->moves) {
        if (!chain->integers) emit(&t, "%s", math);
        LKI_TRY(emit_chain(&t, chain));
    }
    emit_plain(&t, chain);
    if (chain->width > 1) emit_vector(&t, chain);
    return t.overflowed ? lki_cuda_fail(LK_ERR_UNSUPPORTED, "a chain of elementwise ops is too long") : LK_OK;
}
