/* Products of bf16 for machines with AVX512-BF16. The compiler's options for this file are in
 * src/CMakeLists.txt. */
#if defined(__AVX512BF16__)
#define LKI_SIMD 512
#include "engine/cpu/kernels/simd.h"

#include <stdbool.h>

enum { ROWS = 8 };

/* Half a tile of A, eight rows, times one or two tiles of B: a row's pair of k is read as one number and
 * meets sixteen columns at once. */
INLINE void half_tile(float *sums, const uint16_t *a, const uint16_t *b, int64_t steps, const int columns,
                      bool keep)
{
    __m512 sum[ROWS][2];
    UNROLL for (int i = 0; i < ROWS; i++) UNROLL for (int j = 0; j < columns; j++) sum[i][j] =
        keep ? _mm512_loadu_ps(sums + i * 32 + j * 16) : _mm512_setzero_ps();
    for (int64_t step = 0; step < steps; step++, a += 1024, b += 1024)
        for (int pair = 0; pair < 16; pair++) {
            __m512bh y[2];
            UNROLL for (int j = 0; j < columns; j++) y[j] =
                (__m512bh)_mm512_loadu_ps(b + j * 512 + pair * 32);
            UNROLL for (int i = 0; i < ROWS; i++)
            {
                int32_t both;
                memcpy(&both, a + i * 32 + pair * 2, sizeof both);
                __m512bh x = (__m512bh)_mm512_set1_epi32(both);
                UNROLL for (int j = 0; j < columns; j++) sum[i][j] = _mm512_dpbf16_ps(sum[i][j], x, y[j]);
            }
        }
    UNROLL for (int i = 0; i < ROWS; i++) UNROLL for (int j = 0; j < columns; j++)
        _mm512_storeu_ps(sums + i * 32 + j * 16, sum[i][j]);
}

static void block_sums(float *sums, const uint16_t *a, const uint16_t *b, int64_t steps, int rows,
                       int columns, bool keep)
{
    for (int i = 0; i < 2 * rows; i++) {
        const uint16_t *half = a + i / 2 * 512 + i % 2 * ROWS * 32;
        if (columns == 2)
            half_tile(sums + i * ROWS * 32, half, b, steps, 2, keep);
        else
            half_tile(sums + i * ROWS * 32, half, b, steps, 1, keep);
    }
}

INLINE void block_begin(void)
{
}

INLINE void block_end(void)
{
}

#define LKI_LOW_NAME             "avx512bf16"
#define LKI_LOW_TABLE            lki_low_kernels_avx512bf16
#define LKI_LOW_THREAD_WORK      1000000
#define LKI_LOW_OUTRUNS_WINOGRAD false
#include "engine/cpu/kernels/low_product.h"
#endif
