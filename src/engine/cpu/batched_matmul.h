/* The products of a matmul: their sizes and strides, and where each begins in its operands, which may repeat.
 */
#ifndef LKI_CPU_BATCHED_MATMUL_H
#define LKI_CPU_BATCHED_MATMUL_H

#include <lockstep/sys/engine.h>

typedef struct lki_batch {
    int64_t m, n, k, a_row, a_col, b_row, b_col; /* as lki_gemm's */
    int64_t count;
    int rank;
    int64_t dim[LK_MAX_DIMS], a_stride[LK_MAX_DIMS], b_stride[LK_MAX_DIMS];
} lki_batch;

lki_batch lki_batch_of(const lk_call *call);
/* Elements before product `index` in a and in b. */
void lki_batch_offsets(const lki_batch *batch, int64_t index, int64_t *a, int64_t *b);

#endif
