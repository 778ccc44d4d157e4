/* What a step starts with, in one launch: the numbers that have changed since the last step, and the rows of
 * its batch. Both travel as the kernel's arguments, which the launch copies: the host may change them at
 * once, and nothing has to be copied before the step. */
#include "engine/cuda/cuda.cuh"

#include <math.h>
#include <string.h>
#include <type_traits>

namespace
{

constexpr int64_t BLOCK = 256, PER_BLOCK = 4 * BLOCK;
constexpr size_t MAX_FED_BYTES = 4096; /* more is faster by a copy of its own */

/* ---- Rows ---- */

/* How a stored element becomes one of the batch. */
enum conversion { BYTES_TO_F32, BYTES_TO_I64, I32_TO_I64, COPY_1, COPY_2, COPY_4, COPY_8, COPY_16 };

/* As the host's loader: each operation rounded to f32. */
__device__ float scaled(uint8_t stored, float divisor, float mean, float std)
{
    return __fdiv_rn(__fsub_rn(__fdiv_rn((float)stored, divisor), mean), std);
}

__device__ void move_element(const lki_cuda_gather &g, int64_t to, int64_t from)
{
    switch (g.conversion) {
    case BYTES_TO_F32:
        ((float *)g.out)[to] = scaled(((const uint8_t *)g.stored)[from], g.divisor, g.mean, g.std);
        break;
    case BYTES_TO_I64: ((int64_t *)g.out)[to] = ((const uint8_t *)g.stored)[from]; break;
    case I32_TO_I64: ((int64_t *)g.out)[to] = ((const int32_t *)g.stored)[from]; break;
    case COPY_1: ((uint8_t *)g.out)[to] = ((const uint8_t *)g.stored)[from]; break;
    case COPY_2: ((uint16_t *)g.out)[to] = ((const uint16_t *)g.stored)[from]; break;
    case COPY_4: ((uint32_t *)g.out)[to] = ((const uint32_t *)g.stored)[from]; break;
    case COPY_8: ((uint64_t *)g.out)[to] = ((const uint64_t *)g.stored)[from]; break;
    default: ((uint4 *)g.out)[to] = ((const uint4 *)g.stored)[from]; break;
    }
}

__host__ __device__ int64_t blocks_a_row(const lki_cuda_gather &g)
{
    return (g.width + PER_BLOCK - 1) / PER_BLOCK;
}

/* Wide rows as 16 bytes at a time, all of a thread's on their way before the first is stored. */
__device__ void copy_piece(const lki_cuda_gather &g, int64_t to, int64_t from, int64_t begin)
{
    const uint4 *stored = (const uint4 *)g.stored + from;
    uint4 *out = (uint4 *)g.out + to, moved[4];
#pragma unroll
    for (int k = 0; k < 4; k++) {
        int64_t i = begin + k * BLOCK + threadIdx.x;
        if (i < g.width) moved[k] = stored[i];
    }
#pragma unroll
    for (int k = 0; k < 4; k++) {
        int64_t i = begin + k * BLOCK + threadIdx.x;
        if (i < g.width) out[i] = moved[k];
    }
}

/* Block `block` of one gather: a piece of one row. */
__device__ void gather_piece(const lki_cuda_gather &g, int64_t block)
{
    int64_t row = block / blocks_a_row(g), begin = block % blocks_a_row(g) * PER_BLOCK;
    int64_t from = g.index[row] * g.width, to = row * g.width;
    if (g.conversion == COPY_16) {
        copy_piece(g, to, from, begin);
        return;
    }
    for (int k = 0; k < 4; k++) {
        int64_t i = begin + k * BLOCK + threadIdx.x;
        if (i < g.width) move_element(g, to + i, from + i);
    }
}

lk_status find_conversion(const lk_rows *rows, lk_dtype dtype, int *out)
{
    *out = -1;
    if (rows->stored == LK_U8 && dtype == LK_F32) *out = BYTES_TO_F32;
    if (rows->stored == LK_U8 && dtype == LK_I64) *out = BYTES_TO_I64;
    if (rows->stored == LK_I32 && dtype == LK_I64) *out = I32_TO_I64;
    size_t nbytes = lki_cuda_dtype_nbytes(dtype);
    if (rows->stored == dtype)
        *out = nbytes == 1 ? COPY_1 : nbytes == 2 ? COPY_2 : nbytes == 4 ? COPY_4 : COPY_8;
    if (*out >= 0) return LK_OK;
    return lki_cuda_fail(LK_ERR_UNSUPPORTED, "rows of %s cannot become a batch of %s on the GPU",
                         lki_cuda_dtype_name(rows->stored), lki_cuda_dtype_name(dtype));
}

/* Whether rows can be copied 16 bytes at a time. */
bool is_wide(const lk_rows *rows, lk_dtype dtype, const void *out, const void *stored)
{
    size_t row_nbytes = (size_t)rows->width * lki_cuda_dtype_nbytes(dtype);
    return rows->stored == dtype && (((uintptr_t)out | (uintptr_t)stored | row_nbytes) & 15) == 0;
}

/* ---- The launch ---- */

/* Two sizes: most steps have one group of parameters, and a launch is faster the less it copies. */
template <int HYPERS, int GATHERS> struct news {
    unsigned long long draw;
    int starts; /* a step starts: a new draw */
    int clears; /* nothing to skip yet */
    int hyper_count, gather_count;
    short slot[HYPERS];
    lki_cuda_hyper hyper[HYPERS];
    lki_cuda_gather gather[GATHERS];
};

template <int HYPERS, int GATHERS>
__device__ void take_numbers(lki_cuda_live *live, const news<HYPERS, GATHERS> &n)
{
    constexpr int words = sizeof(lki_cuda_hyper) / sizeof(unsigned long long);
    static_assert(sizeof(lki_cuda_hyper) % sizeof(unsigned long long) == 0, "copied in words");
    if (threadIdx.x == 0 && n.starts) live->draw = n.draw;
    if (threadIdx.x == 0 && n.clears) live->skip = 0;
    for (int i = threadIdx.x; i < n.hyper_count * words; i += BLOCK) {
        unsigned long long *to = (unsigned long long *)&live->hyper[n.slot[i / words]];
        to[i % words] = ((const unsigned long long *)&n.hyper[i / words])[i % words];
    }
}

/* Block 0 takes the numbers, the others the rows. */
template <int HYPERS, int GATHERS>
__global__ void take_news(lki_cuda_live *live, const __grid_constant__ news<HYPERS, GATHERS> n)
{
    if (blockIdx.x == 0) {
        take_numbers(live, n);
        return;
    }
    int64_t block = blockIdx.x - 1;
    for (int i = 0; i < n.gather_count; i++) {
        int64_t blocks = n.gather[i].row_count * blocks_a_row(n.gather[i]);
        if (block < blocks) {
            gather_piece(n.gather[i], block);
            return;
        }
        block -= blocks;
    }
}

template <int HYPERS, int GATHERS> lk_status launch(lki_cuda *cuda, const news<HYPERS, GATHERS> &n)
{
    int64_t blocks = 1;
    for (int i = 0; i < n.gather_count; i++) blocks += n.gather[i].row_count * blocks_a_row(n.gather[i]);
    take_news<HYPERS, GATHERS><<<(unsigned)blocks, (unsigned)BLOCK, 0, cuda->compute>>>(cuda->live, n);
    LKI_LAUNCHED();
    return LK_OK;
}

/* ---- Numbers ---- */

lki_cuda_hyper widened(const lk_hyper *h)
{
    lki_cuda_hyper out;
    memset(&out, 0, sizeof out); /* compared byte by byte */
    out.lr = h->lr;
    out.momentum = h->momentum;
    out.dampening = h->dampening;
    out.weight_decay = h->weight_decay;
    out.beta1 = h->beta1;
    out.beta2 = h->beta2;
    out.eps = h->eps;
    out.alpha = h->alpha;
    out.lr_decay = h->lr_decay;
    out.clip = h->clip;
    out.grad_scale = h->grad_scale == 0 ? 1 : h->grad_scale;
    out.bias1 = 1 - pow(h->beta1, (double)h->step);
    out.bias2 = 1 - pow(h->beta2, (double)h->step);
    out.nesterov = h->nesterov;
    out.amsgrad = h->amsgrad;
    out.centered = h->centered;
    out.maximize = h->maximize;
    out.first = h->first;
    out.is_first_step = h->step <= 1;
    out.step = h->step;
    return out;
}

/* Finds the next hyper from `*slot` on that the device does not have as it is. */
bool next_change(lki_cuda *cuda, int *slot)
{
    for (; *slot < cuda->hyper_count; (*slot)++) {
        if (!cuda->hypers[*slot]) continue;
        lki_cuda_hyper now = widened(cuda->hypers[*slot]);
        if (memcmp(&now, &cuda->sent.hyper[*slot], sizeof now) == 0) continue;
        cuda->sent.hyper[*slot] = now;
        return true;
    }
    return false;
}

template <int HYPERS, int GATHERS> void add_gathers(lki_cuda *cuda, news<HYPERS, GATHERS> *n)
{
    n->gather_count = cuda->gather_count;
    for (int i = 0; i < cuda->gather_count; i++) n->gather[i] = cuda->gathers[i];
    cuda->gather_count = 0;
}

/* More groups than a launch has room for: launches of their own, before the step's. */
lk_status send_many(lki_cuda *cuda, int first, int *left)
{
    news<LKI_CUDA_NEWS, 1> n = {};
    n.slot[n.hyper_count++] = (short)first;
    for (int slot = first + 1; next_change(cuda, &slot); slot++) {
        if (n.hyper_count == LKI_CUDA_NEWS) {
            for (int i = 0; i < n.hyper_count; i++) n.hyper[i] = cuda->sent.hyper[n.slot[i]];
            LKI_TRY(launch(cuda, n));
            n.hyper_count = 0;
        }
        n.slot[n.hyper_count++] = (short)slot;
    }
    for (int i = 0; i < n.hyper_count; i++) n.hyper[i] = cuda->sent.hyper[n.slot[i]];
    *left = n.hyper_count == 1 ? n.slot[0] : -1; /* a single one goes with the step's own launch */
    return n.hyper_count > 1 ? launch(cuda, n) : LK_OK;
}

} // namespace

lk_status lki_cuda_flush_gathers(lki_cuda *cuda)
{
    if (!cuda->gather_count) return LK_OK;
    LKI_TRY(lki_cuda_take_fed(cuda));
    news<1, LKI_CUDA_MAX_GATHERS> n = {};
    add_gathers(cuda, &n);
    return launch(cuda, n);
}

lk_status lki_cuda_gather_rows(lk_engine *engine, void *out, lk_dtype dtype, const lk_rows *rows,
                               const void *stored, const int64_t *indices, int64_t count)
{
    lki_cuda *cuda = (lki_cuda *)engine->state;
    int conversion;
    if (count == 0 || rows->width == 0) return LK_OK;
    LKI_TRY(find_conversion(rows, dtype, &conversion));
    size_t row_nbytes = (size_t)rows->width * lki_cuda_dtype_nbytes(dtype);
    for (int64_t begin = 0; begin < count; begin += LKI_CUDA_GATHER_ROWS) {
        if (cuda->gather_count == LKI_CUDA_MAX_GATHERS) LKI_TRY(lki_cuda_flush_gathers(cuda));
        lki_cuda_gather *g = &cuda->gathers[cuda->gather_count++];
        int64_t rest = count - begin;
        g->out = (char *)out + (size_t)begin * row_nbytes;
        g->stored = stored;
        g->width = rows->width;
        g->row_count = rest < LKI_CUDA_GATHER_ROWS ? (int)rest : (int)LKI_CUDA_GATHER_ROWS;
        g->conversion = conversion;
        if (is_wide(rows, dtype, out, stored)) {
            g->conversion = COPY_16;
            g->width = (int64_t)(row_nbytes / 16);
        }
        g->divisor = rows->divisor;
        g->mean = rows->mean;
        g->std = rows->std;
        for (int i = 0; i < g->row_count; i++) g->index[i] = indices[begin + i];
    }
    return LK_OK;
}

bool lki_cuda_gather_bytes(lki_cuda *cuda, void *out, const void *host, size_t nbytes)
{
    bool in_words = (((uintptr_t)out | (uintptr_t)host | nbytes) & 7) == 0;
    if (nbytes > MAX_FED_BYTES || cuda->gather_count == LKI_CUDA_MAX_GATHERS) return false;
    lki_cuda_gather *g = &cuda->gathers[cuda->gather_count++];
    g->out = out;
    g->stored = host; /* pinned: its address is the same on the device */
    g->width = (int64_t)(in_words ? nbytes / 8 : nbytes);
    g->row_count = 1;
    g->conversion = in_words ? COPY_8 : COPY_1;
    g->index[0] = 0;
    return true;
}

lk_status lki_cuda_begin_step(lk_engine *engine, lk_generator *generator)
{
    lki_cuda *cuda = (lki_cuda *)engine->state;
    int slot = 0, single = -1;
    LKI_TRY(lki_cuda_take_fed(cuda));
    if (next_change(cuda, &slot)) LKI_TRY(send_many(cuda, slot, &single));
    news<1, LKI_CUDA_MAX_GATHERS> n = {};
    n.starts = generator != NULL;
    n.clears = n.starts && cuda->settled && cuda->may_skip;
    n.draw = n.starts && cuda->dropout_count ? lki_host->draw(generator) : 0;
    if (single >= 0) {
        n.hyper_count = 1;
        n.slot[0] = (short)single;
        n.hyper[0] = cuda->sent.hyper[single];
    }
    if (n.starts) cuda->settled = false;
    bool start_matters = n.clears || (n.starts && cuda->dropout_count);
    add_gathers(cuda, &n);
    return n.hyper_count || n.gather_count || start_matters ? launch(cuda, n) : LK_OK;
}
