#include "metric/confusion.h"

#include "base/number_text.h"
#include "base/take.h"

#include <stdio.h>
#include <string.h>

static lk_status confusion_update(lk_metric *base, const lki_metric_batch *batch)
{
    lki_confusion_metric *metric = (lki_confusion_metric *)base;
    const float *scores;
    const int64_t *targets;
    LKI_TRY(lki_metric_see_classes(base, batch));
    LKI_TRY(lki_metric_outputs_f32(base, batch, &scores));
    LKI_TRY(lki_metric_targets_index(base, batch, &targets));
    int64_t classes = base->class_count;
    for (int64_t i = 0; i < batch->sample_count; i++) {
        metric->counts[targets[i] * classes + lki_metric_argmax(scores + i * classes, classes)]++;
        metric->row_sums[targets[i]]++;
    }
    return LK_OK;
}

static void confusion_reset(lk_metric *base)
{
    lki_confusion_metric *metric = (lki_confusion_metric *)base;
    if (!metric->counts) return;
    memset(metric->counts, 0, sizeof(int64_t) * (size_t)(base->class_count * base->class_count));
    memset(metric->row_sums, 0, sizeof(int64_t) * (size_t)base->class_count);
}

static int confusion_parts(lk_metric *base, lki_metric_part parts[LKI_METRIC_MAX_PARTS])
{
    lki_confusion_metric *metric = (lki_confusion_metric *)base;
    parts[0] = (lki_metric_part){LKI_METRIC_SUM_I64, metric->counts, base->class_count * base->class_count};
    parts[1] = (lki_metric_part){LKI_METRIC_SUM_I64, metric->row_sums, base->class_count};
    return 2;
}

static lk_status confusion_compute(lk_metric *base)
{
    (void)base;
    return LK_OK;
}

static void confusion_fini(lk_metric *base)
{
    lki_confusion_metric *metric = (lki_confusion_metric *)base;
    lki_free(metric->counts);
    lki_free(metric->row_sums);
    lki_metric_free_names(metric->class_names, base->class_count);
}

static lk_status confusion_set_classes(lk_metric *base, int64_t class_count)
{
    lki_confusion_metric *metric = (lki_confusion_metric *)base;
    int64_t cells;
    if (__builtin_mul_overflow(class_count, class_count, &cells) || cells > INT32_MAX)
        return lki_fail(LK_ERR_INVALID, "confusion matrix: %lld classes are too many",
                        (long long)class_count);
    if (!metric->class_names) LKI_TRY(lki_metric_copy_names(&metric->class_names, NULL, class_count));
    base->class_count = class_count;
    metric->counts = LKI_NEW_ARRAY(int64_t, cells);
    metric->row_sums = LKI_NEW_ARRAY(int64_t, class_count);
    return metric->counts && metric->row_sums ? LK_OK : LK_ERR_NOMEM;
}

static const lki_metric_kind confusion_kind = {
    .reads = LKI_READS_CLASSES | LKI_READS_CLASS_NAMES | LKI_READS_NORMALIZE,
    .name = "confusion matrix",
    .update = confusion_update,
    .reset = confusion_reset,
    .parts = confusion_parts,
    .compute = confusion_compute,
    .fini = confusion_fini,
    .set_classes = confusion_set_classes,
};

lk_metric *lk_confusion_matrix_metric_with(const lk_metric_options *given)
{
    LKI_TAKE(lk_metric_options, options, given, NULL);
    lki_confusion_metric *metric =
        (lki_confusion_metric *)lki_metric_new(sizeof *metric, &confusion_kind, &options);
    if (!metric) return NULL;
    metric->normalize = options.normalize;
    if (options.class_names && options.num_classes == 0) {
        lki_fail(LK_ERR_INVALID, "confusion matrix: class_names need num_classes");
        goto failed;
    }
    if (options.class_names) {
        if (lki_metric_copy_names(&metric->class_names, options.class_names, options.num_classes))
            goto failed;
        metric->base.class_count = options.num_classes;
    }
    if (options.num_classes && confusion_set_classes(&metric->base, options.num_classes)) goto failed;
    return &metric->base;
failed:
    lk_metric_free(&metric->base);
    return NULL;
}

const lki_confusion_metric *lki_confusion_of(const lk_metric *metric)
{
    if (!metric || metric->kind != &confusion_kind)
        return lki_fail_null(LK_ERR_INVALID, "this metric is no confusion matrix");
    if (metric->class_count == 0)
        return lki_fail_null(LK_ERR_INVALID, "confusion matrix: no batch yet, and no num_classes");
    return (const lki_confusion_metric *)metric;
}

double lki_confusion_share(const lki_confusion_metric *metric, int64_t row, int64_t column)
{
    int64_t count = metric->counts[row * metric->base.class_count + column];
    return metric->row_sums[row] ? (double)count / (double)metric->row_sums[row] : 0;
}

double lki_confusion_cell(const lki_confusion_metric *metric, int64_t row, int64_t column)
{
    if (metric->normalize) return lki_confusion_share(metric, row, column);
    return (double)metric->counts[row * metric->base.class_count + column];
}

void lki_confusion_cell_text(char *text, size_t capacity, const lki_confusion_metric *metric, int64_t row,
                             int64_t column)
{
    lki_snprintf(text, capacity, metric->normalize ? "%.2f" : "%.0f",
                 lki_confusion_cell(metric, row, column));
}

lk_tensor *lk_confusion_matrix(const lk_metric *metric)
{
    const lki_confusion_metric *confusion = lki_confusion_of(metric);
    if (!confusion) return NULL;
    int64_t classes = metric->class_count;
    lk_tensor *matrix = lk_tensor_create(LK_F64, LK_SHAPE(classes, classes));
    for (int64_t i = 0; matrix && i < classes * classes; i++)
        ((double *)matrix->data)[i] = lki_confusion_cell(confusion, i / classes, i % classes);
    return matrix;
}
