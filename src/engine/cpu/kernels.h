/* The vector kernels of the cpu engine as one table, filled once a vector width (level_*.c). The ops' drivers
 * (*.c beside this file) cut the work among threads and call these on ranges. Kernels allocate nothing and
 * keep no state. */
#ifndef LKI_CPU_KERNELS_H
#define LKI_CPU_KERNELS_H

#include <lockstep/sys/op.h>

typedef struct lki_tile_args {
    float alpha, beta;
    int mode;
} lki_tile_args;

typedef void (*lki_tile_fn)(float *out, const float *a, const float *b, const float *c, int64_t n,
                            const lki_tile_args *args);

/* C (m, n) = A B, plus C's old value where accumulate, plus bias (a row of n) and row_bias (a column of m)
 * where given, then ReLU. A's element (i, p) lies at a[i * a_row + p * a_col], B's (p, j) at b[p * b_row + j
 * * b_col]; one of B's strides is 1. */
typedef struct lki_gemm {
    int64_t m, n, k;
    const float *a;
    int64_t a_row, a_col;
    const float *b;
    int64_t b_row, b_col;
    float *c;
    int64_t c_row;
    const float *bias, *row_bias;
    bool relu, accumulate;
} lki_gemm;

enum { LKI_GEMM_BLOCK_K = 256, LKI_GEMM_BLOCK_N = 256, LKI_GEMM_PANEL = 32 };

/* What a pointwise loss reads; weight and pos_weight may be NULL. */
typedef struct lki_loss_args {
    lk_pointwise_loss kind;
    float alpha;
    const float *x, *target, *weight, *pos_weight;
    const float *dloss; /* one an element, or NULL: then scale alone */
    float scale;
} lki_loss_args;

/* An update over [0, n) of flat slices; the numbers of lk_hyper made ready for f32. */
typedef struct lki_update_args {
    float *param;
    const float *grad;
    float *state[3];
    float grad_scale; /* its sign carries maximize */
    float lr, momentum, keep, weight_decay, beta1, beta2, rest1, rest2, eps, inverse_root,
        decay;       /* rest: 1 - beta */
    float mu, next;  /* nadam: mu of this step and the next; asgd: mu of this step, eta of the next */
    float low, high; /* rprop: the bounds of a step */
    bool nesterov, first, amsgrad, centered, rectifies;
} lki_update_args;

/* One group of one sample of a convolution, always with three spatial axes: (channels, in...) to (out...). */
typedef struct lki_conv {
    int64_t channels;
    int64_t in[3], out[3], kernel[3], stride[3], padding[3], dilation[3];
} lki_conv;

/* The sizes of a convolution with 3 x 3 kernels and stride 1, cut into output tiles of 4 x 4. */
typedef struct lki_winograd {
    int64_t batch, in_channels, out_channels;
    int64_t in_height, in_width, out_height, out_width, pad_y, pad_x;
    int64_t tiles_y, tiles_x; /* of one sample */
} lki_winograd;

/* A convolution of at most 16 output channels with kernels two columns wide and stride 2 along them; one
 * group of one sample: x (channels, in...), w (outs, k), y (outs, out...). */
typedef struct lki_pairs {
    lki_conv one;
    int64_t outs, k;
    const float *w, *bias;
    bool relu;
} lki_pairs;

/* See kernels/conv_pairs.h. */
typedef struct lki_pairs_kernels {
    void (*forward)(float *y, const lki_pairs *p, const float *x, float *wt); /* wt (k, 16) is scratch */
    /* Adds to dw; lanes (2, out rows, 16) is scratch. */
    void (*gradient)(float *dw, const lki_pairs *p, const float *x, const float *dy, float *lanes);
} lki_pairs_kernels;

enum { LKI_WINOGRAD_PANEL = 32 };

/* Between tensors and the 36 matrices whose products Winograd's convolution is; see kernels/winograd.h.
 * Element (f, c) of a tile lies at [f * lanes + c], tiles lki_winograd_tile floats apart; U (36, rows,
 * columns) is cut into panels of columns, each (36, rows, 32). A strip is a row of tiles of a sample: strip s
 * is row s % tiles_y of sample s / tiles_y. `stage` holds lki_winograd_stage_count floats. */
typedef struct lki_winograd_kernels {
    void (*weights)(float *u, const float *w, int64_t rows, int64_t columns, int64_t row_stride,
                    int64_t column_stride);
    void (*weights_back)(float *dw, const float *u, int64_t rows, int64_t columns);
    void (*input)(float *out, const lki_winograd *w, const float *x, int64_t begin, int64_t end,
                  float *stage);
    void (*gradient)(float *out, const lki_winograd *w, const float *dy, int64_t begin, int64_t end,
                     float *stage, double *sums);
    void (*output)(float *y, const lki_winograd *w, const float *m, int64_t c0, int64_t begin, int64_t end,
                   const float *bias, bool relu, float *stage);
    void (*input_back)(float *dx, const lki_winograd *w, const float *m, int64_t c0, int64_t begin,
                       int64_t end, float *stage, float *carry);
} lki_winograd_kernels;

enum { LKI_SPARSE_VECTORS = 7, LKI_SPARSE_ROWS = 2 };

/* The bits of infinity: from here on a magnitude is not that of a finite number. */
enum { LKI_INFINITE_BITS = 0x7f800000 };

/* A linear layer over a sparse x: x (m, k), y and dy (m, n), dw (n, k). */
typedef struct lki_sparse {
    int64_t m, n, k;
    const float *x, *dy, *bias;
    const float *packed; /* the transposed weights of a group of outputs */
    float *y, *dw;
    bool relu;
} lki_sparse;

/* See kernels/sparse.h. A group is at most 16 * LKI_SPARSE_VECTORS outputs, from n0 on. */
typedef struct lki_sparse_kernels {
    int64_t (*count)(const float *x, int64_t n); /* of numbers that are not zero */
    void (*pack)(float *packed, const float *w, int64_t k, int64_t n0, int64_t columns);
    void (*forward)(const lki_sparse *s, int64_t row0, int64_t row1, int64_t n0, int64_t columns,
                    int32_t *list, float *values);
    void (*gradient)(const lki_sparse *s, int64_t k0, int64_t k1, int64_t n0, int64_t columns, int32_t *list);
} lki_sparse_kernels;

/* One step of one sequence of a recurrent layer with `size` units; rows of gates hold G of these, one after
 * another. Gates and `extra` are what the gradient needs: an LSTM's c, a GRU's W_hn h + b_hn. */
typedef struct lki_recurrent_row {
    lk_recurrent kind;
    int64_t size;
    const float *x, *h_gates;   /* forward: the shares of the input and of h in the gates */
    float *h, *c;               /* forward: old state in, new one out */
    float *gates, *extra;       /* forward writes them; NULL where nobody needs them */
    const float *h_old, *c_old; /* backward: the states before the step; NULL: zero */
    const float *y;             /* backward of an RNN: the new h */
    float *dh, *dc; /* backward: of the new states in; of the old ones out, but for dh's share of the gates */
    float *dgates;  /* backward: of x */
    float *dgates_h; /* backward of a GRU: of h_gates */
} lki_recurrent_row;

/* Rows of attention's scores, in the tiles of engine/cpu/attention.c. The added rows may be NULL. */
typedef struct lki_attention_kernels {
    /* B (k, n), whose element (p, j) lies at b[p * row + j * column] and one of whose strides is 1, as panels
     * (k, LKI_GEMM_PANEL), zero beyond n. */
    void (*pack)(float *panels, const float *b, int64_t k, int64_t n, int64_t row, int64_t column);
    /* s = s scale + first + second; returns the largest. */
    float (*score)(float *s, const float *first, const float *second, float scale, int64_t n);
    /* s = exp(s - largest); returns the sum. */
    float (*exponentials)(float *s, float largest, int64_t n);
    /* s, which is what score was given, becomes the weights P = exp(score - log_sum), times `kept` where that
     * is there. d, the gradients of those, becomes scale P (d kept - delta). */
    void (*back)(float *s, float *d, const float *first, const float *second, const float *kept, float scale,
                 float log_sum, float delta, int64_t n);
    /* a = a b for n numbers, and a = a factor. */
    void (*multiply)(float *a, const float *b, int64_t n);
    void (*scale)(float *a, float factor, int64_t n);
} lki_attention_kernels;

typedef struct lki_cpu_kernels {
    const char *name;
    const lki_tile_fn *tile; /* by op; NULL where an op is not elementwise */
    void (*tile_load)(float *out, const void *data, lk_dtype dtype, int64_t n);
    void (*tile_save)(void *data, const float *in, lk_dtype dtype, int64_t n);
    void (*tile_fill)(float *out, float value, int64_t n);

    /* The block [m0, m1) x [n0, n1) of C; scratch holds lki_gemm_scratch_count floats. */
    void (*gemm)(const lki_gemm *g, int64_t m0, int64_t m1, int64_t n0, int64_t n1, float *scratch);

    /* Columns (channels * taps, p1 - p0), rows col_row apart, of the output positions [p0, p1); and their way
     * back, added. */
    void (*im2col)(float *col, int64_t col_row, const lki_conv *c, const float *x, int64_t p0, int64_t p1);
    void (*col2im)(float *x, const lki_conv *c, const float *col, int64_t col_row, int64_t p0, int64_t p1);

    const lki_pairs_kernels *pairs;       /* NULL where this width has none */
    const lki_winograd_kernels *winograd; /* likewise */
    const lki_sparse_kernels *sparse;     /* likewise */

    double (*sum)(const float *x, int64_t n);
    double (*sum_squares)(const float *x, int64_t n);
    double (*sum_square_deviations)(const float *x, int64_t n, float mean);
    double (*sum_products)(const float *x, const float *y, int64_t n);
    float (*largest)(const float *x, int64_t n); /* NaN where there is one */
    /* The bits of the largest |x|; see LKI_INFINITE_BITS. */
    uint32_t (*magnitude)(const float *x, int64_t n);
    /* out (n) = the sums over rows of x (rows, row_stride). */
    void (*column_sums)(float *out, const float *x, int64_t rows, int64_t row_stride, int64_t n);
    void (*add_to)(float *sum, const float *x, int64_t n);
    void (*max_to)(float *best, const float *x, int64_t n);
    void (*scale_shift)(float *y, const float *x, float scale, float shift, int64_t n); /* x scale + shift */

    /* Over rows of (outer, c, inner) along c. */
    void (*softmax)(float *y, const float *x, int64_t outer, int64_t c, int64_t inner, bool log);
    void (*softmax_grad)(float *dx, const float *dy, const float *y, int64_t outer, int64_t c, int64_t inner,
                         bool log);
    /* dx = scale (exp logp), for n elements: what cross-entropy's gradient is before the target is taken off.
     */
    void (*scaled_exp)(float *dx, const float *logp, float scale, int64_t n);

    /* The sum over [begin, end), or with `out` each element's loss there. */
    double (*loss)(const lki_loss_args *args, float *out, int64_t begin, int64_t end);
    void (*loss_grad)(const lki_loss_args *args, float *dx, int64_t begin, int64_t end);

    void (*update[LK_UPDATE_COUNT])(const lki_update_args *args, int64_t begin, int64_t end);
    /* Windows over one plane (in...) to (out...); with NaN and ties as op.h says. y or index may be NULL.
     * sum_pool leaves the division to the caller. */
    void (*max_pool_plane)(float *y, int32_t *index, const lki_conv *c, const float *x);
    void (*sum_pool_plane)(float *y, const lki_conv *c, const float *x);

    double (*sum_centered_products)(const float *dy, const float *x, float mean,
                                    int64_t n); /* of dy (x - mean) */
    void (*blend)(float *out, const float *dy, const float *x, float a, float b, float mean, float c,
                  int64_t n); /* a dy + b (x - mean) + c */
    void (*center_scale)(float *y, const float *x, float mean, float scale, float shift,
                         int64_t n); /* (x - mean) scale + shift */
    /* ((x - mean) istd + shift) w + b */
    void (*norm_row)(float *y, const float *x, float mean, float istd, float shift, const float *w,
                     const float *b, int64_t n);
    void (*norm_grad_row)(float *dx, const float *dy, const float *x, const float *w, float mean, float istd,
                          float *dw, float *db, int64_t n);

    void (*recurrent_step)(const lki_recurrent_row *row);
    void (*recurrent_step_back)(const lki_recurrent_row *row);

    const lki_attention_kernels *attention;

    void (*draw_mask)(uint8_t *mask, lk_generator *generator, uint64_t limit, int64_t n);
    void (*skip_draws)(lk_generator *generator, int64_t n); /* what draw_mask of n leaves */
    void (*clamp_in_place)(float *x, float limit, int64_t n);
} lki_cpu_kernels;

extern const lki_cpu_kernels lki_cpu_kernels_avx512, lki_cpu_kernels_avx2, lki_cpu_kernels_base;

/* Floats of scratch that one thread's share of a product needs: panels of B, and one tile of A. */
static inline int64_t lki_gemm_scratch_count(int64_t n, int64_t k)
{
    int64_t panels = (n + LKI_GEMM_PANEL - 1) / LKI_GEMM_PANEL * LKI_GEMM_PANEL;
    int64_t columns = n < LKI_GEMM_BLOCK_N ? panels : LKI_GEMM_BLOCK_N,
            rows = k < LKI_GEMM_BLOCK_K ? k : LKI_GEMM_BLOCK_K;
    return (columns + 16) * ((rows + 15) / 16 * 16);
}

/* Channels are padded to whole vectors. A tile takes a line more than it needs: at multiples of 4096 bytes
 * all tiles would fall on the same few lines of the first cache. */
static inline int64_t lki_winograd_lanes(int64_t channels)
{
    return (channels + 15) / 16 * 16;
}

static inline int64_t lki_winograd_tile(int64_t channels)
{
    return 36 * lki_winograd_lanes(channels) + 16;
}

/* The columns of a strip's input. */
static inline int64_t lki_winograd_columns(const lki_winograd *w)
{
    return 4 * w->tiles_x + 2;
}

static inline int64_t lki_winograd_stage_count(const lki_winograd *w)
{
    return (6 * lki_winograd_columns(w) + 16) * 16; /* sixteen columns more, since runs end in whole blocks */
}

#endif
