/* What the ops inside the one kernel of a small step share (small_kernel.cuh): what is known, what is at
 * hand, and the updates. */
#ifndef LKI_CUDA_SMALL_SMALL_DESK_CUH
#define LKI_CUDA_SMALL_SMALL_DESK_CUH

#include "engine/cuda/small/small.cuh"
#include "engine/cuda/update_rules.cuh"

namespace
{

constexpr int BLOCK = LKI_CUDA_SMALL_BLOCK, DEPTH = LKI_CUDA_SMALL_DEPTH, WARPS = BLOCK / 32,
              TILE = LKI_CUDA_SMALL_TILE, WIDE = LKI_CUDA_SMALL_WIDE, SIDE = LKI_CUDA_SMALL_SIDE,
              DOWN = LKI_CUDA_SMALL_DOWN, ACROSS = LKI_CUDA_SMALL_ACROSS;

using args = lki_cuda_small_args;
using product = lki_cuda_small_product;
using numbers = lki_cuda_numbers<float>;

/* What a kernel was compiled for: of usual steps most of what a body asks is known. -1: it has to look. */
template <int RULE_, int STATES_, int ROWS_, int LABELS_> struct facts {
    static constexpr int RULE = RULE_;           /* of all updates, */
    static constexpr int STATES = STATES_;       /* and how many states they have */
    static constexpr int ROWS = ROWS_;           /* how rows are converted, */
    static constexpr int LABELS = LABELS_;       /* and those that are tiny */
    static constexpr bool IS_PLAIN = RULE_ >= 0; /* a mean over i64 classes that weigh the same, unsmoothed */
};

/* What a block has at hand. */
struct desk { /* functions copy of it what they use more than once: it may be changed by any store */
    lki_cuda_small_op op[LKI_CUDA_SMALL_OPS];
    numbers n[LKI_CUDA_SMALL_UPDATES];          /* of the updates */
    uint64_t tiny[LKI_CUDA_MAX_GATHERS][BLOCK]; /* rows, as they lie in memory */
    double mass;                                /* of the loss, where its samples weigh the same */
    int skip;                                   /* the loss is not finite: updates change nothing */
};

/* What ops have of shared memory beside it, each for itself. */
__device__ float *pool()
{
    extern __shared__ __align__(16) unsigned char memory[];
    return (float *)memory;
}

/* ---- Updates ---- */

/* What of an update its elements need. */
struct slices {
    float *data[5];
    int rule, number;
};

template <typename F> __device__ slices slices_of(const lki_cuda_small_update &u)
{
    slices s = {{u.data[0], u.data[1], u.data[2], u.data[3], u.data[4]}, u.rule, u.number};
    if (F::STATES >= 0)
        for (int k = F::STATES; k < 3; k++) s.data[2 + k] = NULL;
    if (F::RULE >= 0) s.rule = F::RULE;
    return s;
}

/* States that are absent are read as the parameter: loads that may be left out wait for one another. */
template <typename F> __device__ lki_cuda_element<float> load_element(const slices &u, int64_t i)
{
    lki_cuda_element<float> e = {u.data[0][i], 0, 0, 0, 0};
    if (F::STATES != 0) e.s0 = (u.data[2] ? u.data[2] : u.data[0])[i];
    if (F::STATES < 0 || F::STATES > 1) e.s1 = (u.data[3] ? u.data[3] : u.data[0])[i];
    if (F::STATES < 0 || F::STATES > 2) e.s2 = (u.data[4] ? u.data[4] : u.data[0])[i];
    return e;
}

__device__ void store_element(const slices &u, int64_t i, const lki_cuda_element<float> &e)
{
    u.data[0][i] = e.p;
    if (u.data[2]) u.data[2][i] = e.s0;
    if (u.data[3]) u.data[3][i] = e.s1;
    if (u.data[4]) u.data[4][i] = e.s2;
}

__device__ void apply(const numbers &n, int rule, lki_cuda_element<float> &e)
{
    switch (rule) {
    case LK_UPDATE_SGD: lki_cuda_apply_rule<float, LK_UPDATE_SGD>(n, e); break;
    case LK_UPDATE_ADAM: lki_cuda_apply_rule<float, LK_UPDATE_ADAM>(n, e); break;
    case LK_UPDATE_ADAMW: lki_cuda_apply_rule<float, LK_UPDATE_ADAMW>(n, e); break;
    case LK_UPDATE_RMSPROP: lki_cuda_apply_rule<float, LK_UPDATE_RMSPROP>(n, e); break;
    default: lki_cuda_apply_rule<float, LK_UPDATE_ADAGRAD>(n, e); break;
    }
}

template <typename F>
__device__ void run_update(const desk &d, const lki_cuda_small_update &u, int block, int blocks)
{
    if (d.skip) return;
    const slices all = slices_of<F>(u);
    int thread = block * BLOCK + (int)threadIdx.x, threads = blocks * BLOCK;
    for (int r = 0; r < u.range_count; r++)
        for (int i = u.begin[r] + thread; i < u.end[r]; i += threads) {
            lki_cuda_element<float> e = load_element<F>(all, i);
            e.g = all.data[1][i];
            apply(d.n[all.number], all.rule, e);
            store_element(all, i, e);
        }
}

} // namespace

#endif
