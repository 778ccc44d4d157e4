/* Softmax and its logarithm along one axis, and their gradients from (dy, y).
 *
 * x is seen as lines of `length` elements, `inner` apart. Short lines of neighbours are kept in the registers
 * of a warp, longer ones are read again by a block; where the elements of a line lie apart, neighbouring
 * threads take neighbouring lines. */
#include "engine/cuda/kernels.cuh"

namespace
{

struct lines {
    int64_t count, length, inner;
};

/* ---- What each op does with a line. `first` and `second` are its operands: x, or dy and y ---- */

enum { SOFTMAX, LOG_SOFTMAX, SOFTMAX_GRAD, LOG_SOFTMAX_GRAD };

template <typename W> __device__ W take_exp(W x)
{
    return exp(x);
}

/* What an element adds to the line's sum: exp(x - largest); dy y; dy. */
template <int OP, typename W> __device__ W term(W first, W second, W largest)
{
    if (OP == SOFTMAX_GRAD) return first * second;
    if (OP == LOG_SOFTMAX_GRAD) return first;
    return take_exp(first - largest);
}

/* exp(x - largest) / sum; (x - largest) - log sum; y (dy - sum); dy - exp(y) sum. */
template <int OP, typename W> __device__ W result(W first, W second, W largest, W sum, W log_sum)
{
    if (OP == SOFTMAX) return take_exp(first - largest) / sum;
    if (OP == LOG_SOFTMAX) return (first - largest) - log_sum;
    if (OP == SOFTMAX_GRAD) return second * (first - sum);
    return first - take_exp(second) * sum;
}

template <int OP> __device__ constexpr bool is_forward(void)
{
    return OP == SOFTMAX || OP == LOG_SOFTMAX;
}

template <int OP, typename W> __device__ W log_of(W sum)
{
    return OP == LOG_SOFTMAX ? log(sum) : (W)0;
}

template <int OP, typename T>
__device__ typename lki_cuda_wide<T>::type second_at(const T *second, int64_t at)
{
    if (is_forward<OP>()) return 0;
    return lki_cuda_widen(second[at]);
}

/* ---- A warp a line of neighbours, 32 ITEMS long at most ---- */

template <int OP, int ITEMS, typename T>
__global__ void __launch_bounds__(LKI_CUDA_BLOCK)
    warp_kernel(lines l, const T *first, const T *second, T *out)
{
    using W = typename lki_cuda_wide<T>::type;
    int64_t line = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    int lane = threadIdx.x % 32;
    if (line >= l.count) return;
    int64_t base = line * l.length;
    W a[ITEMS], b[ITEMS], largest = (W)-INFINITY, sum = 0;
#pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        int j = lane + 32 * k;
        a[k] = j < l.length ? (W)lki_cuda_widen(first[base + j]) : (W)0;
        b[k] = j < l.length ? second_at<OP>(second, base + j) : (W)0;
        if (j < l.length) largest = lki_cuda_larger(largest, a[k]);
    }
    if (is_forward<OP>()) largest = lki_cuda_warp_max(largest);
#pragma unroll
    for (int k = 0; k < ITEMS; k++)
        if (lane + 32 * k < l.length) sum += term<OP>(a[k], b[k], largest);
    sum = lki_cuda_warp_sum(sum);
    W log_sum = log_of<OP>(sum);
#pragma unroll
    for (int k = 0; k < ITEMS; k++)
        if (lane + 32 * k < l.length)
            out[base + lane + 32 * k] = lki_cuda_narrow<T>::of(result<OP>(a[k], b[k], largest, sum, log_sum));
}

/* ---- A block a line of neighbours ---- */

template <int OP, typename T>
__global__ void __launch_bounds__(1024) block_kernel(lines l, const T *first, const T *second, T *out)
{
    using W = typename lki_cuda_wide<T>::type;
    int64_t base = blockIdx.x * l.length;
    W largest = (W)-INFINITY, sum = 0;
    if (is_forward<OP>()) {
        for (int64_t j = threadIdx.x; j < l.length; j += blockDim.x)
            largest = lki_cuda_larger(largest, lki_cuda_widen(first[base + j]));
        largest = lki_cuda_block_max(largest);
    }
    for (int64_t j = threadIdx.x; j < l.length; j += blockDim.x)
        sum += term<OP>((W)lki_cuda_widen(first[base + j]), second_at<OP>(second, base + j), largest);
    sum = lki_cuda_block_sum(sum);
    W log_sum = log_of<OP>(sum);
    for (int64_t j = threadIdx.x; j < l.length; j += blockDim.x)
        out[base + j] = lki_cuda_narrow<T>::of(result<OP>(
            (W)lki_cuda_widen(first[base + j]), second_at<OP>(second, base + j), largest, sum, log_sum));
}

/* ---- Lines whose elements lie apart: 32 of them a block, 8 threads each ---- */

enum { LINES = 32, PARTS = 8 };

template <int OP, typename T>
__global__ void __launch_bounds__(LINES *PARTS) apart_kernel(lines l, const T *first, const T *second, T *out)
{
    using W = typename lki_cuda_wide<T>::type;
    __shared__ W shared[2][PARTS][LINES];
    int64_t line = (int64_t)blockIdx.x * LINES + threadIdx.x, begin = threadIdx.y;
    int64_t base = line / l.inner * l.length * l.inner + line % l.inner;
    if (line >= l.count) begin = l.length; /* takes part in nothing but the waiting */
    W largest = (W)-INFINITY, sum = 0;
    for (int64_t j = begin; is_forward<OP>() && j < l.length; j += PARTS)
        largest = lki_cuda_larger(largest, lki_cuda_widen(first[base + j * l.inner]));
    shared[0][threadIdx.y][threadIdx.x] = largest;
    __syncthreads();
    for (int k = 0; k < PARTS; k++) largest = lki_cuda_larger(largest, shared[0][k][threadIdx.x]);
    for (int64_t j = begin; j < l.length; j += PARTS) {
        int64_t at = base + j * l.inner;
        sum += term<OP>((W)lki_cuda_widen(first[at]), second_at<OP>(second, at), largest);
    }
    shared[1][threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    sum = 0;
    for (int k = 0; k < PARTS; k++) sum += shared[1][k][threadIdx.x];
    W log_sum = log_of<OP>(sum);
    for (int64_t j = begin; j < l.length; j += PARTS) {
        int64_t at = base + j * l.inner;
        out[at] = lki_cuda_narrow<T>::of(
            result<OP>((W)lki_cuda_widen(first[at]), second_at<OP>(second, at), largest, sum, log_sum));
    }
}

/* ---- Launches ---- */

struct softmax_state {
    lki_cuda *cuda;
    lines l;
};

template <int OP, typename T>
void launch_warps(const lines &l, const T *first, const T *second, T *out, cudaStream_t stream)
{
    constexpr int each = LKI_CUDA_BLOCK / 32;
    unsigned grid = (unsigned)((l.count + each - 1) / each);
    if (l.length <= 32)
        warp_kernel<OP, 1, T><<<grid, LKI_CUDA_BLOCK, 0, stream>>>(l, first, second, out);
    else if (l.length <= 128)
        warp_kernel<OP, 4, T><<<grid, LKI_CUDA_BLOCK, 0, stream>>>(l, first, second, out);
    else
        warp_kernel<OP, 16, T><<<grid, LKI_CUDA_BLOCK, 0, stream>>>(l, first, second, out);
}

enum { WARP_LENGTH = 512 };

template <int OP, typename T> lk_status launch(const lk_call *call)
{
    const softmax_state *state = (const softmax_state *)call->state;
    const lines &l = state->l;
    const T *first = lki_cuda_in<T>(call, 0), *second = lki_cuda_in<T>(call, 1);
    T *out = lki_cuda_out<T>(call, 0);
    cudaStream_t stream = state->cuda->compute;
    if (l.inner > 1)
        apart_kernel<OP, T><<<(unsigned)((l.count + LINES - 1) / LINES), dim3(LINES, PARTS), 0, stream>>>(
            l, first, second, out);
    else if (l.length <= WARP_LENGTH)
        launch_warps<OP>(l, first, second, out, stream);
    else
        block_kernel<OP, T>
            <<<(unsigned)l.count, l.length <= 4096 ? 256 : 1024, 0, stream>>>(l, first, second, out);
    LKI_LAUNCHED();
    return LK_OK;
}

lk_status run(const lk_call *call)
{
    const softmax_state *state = (const softmax_state *)call->state;
    if (!state->l.count || !state->l.length) return LK_OK;
    LKI_CUDA_FLOAT_SWITCH(call->in[0].dtype, T, {
        switch (call->op) {
        case LK_OP_SOFTMAX: return launch<SOFTMAX, T>(call);
        case LK_OP_LOG_SOFTMAX: return launch<LOG_SOFTMAX, T>(call);
        case LK_OP_SOFTMAX_GRAD: return launch<SOFTMAX_GRAD, T>(call);
        default: return launch<LOG_SOFTMAX_GRAD, T>(call);
        }
    })
    return LK_OK;
}

} // namespace

lk_status lki_cuda_prepare_softmax(lki_cuda *cuda, lk_call *call)
{
    lk_dtype dtype = call->in[0].dtype;
    lk_shape shape = call->in[0].shape;
    bool same = call->out[0].dtype == dtype && (call->input_count < 2 || call->in[1].dtype == dtype);
    if (!lki_cuda_is_float(dtype) || !same)
        return lki_cuda_fail(LK_ERR_UNSUPPORTED, "the cuda engine has no kernel for softmax of %s",
                             lki_cuda_dtype_name(dtype));
    softmax_state *state = (softmax_state *)lki_cuda_new_state(call, sizeof *state);
    if (!state) return LK_ERR_NOMEM;
    state->cuda = cuda;
    state->l.count = state->l.length = state->l.inner = 1;
    if (shape.rank) {
        int axis = call->attr->axis.axis;
        state->l.inner = lki_cuda_span(shape, axis + 1, shape.rank);
        state->l.count = lki_cuda_span(shape, 0, axis) * state->l.inner;
        state->l.length = shape.dim[axis];
    }
    call->run = run;
    return LK_OK;
}
