/* Inside of a dataset that the rest of this folder needs: gathering raw bytes, and names for messages.
 *
 * See <lockstep/sys/dataset.h> for life and threads. */
#ifndef LKI_DATA_DATASET_H
#define LKI_DATA_DATASET_H

#include <lockstep/sys/dataset.h>

#include "tensor/picture.h"

/* As lk_dataset_gather without the check of the indices: for a loader, which has checked them once per pass.
 */
lk_status lki_dataset_gather(const lk_dataset *dataset, const lk_pass *pass, const int64_t *indices,
                             int64_t count, void *const *destinations);

/* The function of a dataset that lki_dataset_gather calls, and its context; borrowed. */
typedef struct lki_gatherer {
    lk_status (*gather)(void *context, const lk_pass *pass, const int64_t *indices, int64_t count,
                        void *const *destinations);
    void *context;
} lki_gatherer;
lki_gatherer lki_dataset_gatherer(const lk_dataset *dataset);

/* LK_ERR_RANGE naming the first index that is not below `length`. */
lk_status lki_check_indices(const int64_t *indices, int64_t count, int64_t length);

/* The stream that is read in the end, or NULL. Datasets around another inherit it. */
struct lki_stream;
const struct lki_stream *lki_dataset_stream(const lk_dataset *dataset);
void lki_dataset_set_stream(lk_dataset *dataset, const struct lki_stream *stream);
/* LK_ERR_UNSUPPORTED for a stream; the sentence begins with `who`. */
lk_status lki_dataset_check_length(const lk_dataset *dataset, const char *who);

/* The bytes of one sample of a field. */
size_t lki_field_nbytes(const lk_field *field);

/* What a dataset around others takes over from one of them: the classes, and which fields keep their dtype.
 * Fields from `field_count` on, or of another dtype, are left out. Takes `outer` over and frees it when
 * memory is short; NULL passes through. */
lk_dataset *lki_dataset_inherit(lk_dataset *outer, const lk_dataset *inner);

/* Whether the user has said which dtype a field is to have. */
bool lki_dataset_keeps_dtype(const lk_dataset *dataset, int field);
void lki_dataset_keep_dtype(lk_dataset *dataset, int field);

/* Pictures as they are in their files: what a dataset has whose first field may differ in size from sample to
 * sample. Transforms begin with these and end with the size that the field has. */
typedef struct lki_own_sizes {
    /* Reads sample `index`: its picture, which the caller ends with lki_image_fini, and its other fields into
     * their slots. The slot of the first field means nothing. Any thread. */
    lk_status (*read)(void *context, int64_t index, lki_image *out, void *const *slots);
    /* The sample's name for messages, which belongs to the dataset. */
    const char *(*name)(void *context, int64_t index);
    void *context;
} lki_own_sizes;
void lki_dataset_set_own_sizes(lk_dataset *dataset, const lki_own_sizes *pictures);
/* NULL where all samples have one size. */
const lki_own_sizes *lki_dataset_own_sizes(const lk_dataset *dataset);

/* The dataset's own conversion (lk_dataset_ops.cast). NULL with LK_ERR_UNSUPPORTED when it has none. */
lk_dataset *lki_dataset_cast_whole(lk_dataset *dataset, int field, lk_dtype dtype);

/* cast.c: a new dataset of the same samples with one field as another dtype; `dataset` is borrowed. Datasets
 * in memory are converted now, others when they are gathered. A value that does not fit is LK_ERR_RANGE and
 * names its sample. */
lk_dataset *lki_dataset_cast(lk_dataset *dataset, int field, lk_dtype dtype);

/* The field with the labels, or -1. */
int lki_dataset_class_field(const lk_dataset *dataset);
/* classes.c: a new dataset of the same samples, whose labels count the classes of `like`. LK_ERR_INVALID when
 * it has a class that `like` does not have. Both are borrowed. */
lk_dataset *lki_dataset_relabel(lk_dataset *dataset, const lk_dataset *like);

#endif
