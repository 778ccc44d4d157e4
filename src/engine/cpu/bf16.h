/* Products of bf16 by the processor's own instructions for them: AVX512-BF16 (vdpbf16ps) and AMX (tdpbf16ps).
 *
 * Both multiply tiles of 16 rows of A with 16 columns of B, 32 elements along k at a time, and add pairs of
 * products to sums in f32. So operands are first copied into tiles, zeros where k ends; then blocks of 32 x
 * 32 sums are computed, each by one thread from the first k to the last. The bits of a result depend on the
 * kernels and on the sizes, not on the number of threads. Denormal factors count as zero, as the instructions
 * have it.
 *
 * Tiles of A: 16 rows x 32 k. Tiles of B: 16 pairs of k x 16 columns x the pair. Either is 1,024 bytes. */
#ifndef LKI_CPU_BF16_H
#define LKI_CPU_BF16_H

#include "engine/cpu/kernels.h"

enum {
    LKI_BF16_SIDE = 32,    /* of a block, and the k that a tile holds */
    LKI_BF16_TILE = 512,   /* elements */
    LKI_BF16_SUMS = 1024,  /* floats of a block */
    LKI_BF16_DEPTH = 2048, /* the longest k whose sums stay in registers from beginning to end */
    LKI_BF16_BLOCK_K = 1024,
};

/* C (m, n) = A B plus bias (a row of n) and row_bias (a column of m) where given, then ReLU. A's element (i,
 * p) lies at a[i * a_row + p * a_col], B's (p, j) at b[p * b_row + j * b_col]; one stride of each is 1.
 * Pointers are aligned to 64 bytes, but for a, b and c. */
typedef struct lki_bf16_gemm {
    int64_t m, n, k;
    const uint16_t *a, *b;
    int64_t a_row, a_col, b_row, b_col;
    void *c;
    int64_t c_row;
    lk_dtype c_dtype; /* LK_F32 or LK_BF16 */
    const float *bias, *row_bias;
    bool relu;
    uint16_t *packed_a, *packed_b; /* lki_bf16_packed_nbytes each */
    float *partial;                /* lki_bf16_partial_nbytes; NULL where k is at most LKI_BF16_DEPTH */
    bool keep;                     /* with partial: adds to what is there, and leaves C to `finish` */
} lki_bf16_gemm;

/* Tiles of A: row i of tile t along k begins at data + i * row + at[t], the second sixteen rows `tile`
 * elements after the first; where `at` is NULL, tiles are packed. */
typedef struct lki_bf16_rows {
    const uint16_t *data;
    int64_t row, tile;
    const int64_t *at;
} lki_bf16_rows;

/* A convolution with stride 1 over one sample and group: kernels/bf16_shift.h. The grid is the input with its
 * padding; a place is an element of it, channels left out. */
typedef struct lki_bf16_shift {
    int64_t channels, depth, outs; /* depth: channels in whole tiles */
    int64_t in[3], out[3], grid[3], padding[3];
    int64_t places; /* from the first output to the last, in whole blocks */
    int64_t taps;
    const int64_t *tap_at;  /* how many places a tap is further on */
    const int64_t *step_at; /* the same in elements of `turned`, for each 32 channels of each tap */
    uint16_t *turned;       /* forward: (places, depth); gradient: (channels, spread_plane) */
    int64_t spread_plane;
    uint16_t *packed; /* forward: weights; gradient: dy, in tiles */
    void *y;
    lk_dtype y_dtype;
    const float *bias;
    bool relu;
} lki_bf16_shift;

typedef struct lki_bf16_kernels {
    const char *name;
    int64_t thread_work;   /* multiply-adds that make a second thread worth waking */
    bool outruns_winograd; /* a direct convolution takes less time than Winograd's in f32 */
    /* Blocks of 32 rows of A, and panels of 32 columns of B, into tiles. */
    void (*pack_a)(const lki_bf16_gemm *g, int64_t begin, int64_t end);
    void (*pack_b)(const lki_bf16_gemm *g, int64_t begin, int64_t end);
    /* Blocks of C: block i is rows i % lki_bf16_parts(m), panel i / lki_bf16_parts(m). */
    void (*multiply)(const lki_bf16_gemm *g, int64_t begin, int64_t end);
    /* From `partial` to C. */
    void (*finish)(const lki_bf16_gemm *g, int64_t begin, int64_t end);
    void (*shift_turn)(const lki_bf16_shift *s, const uint16_t *x);
    void (*shift_forward)(const lki_bf16_shift *s);
    void (*shift_spread)(uint16_t *out, int64_t out_plane, const lki_bf16_shift *s, const uint16_t *x,
                         int64_t channels, bool is_input);
    void (*shift_gradient)(const lki_bf16_shift *s, float *sums);
    bool (*is_finite)(const uint16_t *x, int64_t n);
    /* As lki_cpu_kernels.im2col. */
    void (*im2col)(uint16_t *col, int64_t col_row, const lki_conv *c, const uint16_t *x, int64_t p0,
                   int64_t p1);
} lki_bf16_kernels;

#if defined(__x86_64__)
extern const lki_bf16_kernels lki_bf16_kernels_avx512bf16, lki_bf16_kernels_amx;
#endif

static inline int64_t lki_bf16_parts(int64_t count)
{
    return (count + LKI_BF16_SIDE - 1) / LKI_BF16_SIDE;
}

/* Of `count` rows of A, or columns of B. */
static inline size_t lki_bf16_packed_nbytes(int64_t count, int64_t k)
{
    return (size_t)(lki_bf16_parts(count) * lki_bf16_parts(k)) * 2 * LKI_BF16_TILE * sizeof(uint16_t);
}

static inline size_t lki_bf16_partial_nbytes(int64_t m, int64_t n)
{
    return (size_t)(lki_bf16_parts(m) * lki_bf16_parts(n)) * LKI_BF16_SUMS * sizeof(float);
}

#endif
