/* The source text of an elementwise kernel: a chain of ops over broadcast inputs, written for exactly its
 * dtypes, its pattern of broadcasting and its scalars. No CUDA is needed to write it. */
#ifndef LKI_CUDA_SOURCE_CUH
#define LKI_CUDA_SOURCE_CUH

#include "engine/cuda/kernels.cuh"

enum { LKI_CUDA_SOURCE_NBYTES = 32768 };

/* What an elementwise call computes, whichever op asks for it. */
typedef struct lki_cuda_chain {
    lk_fused fused; /* no inputs and one LK_OP_FULL step for a constant */
    lk_dtype in_dtype[LK_MAX_FUSED_INPUTS], out_dtype;
    bool moves;    /* elements are copied bit for bit; fused has no steps */
    bool integers; /* a cast of integers, which need not fit in a double */
    /* The axes of the output, merged where every input allows it; an input's stride is 0 where it repeats. */
    int rank;
    int64_t dim[LK_MAX_DIMS], count;
    int64_t stride[LK_MAX_FUSED_INPUTS][LK_MAX_DIMS];
    int width; /* elements a thread of the vector kernel does at once; 1: there is none */
} lki_cuda_chain;

/* Sets the axes and the width from the shapes; the rest of the chain must be set. */
void lki_cuda_chain_axes(lki_cuda_chain *chain, const lk_tensor *in, const lk_tensor *out);

/* Whether an input's neighbours along the last axis are neighbours in memory. */
bool lki_cuda_chain_is_dense(const lki_cuda_chain *chain, int input);

/* Writes a kernel "plain" and, where width > 1, "vector": (out, in0, in1, ..., count as long long). */
lk_status lki_cuda_chain_write(const lki_cuda_chain *chain, char source[LKI_CUDA_SOURCE_NBYTES]);

#endif
