/* Products of matrices. Two kernels, each holding a block of C in registers:
 *   outer: rows of B as vectors times broadcast elements of A; the general one. B is used in place or, where
 * it is read often or is transposed, copied into panels first. dot:   rows of A times rows of B along k,
 * summed across the vector at the end; for a transposed B with few rows of A, where copying B would cost more
 * than it saves. The order of additions depends on the sizes alone. */
#ifndef LKI_CPU_KERNELS_GEMM_H
#define LKI_CPU_KERNELS_GEMM_H

#include "engine/cpu/kernels.h"
#include "engine/cpu/kernels/simd.h"
#include "engine/cpu/kernels/transpose.h"

/* Registers: 32 for AVX-512, 16 otherwise. */
#if LKI_SIMD == 512
enum { OUTER_ROWS = 14, DOT_ROWS = 4, DOT_COLUMNS = 6 };
#else
enum { OUTER_ROWS = 6, DOT_ROWS = 2, DOT_COLUMNS = 4 };
#endif
enum { PANEL = 2 * VN, BLOCK_K = LKI_GEMM_BLOCK_K, BLOCK_N = LKI_GEMM_BLOCK_N, DOT_BLOCK_K = 2048 };

typedef struct tile {
    int64_t k;
    const float *a;
    int64_t a_row, a_col;
    const float *b; /* (k, columns), unit column stride (outer) or (columns, k) with unit k stride (dot) */
    int64_t b_row;
    const float *ahead; /* what the next block will copy, as many rows of PANEL numbers */
    int64_t ahead_row;
    float *c;
    int64_t c_row;
    int64_t tail; /* columns in the last vector */
    const float *bias, *row_bias;
    bool accumulate, relu;
} tile;

INLINE v load_tail(const float *p, int64_t tail)
{
#if LKI_SIMD == 512
    return v_load_n(p, tail);
#else
    return tail == VN ? v_load(p) : v_load_n(p, tail);
#endif
}

INLINE void outer_store(const tile *t, v acc, int row, int column, bool last)
{
    int64_t tail = last ? t->tail : VN;
    float *c = t->c + row * t->c_row + column * VN;
    if (t->accumulate) acc += load_tail(c, tail);
    if (t->bias) acc += load_tail(t->bias + column * VN, tail);
    if (t->row_bias) acc += v_set(t->row_bias[row]);
    if (t->relu) acc = v_max(v_set(0.0f), acc);
    if (tail == VN)
        v_store(c, acc);
    else
        v_store_n(c, acc, tail);
}

/* C (rows, columns * VN) = A (rows, k) B (k, columns * VN); rows and columns are constants where this is
 * inlined. */
INLINE void outer_tile(const int rows, const int columns, const tile *t)
{
    v acc[OUTER_ROWS][2];
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int j = 0; j < columns; j++) acc[i][j] = v_set(0.0f);
    const float *a = t->a, *b = t->b, *ahead = t->ahead;
    const int64_t a_row = t->a_row, a_col = t->a_col, b_row = t->b_row, tail = t->tail,
                  ahead_row = t->ahead_row;
    for (int64_t p = 0; p < t->k; p++) {
        v b0 = columns == 1 ? load_tail(b, tail) : v_load(b),
          b1 = columns == 1 ? b0 : load_tail(b + VN, tail);
        if (rows >= 8 && columns == 2) {
            __builtin_prefetch(ahead, 0, 2);
            __builtin_prefetch(ahead + VN, 0, 2);
            ahead += ahead_row;
        }
        UNROLL for (int i = 0; i < rows; i++)
        {
            v x = v_set(a[i * a_row]);
            acc[i][0] = v_fma(x, b0, acc[i][0]);
            if (columns == 2) acc[i][1] = v_fma(x, b1, acc[i][1]);
        }
        a += a_col;
        b += b_row;
    }
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int j = 0; j < columns; j++)
        outer_store(t, acc[i][j], i, j, j == columns - 1);
}

#if LKI_SIMD == 512
/* The same for 17 to 24 columns, with half a vector for those beyond 16: two of them take the time of one. */
INLINE void outer_half_tile(const int rows, const tile *t)
{
    v acc[OUTER_ROWS];
    __m256 half[OUTER_ROWS];
    UNROLL for (int i = 0; i < rows; i++) acc[i] = v_set(0.0f), half[i] = _mm256_setzero_ps();
    const float *a = t->a, *b = t->b;
    const int64_t a_row = t->a_row, a_col = t->a_col, b_row = t->b_row;
    const __mmask8 mask = (__mmask8)((1u << t->tail) - 1);
    for (int64_t p = 0; p < t->k; p++) {
        v b0 = v_load(b);
        __m256 b1 = _mm256_maskz_loadu_ps(mask, b + VN);
        UNROLL for (int i = 0; i < rows; i++)
        {
            v x = v_set(a[i * a_row]);
            acc[i] = v_fma(x, b0, acc[i]);
            half[i] = _mm256_fmadd_ps(_mm512_castps512_ps256((__m512)x), b1, half[i]);
        }
        a += a_col;
        b += b_row;
    }
    UNROLL for (int i = 0; i < rows; i++)
    {
        outer_store(t, acc[i], i, 0, false);
        outer_store(t, (v)_mm512_zextps256_ps512(half[i]), i, 1, true);
    }
}
#define OUTER_HALF(rows, t) outer_half_tile(rows, t)
#else
#define OUTER_HALF(rows, t) outer_tile(rows, 2, t)
#endif

#define OUTER(rows)                                                                                          \
    static void outer_##rows##_1(const tile *t)                                                              \
    {                                                                                                        \
        outer_tile(rows, 1, t);                                                                              \
    }                                                                                                        \
    static void outer_##rows##_2(const tile *t)                                                              \
    {                                                                                                        \
        outer_tile(rows, 2, t);                                                                              \
    }                                                                                                        \
    static void outer_##rows##_half(const tile *t)                                                           \
    {                                                                                                        \
        OUTER_HALF(rows, t);                                                                                 \
    }
#define OUTER_NAMES(rows) {outer_##rows##_1, outer_##rows##_2, outer_##rows##_half},

typedef void (*tile_run)(const tile *t);

#if LKI_SIMD == 512
#define OUTER_LIST(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14)
#define DOT_LIST(X)   X(1) X(2) X(3) X(4)
#else
#define OUTER_LIST(X) X(1) X(2) X(3) X(4) X(5) X(6)
#define DOT_LIST(X)   X(1) X(2)
#endif
OUTER_LIST(OUTER)
static const tile_run outer_run[OUTER_ROWS][3] = {OUTER_LIST(OUTER_NAMES)};

/* The sums of four vectors. */
INLINE void sum_four(float *out, v a, v b, v c, v d)
{
#if LKI_SIMD == 512
    __m512 ab =
        _mm512_add_ps(_mm512_unpacklo_ps((__m512)a, (__m512)b), _mm512_unpackhi_ps((__m512)a, (__m512)b));
    __m512 cd =
        _mm512_add_ps(_mm512_unpacklo_ps((__m512)c, (__m512)d), _mm512_unpackhi_ps((__m512)c, (__m512)d));
    __m512d low = _mm512_unpacklo_pd((__m512d)ab, (__m512d)cd),
            high = _mm512_unpackhi_pd((__m512d)ab, (__m512d)cd);
    __m512 abcd = _mm512_add_ps((__m512)low, (__m512)high);
    __m256 half = _mm256_add_ps(_mm512_castps512_ps256(abcd), _mm512_extractf32x8_ps(abcd, 1));
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1)));
#else
    out[0] = v_sum(a), out[1] = v_sum(b), out[2] = v_sum(c), out[3] = v_sum(d);
#endif
}

INLINE void dot_store(const tile *t, const float *sum, int row, int columns)
{
    float *c = t->c + row * t->c_row;
    for (int j = 0; j < columns; j++) {
        float value = sum[j];
        if (t->accumulate) value += c[j];
        if (t->bias) value += t->bias[j];
        if (t->row_bias) value += t->row_bias[row];
        if (t->relu) value = value > 0 || value != value ? value : 0;
        c[j] = value;
    }
}

/* C (rows, columns) = A (rows, k) B (columns, k)^T. */
INLINE void dot_tile(const int rows, const int columns, const tile *t)
{
    v acc[DOT_ROWS][8];
    UNROLL for (int i = 0; i < DOT_ROWS; i++) UNROLL for (int j = 0; j < 8; j++) acc[i][j] = v_set(0.0f);
    const float *a = t->a, *b = t->b;
    const int64_t a_row = t->a_row, b_row = t->b_row;
    int64_t p = 0;
    for (; p + VN <= t->k; p += VN) {
        v x[DOT_ROWS];
        UNROLL for (int i = 0; i < rows; i++) x[i] = v_load(a + i * a_row + p);
        UNROLL for (int j = 0; j < columns; j++)
        {
            v y = v_load(b + j * b_row + p);
            UNROLL for (int i = 0; i < rows; i++) acc[i][j] = v_fma(x[i], y, acc[i][j]);
        }
    }
    if (p < t->k) {
        int64_t tail = t->k - p;
        UNROLL for (int j = 0; j < columns; j++)
        {
            v y = v_load_n(b + j * b_row + p, tail);
            UNROLL for (int i = 0; i < rows; i++) acc[i][j] =
                v_fma(v_load_n(a + i * a_row + p, tail), y, acc[i][j]);
        }
    }
    UNROLL for (int i = 0; i < rows; i++)
    {
        float sum[8];
        sum_four(sum, acc[i][0], acc[i][1], acc[i][2], acc[i][3]);
        if (columns > 4) sum_four(sum + 4, acc[i][4], acc[i][5], acc[i][6], acc[i][7]);
        dot_store(t, sum, i, columns);
    }
}

#define DOT_ONE(rows, columns)                                                                               \
    static void dot_##rows##_##columns(const tile *t)                                                        \
    {                                                                                                        \
        dot_tile(rows, columns, t);                                                                          \
    }
#if LKI_SIMD == 512
#define DOT(rows)                                                                                            \
    DOT_ONE(rows, 1) DOT_ONE(rows, 2) DOT_ONE(rows, 3) DOT_ONE(rows, 4) DOT_ONE(rows, 5) DOT_ONE(rows, 6)
#define DOT_NAMES(rows)                                                                                      \
    {dot_##rows##_1, dot_##rows##_2, dot_##rows##_3, dot_##rows##_4, dot_##rows##_5, dot_##rows##_6},
#else
#define DOT(rows)       DOT_ONE(rows, 1) DOT_ONE(rows, 2) DOT_ONE(rows, 3) DOT_ONE(rows, 4)
#define DOT_NAMES(rows) {dot_##rows##_1, dot_##rows##_2, dot_##rows##_3, dot_##rows##_4},
#endif
DOT_LIST(DOT)
static const tile_run dot_run[DOT_ROWS][DOT_COLUMNS] = {DOT_LIST(DOT_NAMES)};

/* Where part i of `parts` nearly equal parts of `count` begins. */
INLINE int64_t part_begin(int64_t count, int64_t parts, int64_t i)
{
    return count / parts * i + (i < count % parts ? i : count % parts);
}

INLINE int64_t parts_of(int64_t count, int64_t most)
{
    return (count + most - 1) / most;
}

#if LKI_SIMD == 512
/* out (16, out_row) = in^T, of in's `rows` rows of `columns` floats; what is missing of 16 by 16 is zero. */
INLINE void transpose_16(float *out, int64_t out_row, const float *in, int64_t in_row, int64_t rows,
                         int64_t columns)
{
    __m512 r[16];
    const __mmask16 mask = (__mmask16)((1u << columns) - 1);
    UNROLL for (int i = 0; i < 16; i++) r[i] =
        i < rows ? _mm512_maskz_loadu_ps(mask, in + i * in_row) : _mm512_setzero_ps();
    transpose_registers(r);
    UNROLL for (int i = 0; i < 16; i++) if (i < columns) _mm512_storeu_ps(out + i * out_row, r[i]);
}
#endif

/* panel (k, PANEL) = B's `columns` columns from (p0, j0) on, zero beyond them. */
static void pack_panel(float *panel, const lki_gemm *g, int64_t p0, int64_t k, int64_t j0, int64_t columns)
{
    const float *b = g->b + p0 * g->b_row + j0 * g->b_col;
    if (g->b_col == 1) {
        for (int64_t p = 0; p < k; p++, b += g->b_row, panel += PANEL) {
            if (columns == PANEL) {
                v_store(panel, v_load(b));
                v_store(panel + VN, v_load(b + VN));
            } else {
                for (int64_t j = 0; j < PANEL; j++) panel[j] = j < columns ? b[j] : 0;
            }
        }
        return;
    }
#if LKI_SIMD == 512
    if (g->b_row == 1) {
        for (int64_t half = 0; half < PANEL; half += 16) {
            int64_t rows = columns - half < 0 ? 0 : columns - half > 16 ? 16 : columns - half;
            for (int64_t p = 0; p < k; p += 16)
                transpose_16(panel + p * PANEL + half, PANEL, b + half * g->b_col + p, g->b_col, rows,
                             k - p < 16 ? k - p : 16);
        }
        return;
    }
#endif
    for (int64_t p = 0; p < k; p++)
        for (int64_t j = 0; j < PANEL; j++)
            panel[p * PANEL + j] = j < columns ? b[p * g->b_row + j * g->b_col] : 0;
}

typedef struct range {
    int64_t m0, m1, n0, n1;
} range;

/* A (rows, k) of unit column stride as (k, 16): broadcasts then come from one line instead of one a row. */
INLINE void pack_tile(float *out, const float *a, int64_t a_row, int64_t rows, int64_t k)
{
#if LKI_SIMD == 512
    for (int64_t p = 0; p < k; p += 16)
        transpose_16(out + p * 16, 16, a + p, a_row, rows, k - p < 16 ? k - p : 16);
#else
    for (int64_t i = 0; i < rows; i++)
        for (int64_t p = 0; p < k; p++) out[p * 16 + i] = a[i * a_row + p];
#endif
}

/* It pays where A is too large for the second cache and each tile of it meets many panels. */
INLINE bool packs_tiles(const lki_gemm *g, range r)
{
    return g->a_col == 1 && g->a_row != 1 && g->m * g->k > 1 << 18 && r.n1 - r.n0 >= 6 * PANEL;
}

/* One block: rows [m0, m1), columns [n0, n1) of at most BLOCK_N, k in [p0, p0 + k). */
static void outer_block(const lki_gemm *g, range r, int64_t p0, int64_t k, bool pack, float *scratch)
{
    bool final = p0 + k == g->k, pack_a = packs_tiles(g, r);
    float *packed = scratch + (pack ? parts_of(r.n1 - r.n0, PANEL) * PANEL * k : 0);
    int64_t panels = parts_of(r.n1 - r.n0, PANEL), tiles = parts_of(r.m1 - r.m0, OUTER_ROWS);
    for (int64_t q = 0; pack && q < panels; q++) {
        int64_t j = r.n0 + q * PANEL, columns = r.n1 - j < PANEL ? r.n1 - j : PANEL;
        pack_panel(scratch + q * k * PANEL, g, p0, k, j, columns);
    }
    for (int64_t i = 0; i < tiles; i++) {
        int64_t row = r.m0 + part_begin(r.m1 - r.m0, tiles, i),
                rows = r.m0 + part_begin(r.m1 - r.m0, tiles, i + 1) - row;
        const float *a = g->a + row * g->a_row + p0 * g->a_col;
        if (pack_a) pack_tile(packed, a, g->a_row, rows, k);
        for (int64_t q = 0; q < panels; q++) {
            int64_t j = r.n0 + q * PANEL, columns = r.n1 - j < PANEL ? r.n1 - j : PANEL;
            tile t = {
                .k = k,
                .a = pack_a ? packed : a,
                .a_row = pack_a ? 1 : g->a_row,
                .a_col = pack_a ? 16 : g->a_col,
                .b = pack ? scratch + q * k * PANEL : g->b + p0 * g->b_row + j,
                .b_row = pack ? PANEL : g->b_row,
                .c = g->c + row * g->c_row + j,
                .c_row = g->c_row,
                .tail = columns > VN ? columns - VN : columns,
                .bias = final && g->bias ? g->bias + j : NULL,
                .row_bias = final && g->row_bias ? g->row_bias + row : NULL,
                .accumulate = g->accumulate || p0,
                .relu = final && g->relu,
            };
            bool more = pack && i == 0 && g->b_col == 1 && j + BLOCK_N < g->n;
            t.ahead = more ? g->b + p0 * g->b_row + j + BLOCK_N : t.b;
            t.ahead_row = more ? g->b_row : t.b_row;
            outer_run[rows - 1][columns <= VN ? 0 : columns <= VN + VN / 2 ? 2 : 1](&t);
        }
    }
}

static void outer_range(const lki_gemm *g, range r, float *scratch)
{
    bool is_panel = g->n <= PANEL && g->b_row <= PANEL; /* dense already */
    bool pack = g->b_col != 1 || (r.m1 - r.m0 >= 3 * OUTER_ROWS && !is_panel);
    int64_t blocks = g->k ? parts_of(g->k, BLOCK_K) : 1;
    for (int64_t n = r.n0; n < r.n1; n += BLOCK_N)
        for (int64_t i = 0; i < blocks; i++) {
            range part = {r.m0, r.m1, n, n + BLOCK_N < r.n1 ? n + BLOCK_N : r.n1};
            int64_t p0 = part_begin(g->k, blocks, i);
            outer_block(g, part, p0, part_begin(g->k, blocks, i + 1) - p0, pack, scratch);
        }
}

static void dot_block(const lki_gemm *g, range r, int64_t p0, int64_t k)
{
    bool final = p0 + k == g->k;
    int64_t tiles_n = parts_of(r.n1 - r.n0, DOT_COLUMNS), tiles_m = parts_of(r.m1 - r.m0, DOT_ROWS);
    for (int64_t q = 0; q < tiles_n; q++) {
        int64_t j = r.n0 + part_begin(r.n1 - r.n0, tiles_n, q),
                columns = r.n0 + part_begin(r.n1 - r.n0, tiles_n, q + 1) - j;
        for (int64_t i = 0; i < tiles_m; i++) {
            int64_t row = r.m0 + part_begin(r.m1 - r.m0, tiles_m, i);
            int64_t rows = r.m0 + part_begin(r.m1 - r.m0, tiles_m, i + 1) - row;
            tile t = {
                .k = k,
                .a = g->a + row * g->a_row + p0,
                .a_row = g->a_row,
                .b = g->b + j * g->b_col + p0,
                .b_row = g->b_col,
                .c = g->c + row * g->c_row + j,
                .c_row = g->c_row,
                .bias = final && g->bias ? g->bias + j : NULL,
                .row_bias = final && g->row_bias ? g->row_bias + row : NULL,
                .accumulate = g->accumulate || p0,
                .relu = final && g->relu,
            };
            dot_run[rows - 1][columns - 1](&t);
        }
    }
}

/* A copy of the transposed B pays for itself once enough rows of A use it; a short k leaves the sums across
 * vectors as most of dot's work. */
INLINE bool prefers_dot(const lki_gemm *g, int64_t rows)
{
    if (g->a_col != 1 || g->b_row != 1 || g->b_col == 1) return false;
    return rows < 8 ? g->k >= VN : rows <= 128 && g->k >= 12 * VN;
}

static void gemm_range(const lki_gemm *g, int64_t m0, int64_t m1, int64_t n0, int64_t n1, float *scratch)
{
    range r = {m0, m1, n0, n1};
    if (!prefers_dot(g, m1 - m0)) {
        outer_range(g, r, scratch);
        return;
    }
    int64_t blocks = g->k ? parts_of(g->k, DOT_BLOCK_K) : 1;
    for (int64_t i = 0; i < blocks; i++) {
        int64_t p0 = part_begin(g->k, blocks, i);
        dot_block(g, r, p0, part_begin(g->k, blocks, i + 1) - p0);
    }
}

#endif
