/* What a dataset is to those who write one.
 *
 * A dataset is a number of samples, each with the same named fields ("features", "targets"):
 * implement lk_dataset_ops over a context of your own and hand both to lk_dataset_create. Datasets
 * count their holders: lk_dataset_share takes another hold, lk_dataset_free lets one go, and the
 * last one frees the context. Reading (every slot but free) happens from many threads at once and
 * must not need a lock that a reader would notice; nothing changes a dataset after it was created.
 */
#ifndef LOCKSTEP_SYS_DATASET_H
#define LOCKSTEP_SYS_DATASET_H

#include <lockstep/sized.h>
#include <lockstep/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { LK_MAX_FIELDS = 16 };

/* The length of a dataset over a stream, and of what is counted by it. */
#define LK_LENGTH_UNKNOWN INT64_MAX

/* One field of a sample: its name, its dtype, and the shape of one sample (a class label has the
 * scalar shape). */
typedef struct lk_field {
    const char *name;
    lk_dtype dtype;
    lk_shape shape;
} lk_field;

/* Which pass over the data a sample is read for. Random transforms draw from (seed, epoch, index)
 * alone, so the number of threads and ranks does not change what they do. */
typedef struct lk_pass {
    uint64_t seed;
    int64_t epoch;
} lk_pass;

/* Where all samples of a field lie in memory, one after the other, for those who can use that (a
 * copy on a device, a batch of raw bytes). The field's values are (stored / divisor - mean) / std,
 * computed in f32, when the dtypes differ. */
typedef struct lk_storage {
    const void *data;
    lk_dtype dtype;
    float divisor, mean, std; /* 1, 0, 1 where values are stored as they are */
} lk_storage;

/* Samples of one field that lie in memory one after the other: (length, width) elements of a dtype.
 * Bytes that become f32 are (stored / divisor - mean) / std, each operation rounded to f32. */
typedef struct lk_rows {
    const void *data;
    lk_dtype stored;
    int64_t length, width;
    float divisor, mean, std; /* 1, 0, 1 where values are stored as they are */
} lk_rows;

typedef struct lk_dataset_ops {
    size_t struct_size;
    /* Required. The number of samples, the same at every call. */
    int64_t (*length)(void *context);

    /* Required unless gather is there. Writes sample `index` into one slot a field, in the order of
     * the fields; a slot has room for one sample and its old content means nothing. Any thread. */
    lk_status (*get)(void *context, const lk_pass *pass, int64_t index, void *const *slots);

    /* Optional: many samples at once. destinations[f] takes `count` samples of field f back to
     * back. Indices are within the length and may repeat. Any thread. */
    lk_status (*gather)(void *context, const lk_pass *pass, const int64_t *indices, int64_t count,
                        void *const *destinations);

    /* Optional: where field `field` lies in memory; false where it lies nowhere. The memory lives
     * as long as the dataset. Any thread. */
    bool (*storage)(void *context, int field, lk_storage *out);

    /* Optional: frees the context. Called once, by whoever lets the last hold go. */
    void (*free)(void *context);

    /* Optional: a new dataset of the same samples with field `field` as `dtype`, converted once,
     * here. `fields` are this dataset's. NULL with an error; LK_ERR_UNSUPPORTED means that values
     * are to be converted each time they are gathered, which is also what happens without this
     * slot. One thread, before any reader. */
    struct lk_dataset *(*cast)(void *context, const lk_field *fields, int field, lk_dtype dtype);
} lk_dataset_ops;

typedef struct lk_dataset lk_dataset;

/* A dataset over `context`, which it owns from here on, also when NULL is returned. The ops and the
 * fields are copied. The ops need no size. */
lk_dataset *lk_dataset_create(const lk_dataset_ops *ops, const lk_field *fields, int field_count,
                              void *context);
#ifndef __cplusplus
LK_TAKES_SIZED_(lk_dataset_ops)
static inline lk_dataset *lk_dataset_create_sized_(const lk_dataset_ops *ops, const lk_field *fields,
                                                   int field_count, void *context)
{
    lk_dataset_ops room;
    return lk_dataset_create(lk_dataset_ops_at_(ops, &room), fields, field_count, context);
}
#define lk_dataset_create lk_dataset_create_sized_
#endif

/* Another hold on the same dataset, for a second loader or subset. NULL gives NULL. */
lk_dataset *lk_dataset_share(lk_dataset *dataset);
void lk_dataset_free(lk_dataset *dataset);

/* LK_LENGTH_UNKNOWN for a stream. */
int64_t lk_dataset_length(const lk_dataset *dataset);
int lk_dataset_field_count(const lk_dataset *dataset);
/* The field at a position, owned by the dataset; NULL out of range. */
const lk_field *lk_dataset_field(const lk_dataset *dataset, int position);
/* The position of a named field, or -1. */
int lk_dataset_find_field(const lk_dataset *dataset, const char *name);

/* Samples into the caller's memory, one destination a field, by whichever op the dataset has.
 * Checks the indices. `pass` may be NULL: the first epoch of seed 0. */
lk_status lk_dataset_gather(lk_dataset *dataset, const lk_pass *pass, const int64_t *indices, int64_t count,
                            void *const *destinations);
bool lk_dataset_storage(const lk_dataset *dataset, int field, lk_storage *out);

/* The names of the classes that the labels in a field stand for: label i is names[i]. They are
 * copied. Set them right after the dataset was created. A run compares its loaders' classes by
 * name: labels of a loader with fewer classes than the train loader's are renumbered as the train
 * loader's, and classes that the train loader does not have are refused before the first batch.
 * Subsets, concatenations and transformed datasets have the classes of the dataset inside. */
lk_status lk_dataset_set_classes(lk_dataset *dataset, const char *field, const char *const *names, int count);
/* 0 without classes. */
int lk_dataset_class_count(const lk_dataset *dataset);
/* Owned by the dataset; NULL out of range. */
const char *lk_dataset_class_name(const lk_dataset *dataset, int label);

#ifdef __cplusplus
}
#endif
#endif
