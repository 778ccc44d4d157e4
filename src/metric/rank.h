/* Counting, over all pairs of two sets of scores, which one is higher: what the area under a ROC curve comes
 * from. */
#ifndef LKI_METRIC_RANK_H
#define LKI_METRIC_RANK_H

#include <lockstep/status.h>

#include <stdint.h>

/* Memory for lki_rank_pairs; zero is empty, and it grows as needed. */
typedef struct lki_rank_workspace {
    uint32_t *keys, *table;
    int64_t key_capacity, table_capacity;
} lki_rank_workspace;

void lki_rank_workspace_fini(lki_rank_workspace *workspace);

/* Sorts floats upwards by radix; there must be no NaN. `keys` has room for 2 × count. */
void lki_sort_f32(float *values, int64_t count, uint32_t *keys);

/* out = sum over pairs of 2 [a > b] + [a == b]. `a`, which should be the smaller set, comes back sorted.
 * There must be no NaN. Takes time proportional to a_count + b_count as long as the values of `a` are spread
 * at all evenly, and a factor of log(a_count) more where they are not. */
lk_status lki_rank_pairs(int64_t *out, float *a, int64_t a_count, const float *b, int64_t b_count,
                         lki_rank_workspace *workspace);

#endif
