/* Products with a first operand that is mostly zeros, such as the pixels of written digits.
 *
 *   forward: y = x w' for two rows of x at a time, over the columns in which one of them is not zero.
 *   gradient: dw = dy' x for four columns of x at a time, over the rows in which any of the four is not zero.
 *
 * Both hold two or four by LKI_SPARSE_VECTORS vectors of sums in registers, so they exist for AVX-512 alone.
 * Sums run in the order of the dense product, without its zeros. */
#ifndef LKI_CPU_KERNELS_SPARSE_H
#define LKI_CPU_KERNELS_SPARSE_H

#include "engine/cpu/kernels.h"
#include "engine/cpu/kernels/gemm.h"
#include "engine/cpu/kernels/simd.h"

#if LKI_SIMD == 512

/* The more rows share a list, the more zeros they multiply; the fewer, the more often weights come from the
 * second cache. */
enum { FORWARD_ROWS = LKI_SPARSE_ROWS, GRADIENT_COLUMNS = 4 };

static int64_t sparse_count(const float *x, int64_t n)
{
    int64_t count = 0, i = 0;
    for (; i + VN <= n; i += VN) count += __builtin_popcount(v_unequal(v_load(x + i), v_set(0.0f)));
    for (; i < n; i++) count += x[i] != 0;
    return count;
}

/* packed (k, columns rounded up to whole vectors) = the transpose of rows [n0, n0 + columns) of w (n, k). */
static void sparse_pack(float *packed, const float *w, int64_t k, int64_t n0, int64_t columns)
{
    int64_t width = (columns + VN - 1) / VN * VN;
    for (int64_t j = 0; j < width; j += VN) {
        int64_t rows = columns - j < VN ? columns - j : VN;
        for (int64_t p = 0; p < k; p += VN)
            transpose_16(packed + p * width + j, width, w + (n0 + j) * k + p, k, rows,
                         k - p < VN ? k - p : VN);
    }
}

/* The columns in which one of the rows is not zero (room for k + VN), and each row's values there (rows of k
 * + VN values). Whole vectors are written, of which the next one covers what was not meant: no branch has to
 * guess how many. */
static int64_t sparse_list(int32_t *columns, float *values, const float *const *rows, int64_t k)
{
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    int64_t count = 0;
    for (int64_t p = 0; p < k; p += VN) {
        int64_t n = k - p < VN ? k - p : VN;
        v x[FORWARD_ROWS];
        __mmask16 any = 0;
        UNROLL for (int r = 0; r < FORWARD_ROWS; r++)
        {
            x[r] = v_load_n(rows[r] + p, n);
            any |= v_unequal(x[r], v_set(0.0f));
        }
        __m512i at = _mm512_add_epi32(lanes, _mm512_set1_epi32((int)p));
        _mm512_storeu_si512(columns + count, _mm512_maskz_compress_epi32(any, at));
        UNROLL for (int r = 0; r < FORWARD_ROWS; r++)
            _mm512_storeu_ps(values + r * (k + VN) + count, _mm512_maskz_compress_ps(any, (__m512)x[r]));
        count += __builtin_popcount(any);
    }
    return count;
}

INLINE void sparse_forward_tile(const int vectors, const lki_sparse *s, const int32_t *columns,
                                const float *values, int64_t count, int64_t row, int64_t rows, int64_t n0,
                                int64_t tail)
{
    v acc[FORWARD_ROWS][LKI_SPARSE_VECTORS];
    UNROLL for (int r = 0; r < FORWARD_ROWS; r++) UNROLL for (int j = 0; j < vectors; j++) acc[r][j] =
        v_set(0.0f);
    for (int64_t p = 0; p < count; p++) {
        const float *b = s->packed + columns[p] * (int64_t)(vectors * VN), *x = values + p;
        UNROLL for (int j = 0; j < vectors; j++)
        {
            v w = v_load(b + j * VN);
            UNROLL for (int r = 0; r < FORWARD_ROWS; r++) acc[r][j] =
                v_fma(v_set(x[r * (s->k + VN)]), w, acc[r][j]);
        }
    }
    for (int r = 0; r < rows; r++) {
        UNROLL for (int j = 0; j < vectors; j++)
        {
            int64_t n = j == vectors - 1 ? tail : VN;
            v sum = acc[r][j];
            if (s->bias) sum += v_load_n(s->bias + n0 + j * VN, n);
            if (s->relu) sum = v_max(v_set(0.0f), sum);
            v_store_n(s->y + (row + r) * s->n + n0 + j * VN, sum, n);
        }
    }
}

INLINE void sparse_gradient_tile(const int vectors, const lki_sparse *s, const int32_t *list, int64_t count,
                                 int64_t k0, int64_t n0, int64_t tail)
{
    v acc[GRADIENT_COLUMNS][LKI_SPARSE_VECTORS];
    UNROLL for (int c = 0; c < GRADIENT_COLUMNS; c++) UNROLL for (int j = 0; j < vectors; j++) acc[c][j] =
        v_set(0.0f);
    for (int64_t p = 0; p < count; p++) {
        const float *dy = s->dy + list[p] * s->n + n0, *x = s->x + list[p] * s->k + k0;
        UNROLL for (int j = 0; j < vectors; j++)
        {
            v g = j == vectors - 1 ? v_load_n(dy + j * VN, tail) : v_load(dy + j * VN);
            UNROLL for (int c = 0; c < GRADIENT_COLUMNS; c++) acc[c][j] = v_fma(v_set(x[c]), g, acc[c][j]);
        }
    }
    /* Four columns of sixteen outputs each become sixteen rows of four. */
    UNROLL for (int j = 0; j < vectors; j++)
    {
        __m512 a = (__m512)acc[0][j], b = (__m512)acc[1][j], c = (__m512)acc[2][j], d = (__m512)acc[3][j];
        __m512d low = (__m512d)_mm512_unpacklo_ps(a, b), low2 = (__m512d)_mm512_unpacklo_ps(c, d);
        __m512d high = (__m512d)_mm512_unpackhi_ps(a, b), high2 = (__m512d)_mm512_unpackhi_ps(c, d);
        __m512 lanes[4] = {(__m512)_mm512_unpacklo_pd(low, low2), (__m512)_mm512_unpackhi_pd(low, low2),
                           (__m512)_mm512_unpacklo_pd(high, high2), (__m512)_mm512_unpackhi_pd(high, high2)};
        int64_t n = j == vectors - 1 ? tail : VN;
        float out[4][VN];
        UNROLL for (int e = 0; e < 4; e++) _mm512_storeu_ps(out[e], lanes[e]);
        for (int64_t i = 0; i < n; i++)
            _mm_storeu_ps(s->dw + (n0 + j * VN + i) * s->k + k0, _mm_loadu_ps(out[i % 4] + i / 4 * 4));
    }
}

#define SPARSE_CASE(vectors)                                                                                 \
    case vectors:                                                                                            \
        SPARSE_TILE(vectors);                                                                                \
        break;
#define SPARSE_CASES                                                                                         \
    SPARSE_CASE(1) SPARSE_CASE(2) SPARSE_CASE(3) SPARSE_CASE(4) SPARSE_CASE(5) SPARSE_CASE(6) SPARSE_CASE(7)

static void sparse_forward(const lki_sparse *s, int64_t row0, int64_t row1, int64_t n0, int64_t columns,
                           int32_t *list, float *values)
{
    int64_t vectors = (columns + VN - 1) / VN, tail = columns - (vectors - 1) * VN;
    for (int64_t row = row0; row < row1; row += FORWARD_ROWS) {
        int64_t rows = row1 - row < FORWARD_ROWS ? row1 - row : FORWARD_ROWS;
        const float *x[FORWARD_ROWS];
        for (int r = 0; r < FORWARD_ROWS; r++) x[r] = s->x + (row + (r < rows ? r : 0)) * s->k;
        int64_t count = sparse_list(list, values, x, s->k);
#define SPARSE_TILE(vectors) sparse_forward_tile(vectors, s, list, values, count, row, rows, n0, tail)
        switch (vectors) {
            SPARSE_CASES
        }
#undef SPARSE_TILE
    }
}

/* Columns [k0, k1) of dw, both multiples of a vector or the end; k is a multiple of four. */
static void sparse_gradient(const lki_sparse *s, int64_t k0, int64_t k1, int64_t n0, int64_t columns,
                            int32_t *list)
{
    int64_t vectors = (columns + VN - 1) / VN, tail = columns - (vectors - 1) * VN;
    for (int64_t p = k0; p < k1; p += VN) {
        int64_t n = k1 - p < VN ? k1 - p : VN, count[4] = {0};
        for (int64_t i = 0; i < s->m; i++) {
            unsigned any = v_unequal(v_load_n(s->x + i * s->k + p, n), v_set(0.0f));
            for (int q = 0; q < 4;
                 q++) { /* without a branch: the entry is overwritten where it was not meant */
                list[q * s->m + count[q]] = (int32_t)i;
                count[q] += (any >> (4 * q) & 15) != 0;
            }
        }
        for (int64_t q = 0; q < n / 4; q++) {
#define SPARSE_TILE(vectors) sparse_gradient_tile(vectors, s, list + q * s->m, count[q], p + 4 * q, n0, tail)
            switch (vectors) {
                SPARSE_CASES
            }
#undef SPARSE_TILE
        }
    }
}

static const lki_sparse_kernels sparse_kernels = {sparse_count, sparse_pack, sparse_forward, sparse_gradient};
#define SPARSE (&sparse_kernels)
#else
#define SPARSE NULL
#endif

#endif
