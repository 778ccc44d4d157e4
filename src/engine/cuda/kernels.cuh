/* What our own kernels share: short floats as wide ones, vectors of 16 bytes, reductions of a warp and of a
 * block in a fixed order, and strided views small enough to be kernel parameters. */
#ifndef LKI_CUDA_KERNELS_CUH
#define LKI_CUDA_KERNELS_CUH

#include "engine/cuda/cuda.cuh"

#include <math.h>

/* ---- Elements ---- */

static __device__ inline float lki_cuda_widen(float x)
{
    return x;
}
static __device__ inline double lki_cuda_widen(double x)
{
    return x;
}
static __device__ inline float lki_cuda_widen(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}
static __device__ inline float lki_cuda_widen(__half x)
{
    return __half2float(x);
}

template <typename T> struct lki_cuda_narrow {
    static __device__ inline T of(float x)
    {
        return x;
    }
};
template <> struct lki_cuda_narrow<double> {
    static __device__ inline double of(double x)
    {
        return x;
    }
};
template <> struct lki_cuda_narrow<__nv_bfloat16> {
    static __device__ inline __nv_bfloat16 of(float x)
    {
        return __float2bfloat16_rn(x);
    }
};
template <> struct lki_cuda_narrow<__half> {
    static __device__ inline __half of(float x)
    {
        return __float2half_rn(x);
    }
};

/* Never part of a sum's rounding: the same bits in whatever kernel. */
static __device__ inline float lki_cuda_rounded_product(float a, float b)
{
    return __fmul_rn(a, b);
}
static __device__ inline double lki_cuda_rounded_product(double a, double b)
{
    return __dmul_rn(a, b);
}

/* N neighbours, moved by one instruction where they are 16 bytes. */
template <typename T, int N> struct alignas(sizeof(T) * N) lki_cuda_pack {
    T at[N];
};

/* An index of whatever integer dtype the user's labels have. */
static __device__ inline int64_t lki_cuda_index_at(const void *data, lk_dtype dtype, int64_t i)
{
    switch (dtype) {
    case LK_I32: return ((const int32_t *)data)[i];
    case LK_U8: return ((const uint8_t *)data)[i];
    default: return ((const int64_t *)data)[i];
    }
}

static inline bool lki_cuda_is_index(lk_dtype dtype)
{
    return dtype == LK_I64 || dtype == LK_I32 || dtype == LK_U8;
}

static inline bool lki_cuda_is_float(lk_dtype dtype)
{
    return dtype == LK_F32 || dtype == LK_F64 || dtype == LK_BF16 || dtype == LK_F16;
}

static inline bool lki_cuda_is_aligned(const void *data, size_t nbytes)
{
    return (uintptr_t)data % nbytes == 0;
}

/* ---- Reductions ---- */

/* `value` of the lane `distance` further on, for any plain struct. */
template <typename A> static __device__ inline A lki_cuda_shuffle_down(A value, int distance)
{
    constexpr int words = (sizeof(A) + 3) / 4;
    int word[words];
    memcpy(word, &value, sizeof value);
#pragma unroll
    for (int i = 0; i < words; i++) word[i] = __shfl_down_sync(0xffffffffu, word[i], distance);
    memcpy(&value, word, sizeof value);
    return value;
}

/* The sum, or the largest (a NaN never is), of a full warp, in every lane. */
template <typename W> static __device__ inline W lki_cuda_warp_sum(W value)
{
#pragma unroll
    for (int mask = 16; mask; mask >>= 1) value += __shfl_xor_sync(0xffffffffu, value, mask);
    return value;
}

static __device__ inline float lki_cuda_larger(float a, float b)
{
    return fmaxf(a, b);
}
static __device__ inline double lki_cuda_larger(double a, double b)
{
    return fmax(a, b);
}

template <typename W> static __device__ inline W lki_cuda_warp_max(W value)
{
#pragma unroll
    for (int mask = 16; mask; mask >>= 1)
        value = lki_cuda_larger(value, __shfl_xor_sync(0xffffffffu, value, mask));
    return value;
}

/* The same of a block of whole warps, at most 32 of them. Every thread of the block must call; the result is
 * in every thread. */
template <typename W> static __device__ inline W lki_cuda_block_sum(W value)
{
    __shared__ W partial[32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = (blockDim.x + 31) / 32;
    value = lki_cuda_warp_sum(value);
    __syncthreads(); /* an earlier sum may still be being read */
    if (lane == 0) partial[warp] = value;
    __syncthreads();
    return lki_cuda_warp_sum(lane < warps ? partial[lane] : (W)0);
}

template <typename W> static __device__ inline W lki_cuda_block_max(W value)
{
    __shared__ W partial[32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = (blockDim.x + 31) / 32;
    value = lki_cuda_warp_max(value);
    __syncthreads();
    if (lane == 0) partial[warp] = value;
    __syncthreads();
    return lki_cuda_warp_max(lane < warps ? partial[lane] : (W)-INFINITY);
}

/* ---- Views ---- */

/* Axes with strides in elements; what was mergeable is merged. */
typedef struct lki_cuda_view {
    int rank;
    int64_t dim[LK_MAX_DIMS], stride[LK_MAX_DIMS];
} lki_cuda_view;

static inline void lki_cuda_view_add(lki_cuda_view *view, int64_t dim, int64_t stride)
{
    if (dim == 1) return;
    int last = view->rank - 1;
    if (last >= 0 && view->stride[last] == stride * dim) {
        view->dim[last] *= dim;
        view->stride[last] = stride;
        return;
    }
    view->dim[view->rank] = dim;
    view->stride[view->rank++] = stride;
}

static inline int64_t lki_cuda_view_count(const lki_cuda_view *view)
{
    int64_t count = 1;
    for (int i = 0; i < view->rank; i++) count *= view->dim[i];
    return count;
}

/* The strides of a dense tensor of this shape. */
static inline void lki_cuda_strides(lk_shape shape, int64_t stride[LK_MAX_DIMS])
{
    int64_t next = 1;
    for (int i = shape.rank - 1; i >= 0; i--) {
        stride[i] = next;
        next *= shape.dim[i];
    }
}

/* Where element `index` of a view lies. I is unsigned where that is enough: its divisions are several times
 * cheaper. */
template <typename I> static __device__ inline I lki_cuda_offset(const lki_cuda_view &view, I index)
{
    I offset = 0;
    for (int i = view.rank - 1; i > 0; i--) {
        I dim = (I)view.dim[i], rest = index / dim;
        offset += (index - rest * dim) * (I)view.stride[i];
        index = rest;
    }
    return view.rank ? offset + index * (I)view.stride[0] : 0;
}

#endif
