/* What a step starts with, in one launch: the numbers that have changed since the last step, and the rows of
 * its batch. Both travel as the kernel's arguments, which the launch copies: the host may change them at
 * once, and nothing has to be copied before the step. */
#include "engine/cuda/prologue.cuh"

#include <math.h>
#include <string.h>
#include <type_traits>

namespace
{

constexpr int64_t BLOCK = 256, PER_BLOCK = 4 * BLOCK;
constexpr size_t MAX_FED_BYTES = 4096; /* more is faster by a copy of its own */

/* ---- Rows ---- */

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
        if (i < g.width) moved[k] = __ldcs(&stored[i]); /* nobody reads it soon again */
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
    if (g.conversion == LKI_CUDA_COPY_16) {
        copy_piece(g, to, from, begin);
        return;
    }
    for (int k = 0; k < 4; k++) {
        int64_t i = begin + k * BLOCK + threadIdx.x;
        if (i < g.width) lki_cuda_move_element(g, to + i, from + i);
    }
}

lk_status find_conversion(const lk_rows *rows, lk_dtype dtype, int *out)
{
    *out = -1;
    if (rows->stored == LK_U8 && dtype == LK_F32) *out = LKI_CUDA_BYTES_TO_F32;
    if (rows->stored == LK_U8 && dtype == LK_I64) *out = LKI_CUDA_BYTES_TO_I64;
    if (rows->stored == LK_I32 && dtype == LK_I64) *out = LKI_CUDA_I32_TO_I64;
    size_t nbytes = lki_cuda_dtype_nbytes(dtype);
    if (rows->stored == dtype)
        *out = nbytes == 1   ? LKI_CUDA_COPY_1
               : nbytes == 2 ? LKI_CUDA_COPY_2
               : nbytes == 4 ? LKI_CUDA_COPY_4
                             : LKI_CUDA_COPY_8;
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

/* From the first row to the last that is asked for. */
size_t reached_nbytes(const lk_rows *rows, const int64_t *indices, int64_t count)
{
    int64_t last = 0;
    for (int64_t i = 0; i < count; i++) last = indices[i] > last ? indices[i] : last;
    return (size_t)((last + 1) * rows->width) * lki_cuda_dtype_nbytes(rows->stored);
}

/* ---- Gathers of one launch run at once, in no order: none may touch what another writes ---- */

bool overlap(const void *a, size_t a_nbytes, const void *b, size_t b_nbytes)
{
    return (const char *)a < (const char *)b + b_nbytes && (const char *)b < (const char *)a + a_nbytes;
}

bool is_to_be_written(const lki_cuda *cuda, const void *data, size_t nbytes)
{
    for (int i = 0; i < cuda->gather_count; i++)
        if (overlap(cuda->gathers[i].out, cuda->reach[i].written, data, nbytes)) return true;
    return false;
}

bool is_to_be_read(const lki_cuda *cuda, const void *data, size_t nbytes)
{
    for (int i = 0; i < cuda->gather_count; i++)
        if (overlap(cuda->gathers[i].stored, cuda->reach[i].read, data, nbytes)) return true;
    return false;
}

/* ---- The launch ---- */

/* Block 0 takes the numbers, the others the rows. */
template <int HYPERS, int GATHERS>
__global__ void take_news(lki_cuda_live *live, const __grid_constant__ lki_cuda_news<HYPERS, GATHERS> n)
{
    if (blockIdx.x == 0) {
        lki_cuda_take_numbers(live, n, (int)threadIdx.x, (int)BLOCK);
        return;
    }
    int64_t block = blockIdx.x - 1;
    for (int i = n.gather_count - 1; i >= 0; i--) { /* the model's input last: it is read first */
        int64_t blocks = n.gather[i].row_count * blocks_a_row(n.gather[i]);
        if (block < blocks) {
            gather_piece(n.gather[i], block);
            return;
        }
        block -= blocks;
    }
}

template <int HYPERS, int GATHERS> lk_status launch(lki_cuda *cuda, const lki_cuda_news<HYPERS, GATHERS> &n)
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
    out.bias1 = h->no_debias ? 1 : 1 - pow(h->beta1, (double)h->step);
    out.bias2 = h->no_debias ? 1 : 1 - pow(h->beta2, (double)h->step);
    out.nesterov = h->nesterov;
    out.amsgrad = h->amsgrad;
    out.centered = h->centered;
    out.maximize = h->maximize;
    out.no_debias = h->no_debias;
    out.no_trust = h->no_trust;
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

template <int HYPERS, int GATHERS> void add_gathers(lki_cuda *cuda, lki_cuda_news<HYPERS, GATHERS> *n)
{
    n->gather_count = cuda->gather_count;
    for (int i = 0; i < cuda->gather_count; i++) n->gather[i] = cuda->gathers[i];
    cuda->gather_count = 0;
}

/* More groups than a launch has room for: launches of their own, before the step's. */
lk_status send_many(lki_cuda *cuda, int first, int *left)
{
    lki_cuda_news<LKI_CUDA_NEWS, 1> n = {};
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
    lki_cuda_news<1, LKI_CUDA_MAX_GATHERS> n = {};
    add_gathers(cuda, &n);
    return launch(cuda, n);
}

lk_status lki_cuda_write_after_gathers(lki_cuda *cuda, const void *data, size_t nbytes, bool *met)
{
    *met = is_to_be_written(cuda, data, nbytes) || is_to_be_read(cuda, data, nbytes);
    return *met ? lki_cuda_flush_gathers(cuda) : LK_OK;
}

lk_status lki_cuda_gather_rows(lk_engine *engine, void *out, lk_dtype dtype, const lk_rows *rows,
                               const void *stored, const int64_t *indices, int64_t count)
{
    lki_cuda *cuda = (lki_cuda *)engine->state;
    int conversion;
    if (count == 0 || rows->width == 0) return LK_OK;
    LKI_TRY(find_conversion(rows, dtype, &conversion));
    size_t row_nbytes = (size_t)rows->width * lki_cuda_dtype_nbytes(dtype);
    size_t read_nbytes = reached_nbytes(rows, indices, count);
    bool met;
    if (is_to_be_written(cuda, stored, read_nbytes)) {
        LKI_TRY(lki_cuda_flush_gathers(cuda));
        cuda->has_fresh_rows = true;
    }
    LKI_TRY(lki_cuda_write_after_gathers(cuda, out, (size_t)count * row_nbytes, &met));
    for (int64_t begin = 0; begin < count; begin += LKI_CUDA_GATHER_ROWS) {
        if (cuda->gather_count == LKI_CUDA_MAX_GATHERS) LKI_TRY(lki_cuda_flush_gathers(cuda));
        lki_cuda_reach *reach = &cuda->reach[cuda->gather_count];
        lki_cuda_gather *g = &cuda->gathers[cuda->gather_count++];
        int64_t rest = count - begin;
        g->out = (char *)out + (size_t)begin * row_nbytes;
        g->stored = stored;
        g->width = rows->width;
        g->row_count = rest < LKI_CUDA_GATHER_ROWS ? (int)rest : (int)LKI_CUDA_GATHER_ROWS;
        *reach = {read_nbytes, (size_t)g->row_count * row_nbytes};
        g->conversion = conversion;
        if (is_wide(rows, dtype, out, stored)) {
            g->conversion = LKI_CUDA_COPY_16;
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
    cuda->reach[cuda->gather_count] = {nbytes, nbytes};
    lki_cuda_gather *g = &cuda->gathers[cuda->gather_count++];
    g->out = out;
    g->stored = host; /* pinned: its address is the same on the device */
    g->width = (int64_t)(in_words ? nbytes / 8 : nbytes);
    g->row_count = 1;
    g->conversion = in_words ? LKI_CUDA_COPY_8 : LKI_CUDA_COPY_1;
    g->index[0] = 0;
    if (!in_words || nbytes > sizeof g->index) return true;
    g->conversion = LKI_CUDA_GIVEN_8; /* in the place of indices: nobody has to fetch them */
    memcpy(g->index, host, nbytes);
    return true;
}

lk_status lki_cuda_collect_news(lki_cuda *cuda, lk_generator *generator, lki_cuda_step_news *n, bool *matters)
{
    int slot = 0, single = -1;
    LKI_TRY(lki_cuda_take_fed(cuda));
    if (next_change(cuda, &slot)) LKI_TRY(send_many(cuda, slot, &single));
    n->starts = generator != NULL;
    n->clears = n->starts && cuda->settled && cuda->may_skip;
    n->draw = n->starts && cuda->dropout_count ? lki_host->draw(generator) : 0;
    n->hyper_count = single >= 0;
    if (single >= 0) {
        n->slot[0] = (short)single;
        n->hyper[0] = cuda->sent.hyper[single];
    }
    if (n->starts) cuda->settled = false;
    add_gathers(cuda, n);
    *matters = n->hyper_count || n->gather_count || n->clears || (n->starts && cuda->dropout_count);
    return LK_OK;
}

lk_status lki_cuda_begin_step(lk_engine *engine, lk_generator *generator)
{
    lki_cuda *cuda = (lki_cuda *)engine->state;
    lki_cuda_step_news n = {};
    bool matters;
    LKI_TRY(lki_cuda_collect_news(cuda, generator, &n, &matters));
    return matters ? launch(cuda, n) : LK_OK;
}
