/* Products of matrices inside the cuda engine: what product.cu (which op means which product, and who
 * computes it), product_own.cu and product_thin.cu (our kernels) and product_lt.cu (cuBLASLt) share.
 *
 * Life: a product lies in call->state, from prepare to the end of the call. Thread rule: that of engines. */
#ifndef LKI_CUDA_PRODUCT_CUH
#define LKI_CUDA_PRODUCT_CUH

#include "engine/cuda/cuda.cuh"

/* c (m, n) = a (m, k) b (k, n) for every index of the leading axes. Element (i, l) of a lies at
 * i * a_row + l * a_column, element (l, j) of b at l * b_row + j * b_column; c is row-major. */
typedef struct lki_cuda_shape {
    int64_t m, n, k, batch;
    int64_t a_row, a_column, b_row, b_column;
    int axes; /* leading ones, the outermost first; a step is 0 where the operand repeats */
    int64_t dim[LK_MAX_DIMS], a_step[LK_MAX_DIMS], b_step[LK_MAX_DIMS];
} lki_cuda_shape;

/* The addresses of one run. Results and bias have the dtype of the factors or the wide one. */
typedef struct lki_cuda_factors {
    const void *a, *b, *bias; /* bias: one a column of c */
    void *c;                  /* NULL: only the sums are wanted */
    void *sums;               /* the sum of each row of a, or NULL */
    bool wide_bias, wide_c, wide_sums, relu;
} lki_cuda_factors;

typedef enum lki_cuda_way { LKI_CUDA_DOTS, LKI_CUDA_TILES, LKI_CUDA_LT, LKI_CUDA_THIN } lki_cuda_way;

/* Which side of a thin product is short: product_thin.cu's. */
typedef enum lki_cuda_thin {
    LKI_CUDA_NOT_THIN,
    LKI_CUDA_THIN_OUT,
    LKI_CUDA_THIN_WEIGHT,
    LKI_CUDA_THIN_IN,
    LKI_CUDA_TINY
} lki_cuda_thin;

/* What cuBLASLt was asked for; desc is NULL where it takes no part. */
typedef struct lki_cuda_lt {
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c; /* in its order: a is our b */
    cublasLtMatmulAlgo_t algo;
    size_t workspace_nbytes;
    uint32_t alignment;                       /* of every operand; it does not hold: our kernel */
    bool has_bias, has_relu, has_sums;        /* done by the epilogue */
    bool narrows_bias;                        /* the epilogue adds a copy of the bias in 16 bits */
    int64_t outer_count, outer_axes, strided; /* axes beyond the last are looped over */
} lki_cuda_lt;

typedef struct lki_cuda_product {
    lki_cuda_shape shape;
    lk_dtype dtype; /* of a and b */
    lki_cuda_way way;
    int tile;            /* 32 or 64 */
    int64_t parts, span; /* k is cut into `parts` ranges of `span` */
    lki_cuda_thin thin;
    int thin_parts;
    int64_t thin_span;
    lki_cuda_lt lt;
} lki_cuda_product;

/* Our kernels; correct for every shape, dtype and alignment. */
void lki_cuda_plan_tiles(const lki_cuda *cuda, lki_cuda_product *product, bool with_sums,
                         size_t *scratch_nbytes);
lk_status lki_cuda_run_tiles(lki_cuda *cuda, const lki_cuda_product *product, const lki_cuda_factors *factors,
                             void *scratch);
/* Products with one side of at most 32, and those of few elements; *scratch_nbytes grows to what they need.
 * False: not such a product.
 */
bool lki_cuda_plan_thin(const lki_cuda *cuda, lki_cuda_product *product, bool with_sums,
                        size_t *scratch_nbytes);
/* Whether the addresses of this run are aligned as these kernels need them. */
bool lki_cuda_thin_fits(const lki_cuda_product *product, const lki_cuda_factors *factors);
lk_status lki_cuda_run_thin(lki_cuda *cuda, const lki_cuda_product *product, const lki_cuda_factors *factors,
                            void *scratch);
/* For f32 whose k is contiguous in both factors. */
lk_status lki_cuda_run_dots(lki_cuda *cuda, const lki_cuda_shape *shape, const lki_cuda_factors *factors);
/* c = relu(c + bias), and sums, for what cuBLASLt left undone. */
lk_status lki_cuda_finish_product(lki_cuda *cuda, const lki_cuda_product *product,
                                  const lki_cuda_factors *factors, bool bias_and_relu, bool sums);

/* to[j] = the bias of column j in the dtype of the factors. */
lk_status lki_cuda_narrow_bias(lki_cuda *cuda, const lki_cuda_product *product,
                               const lki_cuda_factors *factors, void *to);

/* Asks cuBLASLt for an algorithm; *found is false where it has none. */
lk_status lki_cuda_plan_lt(lki_cuda *cuda, lki_cuda_product *product, const lki_cuda_factors *factors,
                           bool *found);
size_t lki_cuda_lt_scratch_nbytes(const lki_cuda_product *product);
/* Whether the addresses of this run are what the algorithm was chosen for. */
bool lki_cuda_lt_fits(const lki_cuda_product *product, const lki_cuda_factors *factors);
lk_status lki_cuda_run_lt(lki_cuda *cuda, lki_cuda_product *product, const lki_cuda_factors *factors,
                          void *scratch);
void lki_cuda_free_lt(lki_cuda_lt *lt);

#endif
