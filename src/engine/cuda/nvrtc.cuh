/* Kernels compiled at run time from source that was written for one shape of computation.
 *
 * The compiler (libnvrtc) is loaded when the first such kernel is asked for, and every kernel is kept for the
 * life of the process under its source text. Thread rule: lki_cuda_compile may be called from any thread. */
#ifndef LKI_CUDA_NVRTC_CUH
#define LKI_CUDA_NVRTC_CUH

#include "engine/cuda/cuda.cuh"

/* The entries "plain" and "vector" of a source; the second is NULL where the source has none. */
typedef struct lki_cuda_kernels {
    const void *plain, *vector; /* for cudaLaunchKernel */
} lki_cuda_kernels;

lk_status lki_cuda_compile(lki_cuda *cuda, const char *source, bool has_vector, lki_cuda_kernels *out);

#endif
