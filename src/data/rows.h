/* Rows: samples of one field that lie in memory one after the other, and the loop that gathers them into a
 * batch.
 *
 * This is the inner loop of the loader. Values are copied, or converted from bytes: to f32 as (x / divisor -
 * mean) / std, each step rounded to f32 as PyTorch's ToTensor and Normalize do it, or widened to i64 for
 * class labels. Rows do not own their memory. Any thread. */
#ifndef LKI_DATA_ROWS_H
#define LKI_DATA_ROWS_H

#include <lockstep/sys/dataset.h>

typedef struct lki_rows {
    const void *data; /* (samples, width) of the stored dtype */
    int64_t width;    /* elements a sample */
    lk_dtype stored, dtype;
    float divisor, mean, std; /* 1, 0, 1 where values are stored as they are */
} lki_rows;

/* As elements of `dtype`. */
static inline lki_rows lki_rows_of(const lk_rows *rows, lk_dtype dtype)
{
    return (lki_rows){.data = rows->data,
                      .width = rows->width,
                      .stored = rows->stored,
                      .dtype = dtype,
                      .divisor = rows->divisor,
                      .mean = rows->mean,
                      .std = rows->std};
}

/* LK_ERR_DTYPE where no loop converts the stored dtype to the field's. */
lk_status lki_rows_check(const lki_rows *rows, const char *name);

/* `count` rows, back to back, in the field's dtype. */
void lki_rows_gather(const lki_rows *rows, const int64_t *indices, int64_t count, void *destination);

/* All fields of a dataset whose samples lie in memory. */
typedef struct lki_row_fields {
    int count;
    lki_rows rows[LK_MAX_FIELDS];
} lki_row_fields;

/* lk_dataset_ops.gather of a dataset whose context is, or begins with, an lki_row_fields. */
lk_status lki_row_fields_gather(void *context, const lk_pass *pass, const int64_t *indices, int64_t count,
                                void *const *destinations);

/* The same as lki_rows_gather, as they are stored. */
void lki_rows_gather_raw(const lki_rows *rows, const int64_t *indices, int64_t count, void *destination);

#endif
