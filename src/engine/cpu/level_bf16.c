/* Products of bf16 for machines with AVX512-BF16. The compiler's options for this file are in
 * src/CMakeLists.txt. */
#if defined(__AVX512BF16__)
#define LKI_SIMD 512
#include "engine/cpu/kernels/simd.h"
#include "engine/cpu/bf16.h"

#include <stdbool.h>

enum { ROWS = 8 };

/* Half a tile of A, eight rows, times one or two tiles of B: a row's pair of k is read as one number and
 * meets sixteen columns at once. */
INLINE void half_tile(float *sums, const lki_bf16_rows *a, int64_t half, const uint16_t *b, int64_t steps,
                      const int columns, const bool packed, bool keep)
{
    __m512 sum[ROWS][2];
    const uint16_t *data = a->data + half / 2 * a->tile + half % 2 * ROWS * a->row;
    const int64_t row = packed ? 32 : a->row;
    UNROLL for (int i = 0; i < ROWS; i++) UNROLL for (int j = 0; j < columns; j++) sum[i][j] =
        keep ? _mm512_loadu_ps(sums + i * 32 + j * 16) : _mm512_setzero_ps();
    for (int64_t step = 0; step < steps; step++, b += 1024) {
        const uint16_t *from = data + (packed ? step * 1024 : a->at[step]);
        for (int pair = 0; pair < 16; pair++) {
            __m512bh y[2];
            UNROLL for (int j = 0; j < columns; j++) y[j] =
                (__m512bh)_mm512_loadu_ps(b + j * 512 + pair * 32);
            UNROLL for (int i = 0; i < ROWS; i++)
            {
                int32_t both;
                memcpy(&both, from + i * row + pair * 2, sizeof both);
                __m512bh x = (__m512bh)_mm512_set1_epi32(both);
                UNROLL for (int j = 0; j < columns; j++) sum[i][j] = _mm512_dpbf16_ps(sum[i][j], x, y[j]);
            }
        }
    }
    UNROLL for (int i = 0; i < ROWS; i++) UNROLL for (int j = 0; j < columns; j++)
        _mm512_storeu_ps(sums + i * 32 + j * 16, sum[i][j]);
}

static void block_sums(float *sums, const lki_bf16_rows *a, const uint16_t *b, int64_t steps, int rows,
                       int columns, bool keep)
{
    for (int i = 0; i < 2 * rows; i++, sums += ROWS * 32) {
        if (columns == 2 && !a->at)
            half_tile(sums, a, i, b, steps, 2, true, keep);
        else if (columns == 2)
            half_tile(sums, a, i, b, steps, 2, false, keep);
        else if (!a->at)
            half_tile(sums, a, i, b, steps, 1, true, keep);
        else
            half_tile(sums, a, i, b, steps, 1, false, keep);
    }
}

INLINE void block_begin(void)
{
}

INLINE void block_end(void)
{
}

#define LKI_BF16_NAME             "avx512bf16"
#define LKI_BF16_TABLE            lki_bf16_kernels_avx512bf16
#define LKI_BF16_THREAD_WORK      1000000
#define LKI_BF16_OUTRUNS_WINOGRAD false
#include "engine/cpu/kernels/bf16_product.h"
#endif
