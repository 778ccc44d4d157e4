/* Pools inside the cuda engine: what pool.cu (all pools), pool_last.cu (16 bits with channels last) and
 * pool_disjoint.cu (windows of two side by side) share.
 *
 * Life: plain values. Thread rule: that of engines. */
#ifndef LKI_CUDA_POOL_CUH
#define LKI_CUDA_POOL_CUH

#include "engine/cuda/sliding_window.cuh"

/* Whether pool_disjoint.cu has these windows, and max_pool or max_pool_grad by it. */
bool lki_cuda_is_disjoint(const lki_cuda_window *window);
lk_status lki_cuda_run_disjoint(lki_cuda *cuda, const lk_call *call, const lki_cuda_window *window);

/* A ReLU follows the pool. */
static inline bool lki_cuda_pool_relu(const lk_call *call)
{
    return call->attr->pool.activation == LK_ACTIVATION_RELU;
}

#ifdef __CUDACC__
/* Adaptive: bin p of an axis covers floor(p in / out) up to ceil((p + 1) in / out). */
static __device__ inline int lki_cuda_bin_begin(int p, int in, int out)
{
    return (int)((int64_t)p * in / out);
}

static __device__ inline int lki_cuda_bin_end(int p, int in, int out)
{
    return (int)(((int64_t)(p + 1) * in + out - 1) / out);
}

/* How many places bin p has. */
static __device__ inline int lki_cuda_bin_size(const lki_cuda_window &w, const int p[3])
{
    int size = 1;
    for (int d = 0; d < 3; d++)
        size *= lki_cuda_bin_end(p[d], w.axis[d].in, w.axis[d].out) -
                lki_cuda_bin_begin(p[d], w.axis[d].in, w.axis[d].out);
    return size;
}

/* Where the ReLU lets nothing through, nothing has won: the gradient goes nowhere. */
template <typename A> static __device__ inline void lki_cuda_max_relu(A *largest, int *winner)
{
    if (*largest <= A(0)) *winner = -1;
    if (*largest < A(0)) *largest = A(0);
}
#endif

#endif
