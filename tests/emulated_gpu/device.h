/* What nvcc gives to kernels, for a C++ compiler of the host. Included before everything else in the
 * rewritten sources of the engine.
 *
 * The types, and the arithmetic of short floats, are those of the CUDA headers. A variable in shared memory
 * is a static one, in a section of its own: one block at a time runs, and one that waits for others has what
 * lies there kept. (Not so what a template has there: GCC forgets the section.) */
#ifndef LKT_GPU_DEVICE_H
#define LKT_GPU_DEVICE_H

#include "gpu.h"

#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cudnn.h>
#include <nccl.h>
#include <nvrtc.h>

#include <math.h>
#include <string.h>

#include <cmath>
#include <tuple>
#include <type_traits>

namespace lkt_gpu
{

template <typename T> struct same {
    typedef T type;
};

/* As a launch does, copies the arguments at once, each as the kernel's parameter. */
template <typename... P>
void launch(const char *name, void (*kernel)(P...), const config &how, typename same<P>::type... arguments)
{
    std::tuple<P...> kept(arguments...);
    enqueue_grid(name, how, [kernel, kept] { std::apply(kernel, kept); });
}

/* cudaLaunchKernelEx. Its attributes allow more orders of work than one: this is one of them. */
template <typename... P>
cudaError_t launch_with(const cudaLaunchConfig_t *how, void (*kernel)(P...),
                        typename same<P>::type... arguments)
{
    config plain(how->gridDim, how->blockDim, how->dynamicSmemBytes, how->stream);
    launch("a kernel with attributes", kernel, plain, arguments...);
    return cudaPeekAtLastError();
}

} // namespace lkt_gpu

#undef __shared__
#undef __launch_bounds__
#undef __global__
#undef __device__
#undef __host__
#undef __grid_constant__
#undef __restrict__
#define __shared__ static __attribute__((section("lkt_shared")))
#define __launch_bounds__(...)
#define __global__
#define __device__
#define __host__
#define __grid_constant__
#define threadIdx          lkt_gpu::here.thread
#define blockIdx           lkt_gpu::here.block
#define blockDim           lkt_gpu::here.block_size
#define gridDim            lkt_gpu::here.grid_size
#define cudaLaunchKernelEx lkt_gpu::launch_with
#define LKI_CUDA_SPIN()    lkt_gpu::spin()
#define __CUDACC__         1 /* the CUDA headers have been read: this is for our own */

namespace lkt_gpu
{

void *dynamic_shared(void);

/* Until another block has run. */
void spin(void);

/* Every thread of the block; `line` tells barriers apart. Returns in how many threads `truth` was true. */
int wait_for_block(int line, bool truth = false);

enum { SLOT_NBYTES = 16 };

/* Shows `nbytes` to the other lanes of the warp: the slots of all of them, the own lane in *lane. */
const unsigned char *exchange(const void *mine, size_t nbytes, unsigned mask, int *lane);

/* What lane `from` showed. */
template <typename T> T take(const unsigned char *slots, int from)
{
    T value;
    memcpy(&value, slots + from * SLOT_NBYTES, sizeof value);
    return value;
}

} // namespace lkt_gpu

/* ---- Threads of a block and of a warp ---- */

#define __syncthreads()            ((void)lkt_gpu::wait_for_block(__LINE__))
#define __syncthreads_count(truth) lkt_gpu::wait_for_block(__LINE__, (truth) != 0)
#define __syncthreads_or(truth)    (lkt_gpu::wait_for_block(__LINE__, (truth) != 0) > 0)
#define __syncthreads_and(truth)   (lkt_gpu::wait_for_block(__LINE__, (truth) == 0) == 0)

template <typename T> static inline T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32)
{
    int lane;
    const unsigned char *slots = lkt_gpu::exchange(&value, sizeof value, mask, &lane);
    int from = lane ^ lanes;
    return lkt_gpu::take<T>(slots, from / width == lane / width ? from : lane);
}

template <typename T> static inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32)
{
    int lane;
    const unsigned char *slots = lkt_gpu::exchange(&value, sizeof value, mask, &lane);
    int from = lane + (int)by;
    return lkt_gpu::take<T>(slots, from / width == lane / width ? from : lane);
}

template <typename T> static inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32)
{
    int lane;
    const unsigned char *slots = lkt_gpu::exchange(&value, sizeof value, mask, &lane);
    return lkt_gpu::take<T>(slots, lane % width >= (int)by ? lane - (int)by : lane);
}

template <typename T> static inline T __shfl_sync(unsigned mask, T value, int from, int width = 32)
{
    int lane;
    const unsigned char *slots = lkt_gpu::exchange(&value, sizeof value, mask, &lane);
    return lkt_gpu::take<T>(slots, lane / width * width + from % width);
}

static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    int lane;
    char nothing = 0;
    lkt_gpu::exchange(&nothing, 1, mask, &lane);
}

static inline unsigned __ballot_sync(unsigned mask, int truth)
{
    int lane;
    unsigned char mine = truth != 0;
    const unsigned char *slots = lkt_gpu::exchange(&mine, 1, mask, &lane);
    unsigned all = 0;
    for (int i = 0; i < 32; i++) all |= (unsigned)lkt_gpu::take<unsigned char>(slots, i) << i;
    return all;
}

static inline int __any_sync(unsigned mask, int truth)
{
    return __ballot_sync(mask, truth) != 0;
}

static inline int __all_sync(unsigned mask, int truth)
{
    return __ballot_sync(mask, truth) == 0xffffffffu;
}

/* ---- Memory; one thread at a time runs, so that everything is atomic ---- */

template <typename T> static inline T __ldg(const T *at)
{
    return *at;
}

template <typename T> static inline T __ldcg(const T *at)
{
    return *at;
}

template <typename T> static inline T __ldcs(const T *at)
{
    return *at;
}

template <typename T> static inline void __stcs(T *at, T value)
{
    *at = value;
}

template <typename T, typename V> static inline T atomicMin(T *at, V value)
{
    T before = *at;
    if ((T)value < before) *at = (T)value;
    return before;
}

template <typename T, typename V> static inline T atomicMax(T *at, V value)
{
    T before = *at;
    if ((T)value > before) *at = (T)value;
    return before;
}

template <typename T, typename V> static inline T atomicAdd(T *at, V value)
{
    T before = *at;
    *at = (T)(before + (T)value);
    return before;
}

template <typename T, typename V> static inline T atomicOr(T *at, V value)
{
    T before = *at;
    *at = (T)(before | (T)value);
    return before;
}

template <typename T, typename V> static inline T atomicExch(T *at, V value)
{
    T before = *at;
    *at = (T)value;
    return before;
}

template <typename T, typename C, typename V> static inline T atomicCAS(T *at, C expected, V value)
{
    T before = *at;
    if (before == (T)expected) *at = (T)value;
    return before;
}

static inline void __threadfence(void)
{
}

/* ---- Numbers ---- */

using std::isfinite;
using std::isinf;
using std::isnan;

template <typename A, typename B> static inline auto min(A a, B b) -> decltype(a + b)
{
    return a < b ? a : b;
}
template <typename A, typename B> static inline auto max(A a, B b) -> decltype(a + b)
{
    return a > b ? a : b;
}

template <typename To, typename From> static inline To lkt_gpu_bits(From from)
{
    static_assert(sizeof(To) == sizeof(From), "the same bits");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
#define __float_as_int       lkt_gpu_bits<int, float>
#define __int_as_float       lkt_gpu_bits<float, int>
#define __float_as_uint      lkt_gpu_bits<unsigned, float>
#define __uint_as_float      lkt_gpu_bits<float, unsigned>
#define __double_as_longlong lkt_gpu_bits<long long, double>
#define __longlong_as_double lkt_gpu_bits<double, long long>
#define __popc               __builtin_popcount
#define __fdiv_rn(a, b)      ((float)(a) / (float)(b))
#define __fsub_rn(a, b)      ((float)(a) - (float)(b))
#define __fadd_rn(a, b)      ((float)(a) + (float)(b))
#define __fmul_rn(a, b)      ((float)(a) * (float)(b))
#define __dadd_rn(a, b)      ((double)(a) + (double)(b))
#define __dmul_rn(a, b)      ((double)(a) * (double)(b))

static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)(((unsigned long long)a * b) >> 32);
}
static inline float rsqrtf(float x)
{
    return 1 / sqrtf(x);
}
static inline double rsqrt(double x)
{
    return 1 / sqrt(x);
}

#endif
