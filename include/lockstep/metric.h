/* Metrics: what a run reports about the outputs of a model, with the same bits at any number of
 * ranks.
 *
 * A metric is created once, reset before each pass over a loader, updated with every batch and
 * computed at the end:
 *
 *     lk_metric *auc = lk_auc_metric(.num_classes = 10);
 *     lk_metric_update(auc, logits, targets); // once per batch
 *     lk_metric_values values;
 *     lk_metric_compute(auc, &values); // "auc", "auc/_macro", "auc/_micro", "auc/_weighted"
 *     lk_metric_free(auc);
 *
 * Counts are integers, and sums of fractions are exact (lk_exact_sum). So a value depends only on
 * the samples, and not on their order, their batches or their ranks. Samples that only make the
 * shares of the ranks equal (lk_batch.padding) do not count. The one exception is "/std", which
 * is Catalyst's spread of the means of the batches:
 *
 *     std = sqrt(sum n_b (m_b - m)^2 / (N - 1))       N = sum n_b,  m = sum n_b m_b / N
 *
 * over the batches b of all ranks, with n_b samples that count and the mean m_b. It is 0 for a
 * single sample.
 *
 * Values agree with scikit-learn, names with Catalyst.
 *
 * Life: the caller frees a metric. Names and values belong to it and are valid until its next
 * update, compute or free. Constructors return NULL on failure. Tensors must be in host memory.
 * Threads: a metric belongs to one thread. */
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

/* One struct for all metrics. A metric refuses a field that it does not have. Strings and arrays
 * are copied. */
typedef struct lk_metric_options {
    size_t struct_size;
    /* Added to every name: prefix + "accuracy01" + suffix + "/std". */
    const char *prefix, *suffix;
    int num_classes; /* 0: taken from the first batch */
    /* Recommendations: 1. Accuracy: 1, also 3 if there are more than three classes, also 5 if more
     * than five. */
    int topk[LK_MAX_TOPK];
    /* Multilabel: 0.5. IoU and Dice: none, which gives soft scores. */
    double threshold;
    bool from_logits; /* multilabel, IoU, Dice: apply a sigmoid first. Calibration: softmax */
    /* Precision, recall, F1, hitrate: the value of 0/0. */
    double zero_division;
    /* Accuracy, precision, recall, F1, support, AUC, average precision: report ".../class_00" too.
     * Of accuracy it is the share of the class's samples that are right, and ".../_macro" the mean
     * over the classes that occur. */
    bool compute_per_class_metrics;
    /* Confusion matrix, IoU, Dice: num_classes names; class_00, ... */
    const char *const *class_names;
    const double *class_weights; /* IoU, Dice: num_classes weights for ".../_weighted" */
    bool normalize;              /* confusion matrix: rows sum to one */
    int num_bins;                /* calibration error: 15 */
    double ignore_index;         /* perplexity, BLEU: the target that does not count; none */
    double alpha, beta;          /* Trevsky: alpha is required, beta is 1 - alpha */
    int max_order;               /* BLEU: the longest n-grams; 4 */
    bool smooth;                 /* BLEU: one more n-gram of each order above 1 */
} lk_metric_options;

/* accuracy01, accuracy01/std, accuracy03, ... The target is among the best k if fewer than k
 * classes score higher; of equal scores the lower class comes first, as in argmax. The value is
 * the share of samples that are right. */
#define lk_accuracy_metric(...) LK_CALL0_(lk_accuracy_metric_with, lk_metric_options, __VA_ARGS__)
lk_metric *lk_accuracy_metric_with(const lk_metric_options *options);

/* accuracy, accuracy/std: over every cell of (samples, classes). A cell is positive if the output
 * is greater than the threshold. */
#define lk_multilabel_accuracy_metric(...)                                                                   \
    LK_CALL0_(lk_multilabel_accuracy_metric_with, lk_metric_options, __VA_ARGS__)
lk_metric *lk_multilabel_accuracy_metric_with(const lk_metric_options *options);

/* precision, recall and f1, each with /_macro, /_micro and /_weighted. Per class also
 * support/class_00, ... */
#define lk_precision_recall_f1_support_metric(...)                                                           \
    LK_CALL0_(lk_precision_recall_f1_support_metric_with, lk_metric_options, __VA_ARGS__)
lk_metric *lk_precision_recall_f1_support_metric_with(const lk_metric_options *options);
#define lk_multilabel_precision_recall_f1_support_metric(...)                                                \
    LK_CALL0_(lk_multilabel_precision_recall_f1_support_metric_with, lk_metric_options, __VA_ARGS__)
lk_metric *lk_multilabel_precision_recall_f1_support_metric_with(const lk_metric_options *options);

/* auc (the macro average), auc/_macro, auc/_micro, auc/_weighted: the area under the ROC curve,
 * one class against the rest, with ties counted half. Targets are class indices, or one indicator
 * per class. A class without positives or without negatives has no AUC: its value is NaN, and the
 * averages leave it out. Scores are kept as f32. */
#define lk_auc_metric(...) LK_CALL0_(lk_auc_metric_with, lk_metric_options, __VA_ARGS__)
lk_metric *lk_auc_metric_with(const lk_metric_options *options);

/* r2squared (the mean over columns; for a constant target it is 1 if the outputs are perfect,
 * otherwise 0), mse, mae. */
#define lk_r2_metric(...) LK_CALL0_(lk_r2_metric_with, lk_metric_options, __VA_ARGS__)
lk_metric *lk_r2_metric_with(const lk_metric_options *options);
#define lk_mse_metric(...) LK_CALL0_(lk_mse_metric_with, lk_metric_options, __VA_ARGS__)
lk_metric *lk_mse_metric_with(const lk_metric_options *options);
#define lk_mae_metric(...) LK_CALL0_(lk_mae_metric_with, lk_metric_options, __VA_ARGS__)
lk_metric *lk_mae_metric_with(const lk_metric_options *options);

/* iou, iou/_macro, iou/_micro, iou/class_00, ... over (samples, classes, ...), and the same for
 * dice. A class that is empty in outputs and targets scores 1. */
#define lk_iou_metric(...) LK_CALL0_(lk_iou_metric_with, lk_metric_options, __VA_ARGS__)
lk_metric *lk_iou_metric_with(const lk_metric_options *options);
#define lk_dice_metric(...) LK_CALL0_(lk_dice_metric_with, lk_metric_options, __VA_ARGS__)
lk_metric *lk_dice_metric_with(const lk_metric_options *options);

/* trevsky, trevsky/_macro, ...: tp / (tp + beta fp + alpha fn), in the same form. */
#define lk_trevsky_metric(...) LK_CALL0_(lk_trevsky_metric_with, lk_metric_options, __VA_ARGS__)
lk_metric *lk_trevsky_metric_with(const lk_metric_options *options);

/* average_precision (the macro average), average_precision/_macro, /_micro, /_weighted: the area
 * under the steps of the precision-recall curve, one class against the rest. A class without
 * positives has none: its value is NaN, and the averages leave it out. Targets are as for the AUC.
 */
#define lk_average_precision_metric(...)                                                                     \
    LK_CALL0_(lk_average_precision_metric_with, lk_metric_options, __VA_ARGS__)
lk_metric *lk_average_precision_metric_with(const lk_metric_options *options);
/* Returns the curve of one class over all batches: (points, 3) f64 with precision, recall and
 * threshold, by rising threshold. The last row is 1, 0, infinity, as the curve of scikit-learn
 * ends. The caller frees it. NULL on failure. */
lk_tensor *lk_precision_recall_curve(const lk_metric *average_precision, int64_t class_index);

/* cohen_kappa, and matthews: how far predicted and true classes agree beyond chance, of the class
 * that scores highest. Kappa is NaN if both are always one and the same class; Matthews's
 * correlation is then 0. */
#define lk_cohen_kappa_metric(...) LK_CALL0_(lk_cohen_kappa_metric_with, lk_metric_options, __VA_ARGS__)
lk_metric *lk_cohen_kappa_metric_with(const lk_metric_options *options);
#define lk_matthews_metric(...) LK_CALL0_(lk_matthews_metric_with, lk_metric_options, __VA_ARGS__)
lk_metric *lk_matthews_metric_with(const lk_metric_options *options);

/* ece, mce: the expected and the largest calibration error. Samples are put into num_bins bins of
 * equal width by their highest probability; a bin's error is the distance of its mean probability
 * to its accuracy. A probability between two bins belongs to the upper one. */
#define lk_calibration_error_metric(...)                                                                     \
    LK_CALL0_(lk_calibration_error_metric_with, lk_metric_options, __VA_ARGS__)
lk_metric *lk_calibration_error_metric_with(const lk_metric_options *options);

/* perplexity: exp of the mean of -log p(target). Outputs are logits (samples, classes, ...), and
 * targets classes (samples, ...), as for the cross-entropy. */
#define lk_perplexity_metric(...) LK_CALL0_(lk_perplexity_metric_with, lk_metric_options, __VA_ARGS__)
lk_metric *lk_perplexity_metric_with(const lk_metric_options *options);

/* bleu, of the whole pass: the geometric mean of the precisions of n-grams up to max_order, times
 * the penalty for brevity. Outputs are tokens (samples, length), or logits (samples, tokens,
 * length) of which the highest counts; targets are tokens (samples, any length), one reference per
 * sample. Tokens equal to ignore_index are left out of both. */
#define lk_bleu_metric(...) LK_CALL0_(lk_bleu_metric_with, lk_metric_options, __VA_ARGS__)
lk_metric *lk_bleu_metric_with(const lk_metric_options *options);

/* Recommendations: hitrate01, hitrate01/std, hitrate03, ... for every k of topk (1), and the same
 * for mrr, map and ndcg. Outputs (samples, items) order the items of each sample, equal scores in
 * the order of the items; targets (samples, items) say how relevant they are. A value is the mean
 * over the samples:
 *
 *     hitrate   relevant items among the first k / relevant items; zero_division without any
 *     mrr       1 / the rank of the most relevant item among the first k; 0 without any
 *     map       the mean, over the relevant items among the first k, of the share of relevant
 *               items up to it
 *     ndcg      the sum of (2^target - 1) / log2(rank + 1), divided by the highest possible */
#define lk_hitrate_metric(...) LK_CALL0_(lk_hitrate_metric_with, lk_metric_options, __VA_ARGS__)
#define lk_mrr_metric(...)     LK_CALL0_(lk_mrr_metric_with, lk_metric_options, __VA_ARGS__)
#define lk_map_metric(...)     LK_CALL0_(lk_map_metric_with, lk_metric_options, __VA_ARGS__)
#define lk_ndcg_metric(...)    LK_CALL0_(lk_ndcg_metric_with, lk_metric_options, __VA_ARGS__)
lk_metric *lk_hitrate_metric_with(const lk_metric_options *options);
lk_metric *lk_mrr_metric_with(const lk_metric_options *options);
lk_metric *lk_map_metric_with(const lk_metric_options *options);
lk_metric *lk_ndcg_metric_with(const lk_metric_options *options);

/* NAME, NAME/mean and NAME/std of a number per batch, such as its loss, which
 * lk_metric_update_value adds. The number of a batch is usually rounded, so this mean depends on
 * how samples were divided into batches. The loss of a runner does not: see
 * lk_criterion_callback. */
#define lk_mean_metric(...) LK_CALL1_(lk_mean_metric_with, lk_metric_options, __VA_ARGS__, )
lk_metric *lk_mean_metric_with(const char *name, const lk_metric_options *options);

/* A matrix of counts: a row per true class, a column per predicted class. It has no values;
 * lk_confusion_matrix and the functions after it read it. */
#define lk_confusion_matrix_metric(...)                                                                      \
    LK_CALL0_(lk_confusion_matrix_metric_with, lk_metric_options, __VA_ARGS__)
lk_metric *lk_confusion_matrix_metric_with(const lk_metric_options *options);

/* Frees the metric. NULL is allowed. */
void lk_metric_free(lk_metric *metric);

/* Forgets all batches. */
void lk_metric_reset(lk_metric *metric);

/* Adds a batch: outputs (samples, classes), and targets (samples) of class indices or with the
 * shape of the outputs. If the call fails, the metric is unchanged. */
lk_status lk_metric_update(lk_metric *metric, const lk_tensor *outputs, const lk_tensor *targets);

/* Adds the number of one batch, weighted by its samples, to an lk_mean_metric. */
lk_status lk_metric_update_value(lk_metric *metric, double value, int64_t sample_count);

/* Computes the values over all batches since the reset. Without a batch they are NaN. */
lk_status lk_metric_compute(lk_metric *metric, lk_metric_values *out);

/* Computes the values of the last batch alone. Metrics that have no values per batch give none;
 * accuracy, precision and its relatives, IoU, Dice and the mean have them. */
lk_status lk_metric_compute_batch(lk_metric *metric, lk_metric_values *out);

/* Returns one value by name, computed if necessary, or NaN if there is none. */
double lk_metric_get(lk_metric *metric, const char *name);

/* Returns the confusion matrix, (classes, classes) f64, with normalized rows if the options say
 * so. The caller frees it. NULL on failure. */
lk_tensor *lk_confusion_matrix(const lk_metric *metric);
/* Save the matrix as a CSV file with class names, or as a PNG picture with the numbers in it. */
lk_status lk_confusion_matrix_save_csv(const lk_metric *metric, const char *path);
lk_status lk_confusion_matrix_save_png(const lk_metric *metric, const char *path);
/* Returns the same picture: (height, width, 3) u8. The caller frees it. NULL on failure. */
lk_tensor *lk_confusion_matrix_draw(const lk_metric *metric);
/* Returns the matrix as text for a terminal, shaded with ANSI colours if `colour` is set. Free it
 * with lk_text_free. NULL on failure. */
char *lk_confusion_matrix_text(const lk_metric *metric, bool colour);

#ifdef __cplusplus
}
#endif
#endif
