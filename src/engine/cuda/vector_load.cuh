/* Neighbours of f32 or a shorter dtype on their way through registers: loaded at once, made wide and narrow
 * two by two. One by one the compiler keeps each half of a pair in a register of its own.
 *
 * Life: plain values. Thread rule: none. */
#ifndef LKI_CUDA_VECTOR_LOAD_CUH
#define LKI_CUDA_VECTOR_LOAD_CUH

#include "engine/cuda/cuda.cuh"

#ifdef __CUDACC__
template <int V> struct lki_cuda_wides {
    float at[V];
};

static __device__ inline float2 lki_cuda_widen_pair(__nv_bfloat162 x)
{
    return __bfloat1622float2(x);
}
static __device__ inline float2 lki_cuda_widen_pair(__half2 x)
{
    return __half22float2(x);
}
static __device__ inline float2 lki_cuda_widen_pair(float2 x)
{
    return x;
}
static __device__ inline void lki_cuda_narrow_pair(float a, float b, float2 *to)
{
    *to = make_float2(a, b);
}
static __device__ inline void lki_cuda_narrow_pair(float a, float b, __nv_bfloat162 *to)
{
    *to = __floats2bfloat162_rn(a, b);
}
static __device__ inline void lki_cuda_narrow_pair(float a, float b, __half2 *to)
{
    *to = __floats2half2_rn(a, b);
}
template <typename T> struct lki_cuda_pair_of {
    using type = __half2;
};
template <> struct lki_cuda_pair_of<float> {
    using type = float2;
};
template <> struct lki_cuda_pair_of<__nv_bfloat16> {
    using type = __nv_bfloat162;
};

/* V neighbours as they lie in memory. */
template <typename T, int V> struct __align__(sizeof(T) * V) lki_cuda_bits
{
    typename lki_cuda_pair_of<T>::type at[V / 2];
};
template <typename T> struct lki_cuda_bits<T, 1> {
    T at[1];
};

template <typename T, int V> static __device__ inline lki_cuda_bits<T, V> lki_cuda_load_bits(const T *from)
{
    return *(const lki_cuda_bits<T, V> *)from;
}

template <typename T, int V>
static __device__ inline lki_cuda_wides<V> lki_cuda_widen_all(const lki_cuda_bits<T, V> &x)
{
    lki_cuda_wides<V> to;
    if constexpr (V == 1) {
        to.at[0] = float(x.at[0]);
    } else {
#pragma unroll
        for (int e = 0; e < V / 2; e++) {
            float2 two = lki_cuda_widen_pair(x.at[e]);
            to.at[2 * e] = two.x;
            to.at[2 * e + 1] = two.y;
        }
    }
    return to;
}

template <typename T, int V>
static __device__ inline lki_cuda_bits<T, V> lki_cuda_narrow_all(const lki_cuda_wides<V> &x)
{
    lki_cuda_bits<T, V> to;
    if constexpr (V == 1) {
        to.at[0] = T(x.at[0]);
    } else {
#pragma unroll
        for (int e = 0; e < V / 2; e++) lki_cuda_narrow_pair(x.at[2 * e], x.at[2 * e + 1], &to.at[e]);
    }
    return to;
}

/* Past what lies in the cache: a long tensor would only push out what is read next. */
template <typename T, int V>
static __device__ inline void lki_cuda_store_past(T *to, const lki_cuda_bits<T, V> &x)
{
    if constexpr (sizeof x == sizeof(uint4)) {
        uint4 word;
        memcpy(&word, &x, sizeof word);
        __stcs((uint4 *)to, word);
    } else {
        *(lki_cuda_bits<T, V> *)to = x;
    }
}
#endif

#endif
