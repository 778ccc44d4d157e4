/* Metrics: what a run reports about a model's outputs, with the same bits at any number of ranks.
 *
 * A metric is created once, reset before each pass over a loader, updated with every batch and computed at
 * the end:
 *
 *     lk_metric *auc = lk_auc_metric(.num_classes = 10);
 *     lk_metric_update(auc, logits, targets); // once per batch
 *     lk_metric_values values;
 *     lk_metric_compute(auc, &values); // "auc", "auc/_macro", "auc/_micro", "auc/_weighted"
 *     lk_metric_free(auc);
 *
 * Counts are integers and sums of fractions are exact (lk_exact_sum), so a value depends on the samples
 * alone: neither on their order, nor on the batches that they came in, nor on the rank that saw them. Samples
 * that only make the ranks' shares equal (lk_batch.padding) do not count. The one exception is "/std": it is
 * the spread of the batches' means, as Catalyst's, and so depends on the batches:
 *
 *     std = sqrt(sum n_b (m_b - m)^2 / (N - 1))       N = sum n_b,  m = sum n_b m_b / N
 *
 * over the batches b of all ranks, with n_b samples that count and the mean m_b; 0 for a single sample.
 *
 * Values agree with scikit-learn's, names with Catalyst's. Names and values belong to the metric: they stay
 * until its next update, compute or free. A metric belongs to one thread. Tensors must lie in host memory. */
#ifndef LOCKSTEP_METRIC_H
#define LOCKSTEP_METRIC_H

#include <lockstep/arguments.h>
#include <lockstep/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lk_metric lk_metric;

typedef struct lk_metric_value {
    const char *name;
    double value;
} lk_metric_value;

typedef struct lk_metric_values {
    const lk_metric_value *items;
    int count;
} lk_metric_values;

enum { LK_MAX_TOPK = 8 };

/* One struct for all metrics; each reads the fields that it knows. Strings and arrays are copied. */
typedef struct lk_metric_options {
    size_t struct_size;
    const char *prefix, *suffix; /* put around every name: prefix + "accuracy01" + suffix + "/std" */
    int num_classes;             /* 0: taken from the first batch */
    int topk[LK_MAX_TOPK];       /* accuracy; none: 1, and 3 above three classes, and 5 above five */
    double threshold;     /* multilabel: 0 means 0.5; IoU and Dice: 0 means soft scores, no threshold */
    bool from_logits;     /* multilabel, IoU, Dice: pass the outputs through a sigmoid first */
    double zero_division; /* precision, recall, F1: the value of 0/0 */
    bool compute_per_class_metrics; /* precision/recall/F1/support and AUC: report "…/class_00" too */
    const char *const *class_names; /* confusion matrix, IoU, Dice: num_classes of them; else class_00, … */
    const double *class_weights;    /* IoU, Dice: num_classes weights for "…/_weighted" */
    bool normalize;                 /* confusion matrix: rows sum to one */
} lk_metric_options;

/* accuracy01, accuracy01/std, accuracy03, … The target is among the best k when fewer than k classes score
 * higher; of equal scores the lower class comes first, as argmax has it. The value is the number of samples
 * that are right over the number of samples. */
#define lk_accuracy_metric(...) LK_CALL0_(lk_accuracy_metric_with, lk_metric_options, __VA_ARGS__)
lk_metric *lk_accuracy_metric_with(const lk_metric_options *options);

/* accuracy, accuracy/std: over every cell of (samples, classes), a cell is positive where the output >
 * threshold. */
#define lk_multilabel_accuracy_metric(...)                                                                   \
    LK_CALL0_(lk_multilabel_accuracy_metric_with, lk_metric_options, __VA_ARGS__)
lk_metric *lk_multilabel_accuracy_metric_with(const lk_metric_options *options);

/* precision, recall and f1, each /_macro, /_micro, /_weighted; per class also support/class_00, … */
#define lk_precision_recall_f1_support_metric(...)                                                           \
    LK_CALL0_(lk_precision_recall_f1_support_metric_with, lk_metric_options, __VA_ARGS__)
lk_metric *lk_precision_recall_f1_support_metric_with(const lk_metric_options *options);
#define lk_multilabel_precision_recall_f1_support_metric(...)                                                \
    LK_CALL0_(lk_multilabel_precision_recall_f1_support_metric_with, lk_metric_options, __VA_ARGS__)
lk_metric *lk_multilabel_precision_recall_f1_support_metric_with(const lk_metric_options *options);

/* auc (the macro average), auc/_macro, auc/_micro, auc/_weighted: the area under the ROC curve, one class
 * against the rest, ties counted half. Targets are class indices, or one indicator per class. A class without
 * positives or without negatives has no AUC: its own value is NaN, and the averages leave it out. Scores are
 * kept as f32. */
#define lk_auc_metric(...) LK_CALL0_(lk_auc_metric_with, lk_metric_options, __VA_ARGS__)
lk_metric *lk_auc_metric_with(const lk_metric_options *options);

/* r2squared (columns averaged; a constant target gives 1 for perfect outputs, else 0), mse, mae. */
#define lk_r2_metric(...) LK_CALL0_(lk_r2_metric_with, lk_metric_options, __VA_ARGS__)
lk_metric *lk_r2_metric_with(const lk_metric_options *options);
#define lk_mse_metric(...) LK_CALL0_(lk_mse_metric_with, lk_metric_options, __VA_ARGS__)
lk_metric *lk_mse_metric_with(const lk_metric_options *options);
#define lk_mae_metric(...) LK_CALL0_(lk_mae_metric_with, lk_metric_options, __VA_ARGS__)
lk_metric *lk_mae_metric_with(const lk_metric_options *options);

/* iou, iou/_macro, iou/_micro, iou/class_00, … over (samples, classes, …); dice likewise. An empty class that
 * was left empty scores 1. */
#define lk_iou_metric(...) LK_CALL0_(lk_iou_metric_with, lk_metric_options, __VA_ARGS__)
lk_metric *lk_iou_metric_with(const lk_metric_options *options);
#define lk_dice_metric(...) LK_CALL0_(lk_dice_metric_with, lk_metric_options, __VA_ARGS__)
lk_metric *lk_dice_metric_with(const lk_metric_options *options);

/* NAME, NAME/mean, NAME/std of a number that each batch gives, such as its loss; fed by
 * lk_metric_update_value. A batch's number is usually rounded, so this mean shows how samples were cut into
 * batches. A runner's loss does not: see lk_criterion_callback. */
#define lk_mean_metric(...) LK_CALL1_(lk_mean_metric_with, lk_metric_options, __VA_ARGS__, )
lk_metric *lk_mean_metric_with(const char *name, const lk_metric_options *options);

/* A matrix of counts, row = true class, column = predicted class. It has no values of its own; see below. */
#define lk_confusion_matrix_metric(...)                                                                      \
    LK_CALL0_(lk_confusion_matrix_metric_with, lk_metric_options, __VA_ARGS__)
lk_metric *lk_confusion_matrix_metric_with(const lk_metric_options *options);

void lk_metric_free(lk_metric *metric);

/* Forgets all batches. */
void lk_metric_reset(lk_metric *metric);

/* Adds a batch: outputs (samples, classes), targets (samples) of class indices or of the outputs' shape. A
 * failed update leaves the metric as it was. */
lk_status lk_metric_update(lk_metric *metric, const lk_tensor *outputs, const lk_tensor *targets);

/* Adds one batch's number, weighted by its samples; for lk_mean_metric. */
lk_status lk_metric_update_value(lk_metric *metric, double value, int64_t sample_count);

/* The values over all batches since the reset. Without any batch they are NaN. */
lk_status lk_metric_compute(lk_metric *metric, lk_metric_values *out);

/* The values of the last batch alone, for those metrics that have them per batch (accuracy, precision and its
 * kin, IoU, Dice, the mean); the others give none. */
lk_status lk_metric_compute_batch(lk_metric *metric, lk_metric_values *out);

/* One value by name; NaN where there is none. Computes where needed. */
double lk_metric_get(lk_metric *metric, const char *name);

/* The confusion matrix: (classes, classes) f64, rows normalized where the options said so. The caller frees
 * it. */
lk_tensor *lk_confusion_matrix(const lk_metric *metric);
/* The matrix as a file: CSV with class names, or a PNG picture with the numbers in it. */
lk_status lk_confusion_matrix_save_csv(const lk_metric *metric, const char *path);
lk_status lk_confusion_matrix_save_png(const lk_metric *metric, const char *path);
/* The same picture in memory: (height, width, 3) u8. */
lk_tensor *lk_confusion_matrix_draw(const lk_metric *metric);
/* The matrix as text for a terminal, shaded with ANSI colours where asked; release it with lk_text_free. */
char *lk_confusion_matrix_text(const lk_metric *metric, bool colour);

#ifdef __cplusplus
}
#endif
#endif
