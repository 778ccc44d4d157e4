/* What attention and its gradient share. */
#ifndef LKI_CPU_ATTENTION_H
#define LKI_CPU_ATTENTION_H

#include "engine/cpu/cpu.h"
#include "graph/attention.h"

/* A tile of scores: so many queries by so many keys. */
enum { LKI_ATTENTION_KEYS = 512 };

/* A call of either op. A thread takes heads of k and v, packs them once, and goes through the queries of all
 * heads that share them, tile by tile. */
typedef struct lki_attention_job {
    const lki_cpu_kernels *kernels;
    const lk_attention_attr *attr;
    lki_attention a;
    const float *q, *k, *v;
    const void *mask, *key_mask; /* f32 or bool; or NULL */
    bool mask_is_bool, key_mask_is_bool, drops;
    char *draws;
    int64_t chunks;        /* forward: how many parts of the queries count as items of their own; else 0 */
    int64_t scratch_count; /* floats per thread */
    float *scratch;
    /* forward */
    float *y_out, *log_sums;
    /* backward */
    const float *dy, *y, *kept_log_sums;
    float *dq, *dk, *dv;
} lki_attention_job;

/* One thread's scratch. */
typedef struct lki_attention_room {
    float *k_turned, *v_panels;           /* panels of k^T (D, S); of v (S, E), or v^T (E, S) */
    float *k_panels;                      /* backward: of k (S, D) */
    float *scores, *gradients;            /* tiles */
    float *key_row, *mask_row, *kept_row; /* (S), and of a tile's width: masks and dropout as floats */
    float *largest, *sums;                /* of each query of a tile */
    float *products;                      /* the gemm's */
    uint8_t *kept;                        /* (rows, S): what dropout keeps */
} lki_attention_room;

lki_attention_job lki_attention_job_of(const lk_call *call);
/* Divides a thread's scratch; returns how many floats that is. */
int64_t lki_attention_lay_out(const lki_attention_job *j, lki_attention_room *room, float *scratch);
/* Whether all operands are those that the kernels take. */
bool lki_attention_fits(const lk_call *call);

static inline int64_t lki_attention_at(const lki_heads *h, int64_t b, int64_t head, int64_t i)
{
    return h->base + b * h->batch + head * h->head + i * h->row;
}

/* The key mask of sample b as floats that are added; NULL: there is none. */
const float *lki_attention_key_row(const lki_attention_job *j, const lki_attention_room *room, int64_t b);
/* The mask of a query from key `first` on, likewise. */
const float *lki_attention_mask_row(const lki_attention_job *j, const lki_attention_room *room, int64_t b,
                                    int64_t h, int64_t i, int64_t first, int64_t n);
/* Which weights of the queries [i, i + rows) dropout keeps. */
void lki_attention_draw(const lki_attention_job *j, const lki_attention_room *room, int64_t b, int64_t h,
                        int64_t i, int64_t rows);
/* What the weights of row `row` of those are multiplied with; NULL: there is no dropout. */
const float *lki_attention_kept_row(const lki_attention_job *j, const lki_attention_room *room, int64_t row,
                                    int64_t first, int64_t n);

/* C (m, n) = A (m, k) B, or C += A B, where B is rows [first, first + k) of panels of `depth` rows. */
void lki_attention_multiply(const lki_attention_job *j, const lki_attention_room *room, float *c,
                            int64_t c_row, const float *a, int64_t a_row, const float *panels, int64_t depth,
                            int64_t first, int64_t m, int64_t n, int64_t k, bool accumulate);

#endif
