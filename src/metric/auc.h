/* Metrics that keep the score of every sample and class: the areas under curves. */
#ifndef LKI_METRIC_AUC_H
#define LKI_METRIC_AUC_H

#include "metric/metric.h"
#include "metric/rank.h"

typedef struct lki_auc_metric {
    lk_metric base;
    lki_metric_array scores; /* f32 (samples, classes) */
    lki_metric_array labels; /* i32: one class index a sample, or one indicator a cell */
    lki_metric_array cells;  /* f32, workspace: positives from the front, negatives from the back */
    lki_rank_workspace workspace;
    bool per_class;
} lki_auc_metric;

/* Whether the labels are one class a sample. */
bool lki_auc_has_indices(const lki_auc_metric *metric);

/* Parts of an lki_metric_kind. */
lk_status lki_auc_update(lk_metric *base, const lki_metric_batch *batch);
void lki_auc_reset(lk_metric *base);
int lki_auc_parts(lk_metric *base, lki_metric_part parts[LKI_METRIC_MAX_PARTS]);
bool lki_auc_is_sound(const lk_metric *base);
void lki_auc_fini(lk_metric *base);
lk_status lki_auc_set_classes(lk_metric *base, int64_t class_count);

/* A metric whose values are NAME, NAME/_macro, NAME/_micro, NAME/_weighted and, if wanted, one of each class.
 */
lk_metric *lki_auc_create(const lki_metric_kind *kind, const lk_metric_options *options);

#endif
