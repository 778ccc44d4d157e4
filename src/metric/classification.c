#include "metric/classification.h"

#include "base/arguments.h"
#include "base/take.h"
#include "metric/metric.h"

#include <stdio.h>
#include <math.h>
#include <string.h>

lki_prf lki_prf_of_counts(int64_t tp, int64_t fp, int64_t fn, double zero_division)
{
    lki_prf prf;
    prf.precision = tp + fp ? (double)tp / (double)(tp + fp) : zero_division;
    prf.recall = tp + fn ? (double)tp / (double)(tp + fn) : zero_division;
    double sum = prf.precision + prf.recall;
    prf.f1 = sum != 0 ? 2 * prf.precision * prf.recall / sum : 0;
    return prf;
}

static void add_scaled(lki_prf *total, lki_prf prf, double scale)
{
    total->precision += prf.precision * scale;
    total->recall += prf.recall * scale;
    total->f1 += prf.f1 * scale;
}

static lki_prf divided(lki_prf prf, double by)
{
    return (lki_prf){prf.precision / by, prf.recall / by, prf.f1 / by};
}

lki_prf_averages lki_prf_average(const int64_t *counts, int64_t class_count, double zero_division,
                                 lki_prf *per_class)
{
    const int64_t *tp = counts, *fp = counts + class_count, *fn = counts + 2 * class_count;
    lki_prf_averages averages = {0};
    int64_t all_tp = 0, all_fp = 0, all_fn = 0;
    for (int64_t c = 0; c < class_count; c++) {
        lki_prf prf = lki_prf_of_counts(tp[c], fp[c], fn[c], zero_division);
        if (per_class) per_class[c] = prf;
        add_scaled(&averages.macro, prf, 1);
        add_scaled(&averages.weighted, prf, (double)(tp[c] + fn[c]));
        all_tp += tp[c];
        all_fp += fp[c];
        all_fn += fn[c];
    }
    averages.micro = lki_prf_of_counts(all_tp, all_fp, all_fn, zero_division);
    averages.macro = divided(averages.macro, (double)class_count);
    /* Without one true label in the data there is nothing to weight by. */
    if (all_tp + all_fn == 0)
        averages.weighted = (lki_prf){all_fp ? 0 : zero_division, zero_division, all_fp ? 0 : zero_division};
    else
        averages.weighted = divided(averages.weighted, (double)(all_tp + all_fn));
    return averages;
}

typedef struct prf_metric {
    lk_metric base;
    int64_t *counts;  /* (3, classes): tp, fp, fn */
    int64_t *before;  /* the same, before the last batch */
    lki_prf *classes; /* where per_class is asked for */
    int64_t batch_count;
    double zero_division;
    float cut;
    bool per_class;
} prf_metric;

static size_t counts_nbytes(const lk_metric *metric)
{
    return sizeof(int64_t) * 3 * (size_t)metric->class_count;
}

static lk_status multiclass_update(lk_metric *base, const lki_metric_batch *batch)
{
    prf_metric *metric = (prf_metric *)base;
    const float *scores;
    const int64_t *targets;
    LKI_TRY(lki_metric_see_classes(base, batch));
    LKI_TRY(lki_metric_outputs_f32(base, batch, &scores));
    LKI_TRY(lki_metric_targets_index(base, batch, &targets));
    int64_t classes = base->class_count, *counts = metric->counts;
    memcpy(metric->before, counts, counts_nbytes(base));
    for (int64_t i = 0; i < batch->sample_count; i++) {
        int64_t predicted = lki_metric_argmax(scores + i * classes, classes), target = targets[i];
        int64_t right = predicted == target;
        counts[target] += right;
        counts[classes + predicted] += !right;
        counts[2 * classes + target] += !right;
    }
    metric->batch_count++;
    return LK_OK;
}

static lk_status multilabel_update(lk_metric *base, const lki_metric_batch *batch)
{
    prf_metric *metric = (prf_metric *)base;
    const float *scores, *targets;
    LKI_TRY(lki_metric_see_classes(base, batch));
    LKI_TRY(lki_metric_check_cells(base, batch));
    LKI_TRY(lki_metric_outputs_f32(base, batch, &scores));
    LKI_TRY(lki_metric_targets_f32(base, batch, &targets));
    int64_t classes = base->class_count, *counts = metric->counts;
    memcpy(metric->before, counts, counts_nbytes(base));
    for (int64_t i = 0; i < batch->sample_count; i++)
        for (int64_t c = 0; c < classes; c++) {
            bool predicted = scores[i * classes + c] > metric->cut, target = targets[i * classes + c] > 0.5f;
            counts[c] += predicted && target;
            counts[classes + c] += predicted && !target;
            counts[2 * classes + c] += !predicted && target;
        }
    metric->batch_count++;
    return LK_OK;
}

static void prf_reset(lk_metric *base)
{
    prf_metric *metric = (prf_metric *)base;
    metric->batch_count = 0;
    if (!metric->counts) return;
    memset(metric->counts, 0, counts_nbytes(base));
    memset(metric->before, 0, counts_nbytes(base));
}

static int prf_parts(lk_metric *base, lki_metric_part parts[LKI_METRIC_MAX_PARTS])
{
    prf_metric *metric = (prf_metric *)base;
    parts[0] = (lki_metric_part){LKI_METRIC_SUM_I64, metric->counts, 3 * base->class_count};
    parts[1] = (lki_metric_part){LKI_METRIC_SUM_I64, &metric->batch_count, 1};
    return 2;
}

/* The values have names once the classes are known. */
static bool prf_is_sound(const lk_metric *base)
{
    return base->class_count || ((const prf_metric *)base)->batch_count == 0;
}

static void write_values(lki_metric_value_list *list, const lki_prf_averages *averages)
{
    const lki_prf *kinds[] = {&averages->macro, &averages->micro, &averages->weighted};
    for (int i = 0; i < 3; i++) {
        list->items[i].value = kinds[i]->precision;
        list->items[3 + i].value = kinds[i]->recall;
        list->items[6 + i].value = kinds[i]->f1;
    }
}

static lk_status prf_compute(lk_metric *base)
{
    prf_metric *metric = (prf_metric *)base;
    lk_metric_value *values = base->values.items;
    if (metric->batch_count == 0) {
        for (int i = 0; i < base->values.count; i++) values[i].value = NAN;
        return LK_OK;
    }
    int64_t classes = base->class_count;
    lki_prf_averages averages =
        lki_prf_average(metric->counts, classes, metric->zero_division, metric->classes);
    write_values(&base->values, &averages);
    for (int64_t c = 0; metric->per_class && c < classes; c++) {
        lk_metric_value *of_class = values + 9 + 4 * c;
        of_class[0].value = metric->classes[c].precision;
        of_class[1].value = metric->classes[c].recall;
        of_class[2].value = metric->classes[c].f1;
        of_class[3].value = (double)(metric->counts[c] + metric->counts[2 * classes + c]);
    }
    return LK_OK;
}

static lk_status prf_compute_batch(lk_metric *base)
{
    prf_metric *metric = (prf_metric *)base;
    if (metric->batch_count == 0) return LK_OK;
    int64_t *batch = metric->before; /* before := counts - before, then back again */
    int64_t cells = 3 * base->class_count;
    for (int64_t i = 0; i < cells; i++) batch[i] = metric->counts[i] - batch[i];
    lki_prf_averages averages = lki_prf_average(batch, base->class_count, metric->zero_division, NULL);
    for (int64_t i = 0; i < cells; i++) batch[i] = metric->counts[i] - batch[i];
    write_values(&base->batch_values, &averages);
    return LK_OK;
}

static void prf_fini(lk_metric *base)
{
    prf_metric *metric = (prf_metric *)base;
    lki_free(metric->counts);
    lki_free(metric->before);
    lki_free(metric->classes);
}

static lk_status add_names(lk_metric *base)
{
    static const char *const names[] = {"precision", "recall", "f1", "support"};
    static const char *const averages[] = {"/_macro", "/_micro", "/_weighted"};
    for (int i = 0; i < 9; i++) LKI_TRY(lki_metric_add_value(base, names[i / 3], averages[i % 3]));
    for (int i = 0; i < 9; i++) LKI_TRY(lki_metric_add_batch_value(base, i));
    if (!((prf_metric *)base)->per_class) return LK_OK;
    for (int64_t c = 0; c < base->class_count; c++)
        for (int i = 0; i < 4; i++) {
            char tail[40];
            snprintf(tail, sizeof tail, "/class_%02lld", (long long)c);
            LKI_TRY(lki_metric_add_value(base, names[i], tail));
        }
    return LK_OK;
}

static lk_status prf_set_classes(lk_metric *base, int64_t class_count)
{
    prf_metric *metric = (prf_metric *)base;
    metric->counts = LKI_NEW_ARRAY(int64_t, 3 * class_count);
    metric->before = LKI_NEW_ARRAY(int64_t, 3 * class_count);
    metric->classes = LKI_NEW_ARRAY(lki_prf, class_count);
    if (!metric->counts || !metric->before || !metric->classes) return LK_ERR_NOMEM;
    base->class_count = class_count;
    return add_names(base);
}

static lk_metric *create(const lki_metric_kind *kind, const lk_metric_options *options)
{
    double zero = options->zero_division;
    if (!isnan(zero) && !(zero >= 0 && zero <= 1))
        return lki_fail_null(LK_ERR_INVALID, "%s: zero_division: expected 0 to 1, or NaN, found %g",
                             kind->name, zero);
    prf_metric *metric = (prf_metric *)lki_metric_new(sizeof *metric, kind, options);
    if (!metric) return NULL;
    metric->zero_division = options->zero_division;
    metric->per_class = options->compute_per_class_metrics;
    metric->cut = lki_metric_cut(lki_number_or(options->threshold, 0.5), options->from_logits);
    if (options->num_classes && prf_set_classes(&metric->base, options->num_classes)) {
        lk_metric_free(&metric->base);
        return NULL;
    }
    return &metric->base;
}

/* What both have in common: they differ in how a batch is counted. */
#define PRF_REST                                                                                             \
    .reset = prf_reset, .parts = prf_parts, .compute = prf_compute, .compute_batch = prf_compute_batch,      \
    .fini = prf_fini, .set_classes = prf_set_classes, .is_sound = prf_is_sound

lk_metric *lk_precision_recall_f1_support_metric_with(const lk_metric_options *given)
{
    LKI_TAKE(lk_metric_options, options, given, NULL);
    static const lki_metric_kind kind = {
        .reads = LKI_READS_CLASSES | LKI_READS_ZERO_DIVISION | LKI_READS_PER_CLASS,
        .name = "precision, recall, f1",
        .update = multiclass_update,
        PRF_REST,
    };
    return create(&kind, &options);
}

lk_metric *lk_multilabel_precision_recall_f1_support_metric_with(const lk_metric_options *given)
{
    LKI_TAKE(lk_metric_options, options, given, NULL);
    static const lki_metric_kind kind = {
        .reads = LKI_READS_CLASSES | LKI_READS_ZERO_DIVISION | LKI_READS_PER_CLASS | LKI_READS_THRESHOLD,
        .name = "multilabel precision, recall, f1",
        .update = multilabel_update,
        PRF_REST,
    };
    return create(&kind, &options);
}
