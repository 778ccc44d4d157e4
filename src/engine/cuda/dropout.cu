/* Dropout, and random numbers, drawn where they are used: see philox.cuh. */
#include "engine/cuda/kernels.cuh"
#include "engine/cuda/philox.cuh"

namespace
{

struct dropout_state {
    lki_cuda *cuda;
    unsigned number; /* of the call, among all that draw */
    lk_random_attr random;
    unsigned long long threshold; /* an element is kept where 32 random bits lie below */
    double scale;
};

/* Four elements a thread at a time: as many as one counter has numbers for. */
template <typename T>
__global__ void __launch_bounds__(LKI_CUDA_BLOCK)
    dropout_kernel(const lki_cuda_live *live, dropout_state state, int64_t count, const T *x, T *y,
                   unsigned char *mask)
{
    using W = typename lki_cuda_wide<T>::type;
    uint2 key = make_uint2((unsigned)live->draw, (unsigned)(live->draw >> 32));
    int64_t stride = (int64_t)gridDim.x * LKI_CUDA_BLOCK;
    for (int64_t j = (int64_t)blockIdx.x * LKI_CUDA_BLOCK + threadIdx.x; j * 4 < count; j += stride) {
        lki_cuda_quad random = lki_cuda_philox(key, {{(unsigned)j, (unsigned)(j >> 32), state.number, 0}});
#pragma unroll
        for (int k = 0; k < 4; k++) {
            int64_t i = j * 4 + k;
            if (i >= count) break;
            bool keep = random.at[k] < state.threshold;
            if (y) y[i] = lki_cuda_narrow<T>::of(keep ? lki_cuda_widen(x[i]) * (W)state.scale : (W)0);
            if (mask) mask[i] = keep;
        }
    }
}

/* dx = dy mask / (1 - p) */
template <typename T>
__global__ void __launch_bounds__(LKI_CUDA_BLOCK)
    grad_kernel(int64_t count, double scale, const T *dy, const unsigned char *mask, T *dx)
{
    using W = typename lki_cuda_wide<T>::type;
    int64_t stride = (int64_t)gridDim.x * LKI_CUDA_BLOCK;
    for (int64_t i = (int64_t)blockIdx.x * LKI_CUDA_BLOCK + threadIdx.x; i < count; i += stride)
        dx[i] = lki_cuda_narrow<T>::of(mask[i] ? lki_cuda_widen(dy[i]) * (W)scale : (W)0);
}

/* Two elements a thread at a time, of two words each: 53 bits of the first as a number in [0, 1), and for the
 * normal distribution Box and Muller's formula. */
template <typename T>
__global__ void __launch_bounds__(LKI_CUDA_BLOCK)
    random_kernel(const lki_cuda_live *live, dropout_state state, int64_t count, T *y)
{
    uint2 key = make_uint2((unsigned)live->draw, (unsigned)(live->draw >> 32));
    int64_t stride = (int64_t)gridDim.x * LKI_CUDA_BLOCK;
    double a = state.random.a, b = state.random.b;
    for (int64_t j = (int64_t)blockIdx.x * LKI_CUDA_BLOCK + threadIdx.x; j * 2 < count; j += stride) {
        lki_cuda_quad random = lki_cuda_philox(key, {{(unsigned)j, (unsigned)(j >> 32), state.number, 1}});
        for (int k = 0; k < 2; k++) {
            int64_t i = j * 2 + k;
            if (i >= count) break;
            unsigned high = random.at[2 * k], low = random.at[2 * k + 1];
            double u = (high * 2097152.0 + (low >> 11)) * 0x1p-53, value = a + u * (b - a);
            if (state.random.kind == LK_RANDOM_NORMAL)
                value =
                    a + b * sqrt(-2 * log((high + 1.0) * 0x1p-32)) * cos(6.283185307179586 * (low * 0x1p-32));
            if (state.random.kind == LK_RANDOM_BERNOULLI) value = u < a;
            T drawn = (T)value; /* which may round up to the end that is excluded */
            if (state.random.kind == LK_RANDOM_UNIFORM && drawn >= (T)b) drawn = (T)a;
            y[i] = drawn;
        }
    }
}

lk_status run_random(const lk_call *call)
{
    const dropout_state *state = (const dropout_state *)call->state;
    int64_t count = lki_cuda_count(&call->out[0]);
    if (!count || !call->out[0].data) return LK_OK;
    int grid = lki_cuda_grid(state->cuda, (count + 1) / 2);
    cudaStream_t stream = state->cuda->compute;
    if (call->out[0].dtype == LK_F32)
        random_kernel<float><<<grid, LKI_CUDA_BLOCK, 0, stream>>>(state->cuda->live, *state, count,
                                                                  lki_cuda_out<float>(call, 0));
    else
        random_kernel<double><<<grid, LKI_CUDA_BLOCK, 0, stream>>>(state->cuda->live, *state, count,
                                                                   lki_cuda_out<double>(call, 0));
    LKI_LAUNCHED();
    return LK_OK;
}

lk_status prepare_random(lki_cuda *cuda, lk_call *call)
{
    lk_dtype dtype = call->out[0].dtype;
    if (dtype != LK_F32 && dtype != LK_F64)
        return lki_cuda_fail(LK_ERR_UNSUPPORTED, "the cuda engine draws f32 and f64, not %s",
                             lki_cuda_dtype_name(dtype));
    dropout_state *state = (dropout_state *)lki_cuda_new_state(call, sizeof *state);
    if (!state) return LK_ERR_NOMEM;
    state->cuda = cuda;
    state->random = call->attr->random;
    state->number = (unsigned)++cuda->dropout_count;
    call->run = run_random;
    return LK_OK;
}

template <typename T> lk_status launch(const lk_call *call)
{
    const dropout_state *state = (const dropout_state *)call->state;
    int64_t count = lki_cuda_count(&call->in[0]);
    cudaStream_t stream = state->cuda->compute;
    if (call->op == LK_OP_DROPOUT)
        dropout_kernel<T><<<lki_cuda_grid(state->cuda, (count + 3) / 4), LKI_CUDA_BLOCK, 0, stream>>>(
            state->cuda->live, *state, count, lki_cuda_in<T>(call, 0), lki_cuda_out<T>(call, 0),
            lki_cuda_out<unsigned char>(call, 1));
    else
        grad_kernel<T><<<lki_cuda_grid(state->cuda, count), LKI_CUDA_BLOCK, 0, stream>>>(
            count, state->scale, lki_cuda_in<T>(call, 0), lki_cuda_in<unsigned char>(call, 1),
            lki_cuda_out<T>(call, 0));
    LKI_LAUNCHED();
    return LK_OK;
}

lk_status run(const lk_call *call)
{
    if (!lki_cuda_count(&call->in[0])) return LK_OK;
    LKI_CUDA_FLOAT_SWITCH(call->in[0].dtype, T, return launch<T>(call))
    return LK_OK;
}

bool is_supported(const lk_call *call)
{
    lk_dtype dtype = call->in[0].dtype;
    if (!lki_cuda_is_float(dtype) || (call->out[0].data && call->out[0].dtype != dtype)) return false;
    lk_dtype mask = call->op == LK_OP_DROPOUT ? call->out[1].dtype : call->in[1].dtype;
    return mask == LK_U8 || mask == LK_BOOL || (call->op == LK_OP_DROPOUT && !lki_cuda_out<void>(call, 1));
}

} // namespace

/* As in PyTorch nothing is drawn where p is 0 or 1: all random bits lie below 2^32, none below 0. */
lk_status lki_cuda_prepare_dropout(lki_cuda *cuda, lk_call *call)
{
    if (call->op == LK_OP_RANDOM) return prepare_random(cuda, call);
    double p = call->attr->dropout.p;
    if (!is_supported(call))
        return lki_cuda_fail(LK_ERR_UNSUPPORTED, "the cuda engine has no kernel for dropout of %s",
                             lki_cuda_dtype_name(call->in[0].dtype));
    dropout_state *state = (dropout_state *)lki_cuda_new_state(call, sizeof *state);
    if (!state) return LK_ERR_NOMEM;
    state->cuda = cuda;
    state->threshold = p <= 0 ? 1ull << 32 : p >= 1 ? 0 : (unsigned long long)((1 - p) * 4294967296.0);
    state->scale = p < 1 ? 1 / (1 - p) : 0;
    if (call->op == LK_OP_DROPOUT && p > 0 && p < 1) state->number = (unsigned)++cuda->dropout_count;
    call->run = run;
    return LK_OK;
}
