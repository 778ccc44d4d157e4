/* What a step starts with: the numbers that have changed since the last step, and the rows of its batch. For
 * the launch of their own (prologue.cu) and for steps that are one kernel (small_kernel.cuh). */
#ifndef LKI_CUDA_PROLOGUE_CUH
#define LKI_CUDA_PROLOGUE_CUH

#include "engine/cuda/cuda.cuh"

/* ---- Rows ---- */

/* How a stored element becomes one of the batch. */
enum lki_cuda_conversion {
    LKI_CUDA_BYTES_TO_F32,
    LKI_CUDA_BYTES_TO_I64,
    LKI_CUDA_I32_TO_I64,
    LKI_CUDA_COPY_1,
    LKI_CUDA_COPY_2,
    LKI_CUDA_COPY_4,
    LKI_CUDA_COPY_8,
    LKI_CUDA_COPY_16,
    LKI_CUDA_GIVEN_8 /* the elements themselves are in the place of the indices */
};

/* As the host's loader: each operation rounded to f32. */
static __device__ inline float lki_cuda_scaled(uint8_t stored, float divisor, float mean, float std)
{
    return __fdiv_rn(__fsub_rn(__fdiv_rn((float)stored, divisor), mean), std);
}

static __device__ inline void lki_cuda_move_element(const lki_cuda_gather &g, int64_t to, int64_t from)
{
    switch (g.conversion) {
    case LKI_CUDA_BYTES_TO_F32:
        ((float *)g.out)[to] = lki_cuda_scaled(((const uint8_t *)g.stored)[from], g.divisor, g.mean, g.std);
        break;
    case LKI_CUDA_BYTES_TO_I64: ((int64_t *)g.out)[to] = ((const uint8_t *)g.stored)[from]; break;
    case LKI_CUDA_I32_TO_I64: ((int64_t *)g.out)[to] = ((const int32_t *)g.stored)[from]; break;
    case LKI_CUDA_COPY_1: ((uint8_t *)g.out)[to] = ((const uint8_t *)g.stored)[from]; break;
    case LKI_CUDA_COPY_2: ((uint16_t *)g.out)[to] = ((const uint16_t *)g.stored)[from]; break;
    case LKI_CUDA_COPY_4: ((uint32_t *)g.out)[to] = ((const uint32_t *)g.stored)[from]; break;
    case LKI_CUDA_GIVEN_8: ((int64_t *)g.out)[to] = g.index[to]; break;
    case LKI_CUDA_COPY_8: ((uint64_t *)g.out)[to] = ((const uint64_t *)g.stored)[from]; break;
    default: ((uint4 *)g.out)[to] = ((const uint4 *)g.stored)[from]; break;
    }
}

/* ---- Numbers ---- */

/* Two sizes: most steps have one group of parameters, and a launch is faster the less it copies. */
template <int HYPERS, int GATHERS> struct lki_cuda_news {
    unsigned long long draw;
    int starts; /* a step starts: a new draw */
    int clears; /* nothing to skip yet */
    int hyper_count, gather_count;
    short slot[HYPERS];
    lki_cuda_hyper hyper[HYPERS];
    lki_cuda_gather gather[GATHERS];
};

template <int HYPERS, int GATHERS>
static __device__ inline void
lki_cuda_take_numbers(lki_cuda_live *live, const lki_cuda_news<HYPERS, GATHERS> &n, int thread, int threads)
{
    constexpr int words = sizeof(lki_cuda_hyper) / sizeof(unsigned long long);
    static_assert(sizeof(lki_cuda_hyper) % sizeof(unsigned long long) == 0, "copied in words");
    if (thread == 0 && n.starts) live->draw = n.draw;
    if (thread == 0 && n.clears) live->skip = 0;
    for (int i = thread; i < n.hyper_count * words; i += threads) {
        unsigned long long *to = (unsigned long long *)&live->hyper[n.slot[i / words]];
        to[i % words] = ((const unsigned long long *)&n.hyper[i / words])[i % words];
    }
}

/* The news of the step that begins, and the gathers that it was asked for. More groups of numbers than there
 * is room for are sent at once, in launches of their own. `matters`: there is any. */
typedef struct lki_cuda_news<1, LKI_CUDA_MAX_GATHERS> lki_cuda_step_news;
lk_status lki_cuda_collect_news(lki_cuda *cuda, lk_generator *generator, lki_cuda_step_news *out,
                                bool *matters);

#endif
