/* The area under the steps of a precision-recall curve, and the curve. */
#include "base/take.h"
#include "metric/auc.h"

#include <stdlib.h>
#include <string.h>

typedef struct cell {
    float score;
    bool is_positive;
} cell;

static int by_falling_score(const void *a, const void *b)
{
    float x = ((const cell *)a)->score, y = ((const cell *)b)->score;
    return (x < y) - (x > y);
}

/* The sample's cell of a class. */
static cell cell_at(const lki_auc_metric *metric, int64_t sample, int64_t class)
{
    const int32_t *labels = metric->labels.data;
    int64_t at = sample * metric->base.class_count + class;
    return (cell){((const float *)metric->scores.data)[at],
                  lki_auc_has_indices(metric) ? labels[sample] == class : labels[at] != 0};
}

/* Sorts the cells. Returns the number of positives, or -1 if a score is NaN. */
static int64_t prepare(cell *cells, int64_t count)
{
    int64_t positives = 0;
    for (int64_t i = 0; i < count; i++) {
        if (cells[i].score != cells[i].score) return -1;
        positives += cells[i].is_positive;
    }
    qsort(cells, (size_t)count, sizeof *cells, by_falling_score);
    return positives;
}

/* sum (R_n - R_{n-1}) P_n over the different scores, the highest first. NaN without positives. */
static double area(cell *cells, int64_t count)
{
    int64_t positives = prepare(cells, count), found = 0, before = 0;
    double sum = 0;
    if (positives <= 0) return NAN;
    for (int64_t i = 0; i < count; i++) {
        found += cells[i].is_positive;
        if (i + 1 < count && cells[i + 1].score == cells[i].score) continue;
        sum += (double)(found - before) * ((double)found / (double)(i + 1));
        before = found;
    }
    return sum / (double)positives;
}

static lk_status compute_areas(const lki_auc_metric *metric, double averages[3], double *per_class)
{
    int64_t classes = metric->base.class_count, samples = metric->scores.count / classes;
    LKI_SCOPED cell *cells = LKI_NEW_ARRAY(cell, samples * classes);
    double sum = 0, weighted = 0, defined = 0, support = 0;
    if (!cells) return LK_ERR_NOMEM;
    for (int64_t c = 0; c < classes; c++) {
        double positives = 0;
        for (int64_t i = 0; i < samples; i++) {
            cells[i] = cell_at(metric, i, c);
            positives += cells[i].is_positive;
        }
        per_class[c] = area(cells, samples);
        if (isnan(per_class[c])) continue;
        sum += per_class[c];
        weighted += per_class[c] * positives;
        defined += 1;
        support += positives;
    }
    for (int64_t i = 0; i < samples * classes; i++) cells[i] = cell_at(metric, i / classes, i % classes);
    averages[1] = area(cells, samples * classes);
    if (defined > 0) averages[0] = sum / defined, averages[2] = weighted / support;
    return LK_OK;
}

static lk_status average_precision_compute(lk_metric *base)
{
    const lki_auc_metric *metric = (const lki_auc_metric *)base;
    LKI_SCOPED double *per_class = LKI_NEW_ARRAY(double, base->class_count);
    double averages[3] = {NAN, NAN, NAN}; /* macro, micro, weighted */
    if (!per_class) return LK_ERR_NOMEM;
    for (int64_t c = 0; c < base->class_count; c++) per_class[c] = NAN;
    if (metric->scores.count) LKI_TRY(compute_areas(metric, averages, per_class));
    for (int i = 0; i < base->values.count; i++)
        base->values.items[i].value = i < 4 ? averages[i > 0 ? i - 1 : 0] : per_class[i - 4];
    return LK_OK;
}

static const lki_metric_kind average_precision_kind = {
    .reads = LKI_READS_CLASSES | LKI_READS_PER_CLASS,
    .name = "average_precision",
    .update = lki_auc_update,
    .reset = lki_auc_reset,
    .parts = lki_auc_parts,
    .compute = average_precision_compute,
    .fini = lki_auc_fini,
    .set_classes = lki_auc_set_classes,
    .is_sound = lki_auc_is_sound,
};

lk_metric *lk_average_precision_metric_with(const lk_metric_options *given)
{
    LKI_TAKE(lk_metric_options, options, given, NULL);
    return lki_auc_create(&average_precision_kind, &options);
}

/* Rows by rising threshold; the last is the end of the curve. */
static lk_tensor *make_curve(cell *cells, int64_t count, int64_t positives)
{
    int64_t points = 1, found = 0;
    for (int64_t i = 0; i < count; i++) points += i + 1 == count || cells[i + 1].score != cells[i].score;
    lk_tensor *curve = lk_tensor_create(LK_F64, LK_SHAPE(points, 3));
    if (!curve) return NULL;
    double *row = (double *)curve->data + 3 * (points - 1);
    memcpy(row, (const double[]){1, 0, INFINITY}, 3 * sizeof *row);
    for (int64_t i = 0; i < count; i++) {
        found += cells[i].is_positive;
        if (i + 1 < count && cells[i + 1].score == cells[i].score) continue;
        row -= 3;
        row[0] = (double)found / (double)(i + 1);
        row[1] = positives ? (double)found / (double)positives : 1;
        row[2] = cells[i].score;
    }
    return curve;
}

lk_tensor *lk_precision_recall_curve(const lk_metric *base, int64_t class)
{
    const lki_auc_metric *metric = (const lki_auc_metric *)base;
    if (!base || base->kind != &average_precision_kind)
        return lki_fail_null(LK_ERR_INVALID, "this metric is no average precision");
    if (metric->scores.count == 0) return lki_fail_null(LK_ERR_INVALID, "average_precision: no batch yet");
    if (class < 0 || class >= base->class_count)
        return lki_fail_null(LK_ERR_RANGE, "average_precision: there is no class %lld of %lld",
                             (long long)class, (long long)base->class_count);
    int64_t samples = metric->scores.count / base->class_count;
    LKI_SCOPED cell *cells = LKI_NEW_ARRAY(cell, samples);
    if (!cells) return NULL;
    for (int64_t i = 0; i < samples; i++) cells[i] = cell_at(metric, i, class);
    int64_t positives = prepare(cells, samples);
    if (positives < 0) return lki_fail_null(LK_ERR_RANGE, "average_precision: a score is NaN");
    return make_curve(cells, samples, positives);
}
