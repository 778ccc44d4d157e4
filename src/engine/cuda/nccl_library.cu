/* Opening NCCL, and what makes its maximum and minimum keep a NaN. */
#include "engine/cuda/nccl.cuh"

#include <dlfcn.h>
#include <limits>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static lki_nccl library;
static char reason[256]; /* why it could not be opened; empty where it was */
static pthread_once_t library_once = PTHREAD_ONCE_INIT;

static void open_library(void)
{
    /* Connections are made when ranks join, not when a collective first needs one: starting a collective
     * must not wait for a peer, least of all while a program is recorded. */
    setenv("NCCL_RUNTIME_CONNECT", "0", 0);
    void *handle = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        snprintf(reason, sizeof reason, "NCCL is not installed here: %s", dlerror());
        return;
    }
#define X(name)                                                                                              \
    library.name = (decltype(library.name))dlsym(handle, "nccl" #name);                                      \
    if (!library.name) snprintf(reason, sizeof reason, "the NCCL that is installed here has no nccl" #name);
    LKI_NCCL_FUNCTION_LIST(X)
#undef X
}

lk_status lki_nccl_open(const lki_nccl **out)
{
    pthread_once(&library_once, open_library);
    *out = reason[0] ? NULL : &library;
    return reason[0] ? lki_cuda_fail(LK_ERR_UNSUPPORTED, "%s", reason) : LK_OK;
}

int lki_nccl_version(void)
{
    int version = 0;
    pthread_once(&library_once, open_library); /* its absence is no failure: no sentence */
    return !reason[0] && library.GetVersion(&version) == ncclSuccess ? version : 0;
}

/* ---- Keys ---- */

static __device__ inline int bits_of(float value)
{
    return __float_as_int(value);
}
static __device__ inline long long bits_of(double value)
{
    return __double_as_longlong(value);
}
static __device__ inline float value_of(int bits)
{
    return __int_as_float(bits);
}
static __device__ inline double value_of(long long bits)
{
    return __longlong_as_double(bits);
}

/* A float's bits without their sign count up with its magnitude. Turned over below zero they do so with the
 * float itself, and turning them over again brings it back. The two ends of the integers are the bits of
 * NaNs. */
template <typename K> static __device__ inline K turned(K bits)
{
    return bits >= 0 ? bits : (K)(~bits ^ ((K)1 << (sizeof(K) * 8 - 1))); /* all bits but the sign */
}

template <typename T, typename K>
static __global__ void encode(K *keys, const T *floats, int64_t count, K nan)
{
    using wide = typename lki_cuda_wide<T>::type;
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
        wide value = (wide)floats[i];
        keys[i] = value != value ? nan : turned(bits_of(value));
    }
}

template <typename T, typename K> static __global__ void decode(T *floats, const K *keys, int64_t count)
{
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride)
        floats[i] = (T)value_of(turned(keys[i]));
}

static int grid_of(int64_t count)
{
    int64_t blocks = (count + LKI_CUDA_BLOCK - 1) / LKI_CUDA_BLOCK;
    return (int)(blocks < 2048 ? blocks : 2048);
}

template <typename T> struct key_of {
    using type = int;
};
template <> struct key_of<double> {
    using type = long long;
};

template <typename T>
static void launch_encode(void *keys, const void *floats, int64_t count, lk_reduce reduce,
                          cudaStream_t stream)
{
    using K = typename key_of<T>::type;
    K nan = reduce == LK_REDUCE_MAX ? std::numeric_limits<K>::max() : std::numeric_limits<K>::min();
    encode<T, K><<<grid_of(count), LKI_CUDA_BLOCK, 0, stream>>>((K *)keys, (const T *)floats, count, nan);
}

template <typename T>
static void launch_decode(void *floats, const void *keys, int64_t count, cudaStream_t stream)
{
    using K = typename key_of<T>::type;
    decode<T, K><<<grid_of(count), LKI_CUDA_BLOCK, 0, stream>>>((T *)floats, (const K *)keys, count);
}

lk_status lki_nccl_encode(void *keys, const void *floats, int64_t count, lk_dtype dtype, lk_reduce reduce,
                          cudaStream_t stream)
{
    if (count == 0) return LK_OK;
    LKI_CUDA_FLOAT_SWITCH(dtype, T, launch_encode<T>(keys, floats, count, reduce, stream))
    LKI_LAUNCHED();
    return LK_OK;
}

lk_status lki_nccl_decode(void *floats, const void *keys, int64_t count, lk_dtype dtype, cudaStream_t stream)
{
    if (count == 0) return LK_OK;
    LKI_CUDA_FLOAT_SWITCH(dtype, T, launch_decode<T>(floats, keys, count, stream))
    LKI_LAUNCHED();
    return LK_OK;
}
