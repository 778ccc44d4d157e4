/* Max pools inside the cuda engine: what pool.cu (all pools) and pool_disjoint.cu (windows of two side by
 * side) share.
 *
 * Life: plain values. Thread rule: that of engines. */
#ifndef LKI_CUDA_POOL_CUH
#define LKI_CUDA_POOL_CUH

#include "engine/cuda/window.cuh"

/* Whether pool_disjoint.cu has these windows, and max_pool or max_pool_grad by it. */
bool lki_cuda_is_disjoint(const lki_cuda_window *window);
lk_status lki_cuda_run_disjoint(lki_cuda *cuda, const lk_call *call, const lki_cuda_window *window);

/* A ReLU follows the pool. */
static inline bool lki_cuda_pool_relu(const lk_call *call)
{
    return call->attr->activation == LK_ACTIVATION_RELU;
}

#ifdef __CUDACC__
/* Where the ReLU lets nothing through, nothing has won: the gradient goes nowhere. */
template <typename A> static __device__ inline void lki_cuda_max_relu(A *largest, int *winner)
{
    if (*largest <= A(0)) *winner = -1;
    if (*largest < A(0)) *largest = A(0);
}
#endif

#endif
