/* Normalisation inside the cuda engine: y = (x - mean) istd w + b, with mean and istd over a set of elements.
 *
 * norm_channels.cu reduces over channels (batch norm whole, and the weights' gradients of the others),
 * norm_last.cu too, for activations with channels last, norm_sets.cu over runs of memory (layer and group
 * norm), norm.cu tells which is wanted. Sums are kept in f64, about the first element of each set, so
 * that one pass over x is as good as two.
 *
 * Life: a norm lies in call->state. Thread rule: that of engines. */
#ifndef LKI_CUDA_NORM_CUH
#define LKI_CUDA_NORM_CUH

#include "engine/cuda/sliding_window.cuh"

typedef enum lki_cuda_norm_kind { LKI_CUDA_BATCH, LKI_CUDA_LAYER, LKI_CUDA_GROUP } lki_cuda_norm_kind;

/* An input (outer, channels, inner). batch: a set is a channel. group: a set is a sample's group of channels.
 * layer: (rows, width, 1): a set is a row, and every column has a weight of its own. */
typedef struct lki_cuda_norm {
    lki_cuda_norm_kind kind;
    int64_t outer, set_count, set_size;
    int channels, inner, groups;
    double eps, momentum;
    bool training;
    bool constant;    /* mean and istd are not of this batch: dx does not pass through them */
    bool has_moments; /* batch norm outside of training: mean and variance are the running ones */
    int parts;        /* blocks a channel (or tile of channels) */
    int64_t span;     /* rows of a channel that one of them has */
    int across;       /* inner == 1: threads of a block side by side */
    bool relu;        /* y = relu(y); going back, dy counts where that let it through */
} lki_cuda_norm;

/* The operands of a run; x and out of one dtype, all others of one dtype. */
typedef struct lki_cuda_norm_operands {
    const void *x, *dy, *weight, *bias;
    /* Where `gate` is there, dy is computed on the way: first + second (or first alone) where gate is not 0
     * or less. */
    const void *first, *second, *gate;
    const void *addend; /* of x's shape, added to y; or NULL */
    /* Where `addend_mean` is there, the addend is first normalised with these. */
    const void *addend_mean, *addend_istd, *addend_weight, *addend_bias;
    void *running_mean, *running_var;
    void *mean, *istd; /* a gradient only reads them */
    void *out;         /* y or dx; NULL: not wanted */
    void *dweight, *dbias;
} lki_cuda_norm_operands;

/* The dtypes of a norm: of x, and of everything else. */
typedef struct lki_cuda_norm_dtypes {
    lk_dtype x, other;
} lki_cuda_norm_dtypes;

/* Runs `body` with T and P as these types; what is not listed was refused at prepare. */
#define LKI_CUDA_NORM_SWITCH(dtypes, T, P, body)                                                             \
    LKI_CUDA_FLOAT_SWITCH((dtypes).x, T, {                                                                   \
        if ((dtypes).x == (dtypes).other) {                                                                  \
            using P = T;                                                                                     \
            body;                                                                                            \
        } else {                                                                                             \
            using P = typename lki_cuda_wide<T>::type;                                                       \
            body;                                                                                            \
        }                                                                                                    \
    })

/* Over channels. Forward: batch norm. Backward: batch norm's dx, dweight and dbias; the others' dweight and
 * dbias, where out is NULL. */
size_t lki_cuda_plan_channels(const lki_cuda *cuda, lki_cuda_norm *norm); /* gives the scratch it needs */
lk_status lki_cuda_run_channels(lki_cuda *cuda, const lki_cuda_norm *norm, lki_cuda_norm_dtypes dtypes,
                                const lki_cuda_norm_operands *o, bool backward, void *scratch);
/* Batch norm of f32 or a short dtype with inner == 1, all else in f32; with addend and relu. */
size_t lki_cuda_plan_last(const lki_cuda *cuda, const lki_cuda_norm *norm);
lk_status lki_cuda_run_last(lki_cuda *cuda, const lki_cuda_norm *norm, lk_dtype dtype,
                            const lki_cuda_norm_operands *o, bool backward, void *scratch);
/* Over sets: layer and group norm, y or dx. */
lk_status lki_cuda_run_sets(lki_cuda *cuda, const lki_cuda_norm *norm, lki_cuda_norm_dtypes dtypes,
                            const lki_cuda_norm_operands *o, bool backward);

#ifdef __CUDACC__
/* V neighbours, loaded at once. */
template <typename T, int V> struct __align__(sizeof(T) * V) lki_cuda_pack
{
    T at[V];
};

template <typename T, int V> static __device__ lki_cuda_pack<T, V> lki_cuda_load(const T *from)
{
    return *(const lki_cuda_pack<T, V> *)from;
}

/* Sums of two numbers at once, in f64. */
struct lki_cuda_pair {
    double a, b;
};

static __device__ inline lki_cuda_pair lki_cuda_add(lki_cuda_pair x, lki_cuda_pair y)
{
    return {x.a + y.a, x.b + y.b};
}

static __device__ inline lki_cuda_pair lki_cuda_warp_sum(lki_cuda_pair sum)
{
    for (int step = 16; step; step /= 2)
        sum = lki_cuda_add(sum, {__shfl_xor_sync(~0u, sum.a, step), __shfl_xor_sync(~0u, sum.b, step)});
    return sum;
}

/* The sum over all threads of a block, given to all of them; `shared` has room for 32. */
static __device__ inline lki_cuda_pair lki_cuda_block_sum(lki_cuda_pair sum, lki_cuda_pair *shared)
{
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, warps = (int)blockDim.x / 32;
    sum = lki_cuda_warp_sum(sum);
    if (lane == 0) shared[warp] = sum;
    __syncthreads();
    sum = lki_cuda_warp_sum(lane < warps ? shared[lane] : lki_cuda_pair{0, 0});
    __syncthreads();
    return sum;
}

/* Mean and biased variance from the sums of d and d d, d = x - shift. */
static __device__ inline void lki_cuda_moments(lki_cuda_pair sum, double shift, double n, double *mean,
                                               double *variance)
{
    double off = sum.a / n, square = sum.b / n - off * off;
    *mean = shift + off;
    *variance = square < 0 ? 0 : square;
}
#endif

#endif
