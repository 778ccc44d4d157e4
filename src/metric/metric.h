/* What all metrics share: the object, its growing arrays, its names, and the batch as an update sees it.
 *
 * A metric is a struct that begins with lk_metric, and a table of functions, its kind. Everything that ranks
 * must exchange is listed by the kind's parts(): arrays to be added up, and arrays to be joined in rank order
 * (see reduce.h). */
#ifndef LKI_METRIC_METRIC_H
#define LKI_METRIC_METRIC_H

#include <lockstep/sys/metric.h>

#include "base/memory.h"
#include "base/status.h"

#include <math.h>

typedef lk_metric_array lki_metric_array;

/* Room for `extra` more elements; the count stays. */
lk_status lki_metric_array_reserve(lki_metric_array *array, int64_t extra);
void lki_metric_array_fini(lki_metric_array *array);

typedef enum lki_metric_part_kind {
    LKI_METRIC_SUM_I64, /* data: int64_t[count], added up over the ranks */
    LKI_METRIC_EXACT,   /* data: lk_exact_sum[count], added up over the ranks */
    LKI_METRIC_SUM_F64, /* data: double[count], of each rank rounded by itself */
    LKI_METRIC_MAX_I64, /* data: int64_t[count], of which the highest counts; the lowest with MIN */
    LKI_METRIC_MIN_I64,
    LKI_METRIC_MAX_F64, /* data: double[count], likewise; a NaN stays */
    LKI_METRIC_MIN_F64,
    LKI_METRIC_JOIN /* data: lki_metric_array *, joined in rank order */
} lki_metric_part_kind;

typedef struct lki_metric_part {
    lki_metric_part_kind kind;
    void *data;
    int64_t count;
} lki_metric_part;

/* The bytes of a part's data, and those of its data as a file keeps it: an array's are what it holds. */
size_t lki_metric_part_nbytes(const lki_metric_part *part);

enum { LKI_METRIC_MAX_PARTS = LK_METRIC_MAX_PARTS };

/* A batch, checked and contiguous. */
typedef struct lki_metric_batch {
    const void *outputs, *targets;
    lk_dtype output_dtype, target_dtype;
    int64_t sample_count; /* dim 0 */
    int64_t class_count;  /* dim 1 of the outputs; 1 for a vector */
    int64_t inner_count;  /* product of the outputs' other dims */
    int64_t target_count; /* elements of the targets */
} lki_metric_batch;

/* Options of lk_metric_options that not all metrics have. */
typedef enum lki_metric_option {
    LKI_READS_CLASSES = 1,
    LKI_READS_TOPK = 2,
    LKI_READS_THRESHOLD = 4, /* and from_logits */
    LKI_READS_ZERO_DIVISION = 8,
    LKI_READS_PER_CLASS = 16,
    LKI_READS_CLASS_NAMES = 32,
    LKI_READS_CLASS_WEIGHTS = 64,
    LKI_READS_NORMALIZE = 128,
    LKI_READS_LOGITS = 256, /* from_logits alone */
    LKI_READS_BINS = 512,
    LKI_READS_IGNORE = 1024,
    LKI_READS_ALPHA = 2048, /* and beta */
    LKI_READS_ORDER = 4096, /* and smooth */
} lki_metric_option;

typedef struct lki_metric_kind {
    const char *name; /* for error sentences */
    lk_status (*update)(lk_metric *metric, const lki_metric_batch *batch);
    /* Instead of it: takes the batch as it is; targets may be NULL. */
    lk_status (*update_tensors)(lk_metric *metric, const lk_tensor *outputs, const lk_tensor *targets);
    lk_status (*update_value)(lk_metric *metric, double value, int64_t sample_count); /* optional */
    void (*reset)(lk_metric *metric);
    /* Lists the state that ranks exchange; returns how many parts. */
    int (*parts)(lk_metric *metric, lki_metric_part parts[LKI_METRIC_MAX_PARTS]);
    /* Writes metric->values; they exist from lki_metric_add_value on. */
    lk_status (*compute)(lk_metric *metric);
    lk_status (*compute_batch)(lk_metric *metric); /* optional: writes metric->batch_values */
    void (*fini)(lk_metric *metric);
    /* Optional: makes the values' names once the number of classes is known, also on a rank that saw no
     * batch. */
    lk_status (*set_classes)(lk_metric *metric, int64_t class_count);
    /* Optional: whether the parts fit each other and the classes. Those of a file may not. */
    bool (*is_sound)(const lk_metric *metric);
    unsigned reads; /* lki_metric_option: the options that it knows */
} lki_metric_kind;

typedef struct lki_metric_value_list {
    lk_metric_value *items;
    int count, capacity;
} lki_metric_value_list;

struct lk_metric {
    const lki_metric_kind *kind;
    char *prefix, *suffix;
    int64_t class_count; /* 0 until known */
    bool reduced;        /* the state is already that of all ranks */
    lki_metric_value_list values, batch_values;
    void *scratch[2]; /* converted outputs and targets of a batch */
    size_t scratch_nbytes[2];
};

/* Allocates `nbytes` for a metric's own struct and fills in what all share. */
lk_metric *lki_metric_new(size_t nbytes, const lki_metric_kind *kind, const lk_metric_options *options);

/* Whether the metric can do without targets. */
static inline bool lki_metric_wants_targets(const lk_metric *metric)
{
    return !metric->kind->update_tensors;
}

/* Fails where the state is already that of all ranks: what is added then would be counted by one alone. */
lk_status lki_metric_check_open(const lk_metric *metric);

/* Adds a value named prefix + name + suffix + tail. */
lk_status lki_metric_add_value(lk_metric *metric, const char *name, const char *tail);
/* Lets the last batch have the value `index` too, under the same name. */
lk_status lki_metric_add_batch_value(lk_metric *metric, int index);

/* Takes the number of classes from a batch the first time, checks it later. */
lk_status lki_metric_see_classes(lk_metric *metric, const lki_metric_batch *batch);

/* The outputs as f32, the targets as f32 or as class indices that lie in [0, class_count); converted only
 * where needed. */
lk_status lki_metric_outputs_f32(lk_metric *metric, const lki_metric_batch *batch, const float **out);
lk_status lki_metric_targets_f32(lk_metric *metric, const lki_metric_batch *batch, const float **out);
lk_status lki_metric_targets_index(lk_metric *metric, const lki_metric_batch *batch, const int64_t **out);

/* Fails unless there is a target for every output. */
lk_status lki_metric_check_cells(const lk_metric *metric, const lki_metric_batch *batch);

/* Copies class names, or makes class_00, …; freed by lki_metric_free_names. */
lk_status lki_metric_copy_names(char ***out, const char *const *names, int64_t count);
void lki_metric_free_names(char **names, int64_t count);

/* The class that scores highest, the lowest of equals; a NaN counts as the highest, as in torch.argmax. */
int64_t lki_metric_argmax(const float *scores, int64_t count);

/* The cut on raw outputs that means `threshold` on what the user sees. */
float lki_metric_cut(double threshold, bool from_logits);

#endif
