/* Ends the file of a level that multiplies bf16: blocks of C from tiles, and the level's table. The level has
 * defined block_begin, block_end: around the blocks of one call; block_sums(sums, a, b, steps, rows, columns,
 * keep): sums (32, 32) = A B over `steps` tiles along k, of `rows` tiles of A (lki_bf16_rows) and `columns`
 * of B, 1 or 2 each; with `keep` plus what is there; and LKI_BF16_TABLE, LKI_BF16_NAME, LKI_BF16_THREAD_WORK,
 * LKI_BF16_OUTRUNS_WINOGRAD. */
#ifndef LKI_CPU_KERNELS_BF16_PRODUCT_H
#define LKI_CPU_KERNELS_BF16_PRODUCT_H

#include "engine/cpu/kernels/bf16_pack.h"
#include "engine/cpu/kernels/bf16_shift.h"
#include "tensor/half.h"

#if LKI_SIMD == 512
/* Sixteen numbers of a row, or the `count` that are left of it. */
INLINE void finish_run(const lki_bf16_gemm *g, const float *sums, int64_t row, int64_t column, int64_t count)
{
    const __mmask16 mask = (__mmask16)((1u << count) - 1);
    __m512 x = _mm512_loadu_ps(sums);
    if (g->bias) x = _mm512_add_ps(x, _mm512_maskz_loadu_ps(mask, g->bias + column));
    if (g->row_bias) x = _mm512_add_ps(x, _mm512_set1_ps(g->row_bias[row]));
    if (g->relu) x = _mm512_max_ps(_mm512_setzero_ps(), x);
    int64_t at = row * g->c_row + column;
    if (g->c_dtype == LK_F32)
        _mm512_mask_storeu_ps((float *)g->c + at, mask, x);
    else
        _mm256_mask_storeu_epi16((uint16_t *)g->c + at, mask, (__m256i)_mm512_cvtneps_pbh(x));
}
#else
INLINE void finish_run(const lki_bf16_gemm *g, const float *sums, int64_t row, int64_t column, int64_t count)
{
    for (int64_t j = 0; j < count; j++) {
        float x = sums[j];
        if (g->bias) x += g->bias[column + j];
        if (g->row_bias) x += g->row_bias[row];
        if (g->relu) x = x > 0 || x != x ? x : 0;
        if (g->c_dtype == LK_F32)
            ((float *)g->c)[row * g->c_row + column + j] = x;
        else
            ((uint16_t *)g->c)[row * g->c_row + column + j] = lki_f32_to_bf16(x);
    }
}
#endif

INLINE int64_t at_most(int64_t count, int64_t most)
{
    return count < most ? count : most;
}

static void finish_block(const lki_bf16_gemm *g, int64_t block, const float *sums)
{
    int64_t parts = lki_bf16_parts(g->m), row0 = block % parts * 32, column0 = block / parts * 32;
    int64_t rows = at_most(g->m - row0, 32), columns = at_most(g->n - column0, 32);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j += 16)
            finish_run(g, sums + i * 32 + j, row0 + i, column0 + j, at_most(columns - j, 16));
}

static void low_finish(const lki_bf16_gemm *g, int64_t begin, int64_t end)
{
    for (int64_t block = begin; block < end; block++)
        finish_block(g, block, g->partial + block * LKI_BF16_SUMS);
}

/* The steps [first, last) along k of the blocks [begin, end). */
static void multiply_steps(const lki_bf16_gemm *g, int64_t begin, int64_t end, int64_t first, int64_t last)
{
    float own[LKI_BF16_SUMS] __attribute__((aligned(64)));
    int64_t parts = lki_bf16_parts(g->m), steps = lki_bf16_parts(g->k);
    for (int64_t block = begin; block < end; block++) {
        int64_t row = block % parts, panel = block / parts;
        float *sums = g->partial ? g->partial + block * LKI_BF16_SUMS : own;
        lki_bf16_rows a = {g->packed_a + (row * steps + first) * 2 * LKI_BF16_TILE, 32, LKI_BF16_TILE, NULL};
        block_sums(sums, &a, g->packed_b + (panel * steps + first) * 2 * LKI_BF16_TILE, last - first,
                   g->m - row * 32 > 16 ? 2 : 1, g->n - panel * 32 > 16 ? 2 : 1, g->keep || first);
        if (!g->keep && last == steps) finish_block(g, block, sums);
    }
}

/* A long k goes through the caches in pieces, as many tiles of each block at a time as stay there. */
static void low_multiply(const lki_bf16_gemm *g, int64_t begin, int64_t end)
{
    int64_t steps = lki_bf16_parts(g->k), piece = g->partial && !g->keep ? LKI_BF16_BLOCK_K / 32 : steps;
    block_begin();
    for (int64_t first = 0; first < steps; first += piece)
        multiply_steps(g, begin, end, first, at_most(first + piece, steps));
    block_end();
}

const lki_bf16_kernels LKI_BF16_TABLE = {
    .name = LKI_BF16_NAME,
    .thread_work = LKI_BF16_THREAD_WORK,
    .outruns_winograd = LKI_BF16_OUTRUNS_WINOGRAD,
    .pack_a = bf16_pack_a,
    .pack_b = bf16_pack_b,
    .multiply = low_multiply,
    .finish = low_finish,
    .shift_turn = shift_turn,
    .shift_forward = shift_forward,
    .shift_spread = shift_spread,
    .shift_gradient = shift_gradient,
    .is_finite = low_is_finite,
    .im2col = low_im2col,
};

#endif
