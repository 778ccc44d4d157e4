/* The calibration error: how far probabilities are from how often they are right. */
#include "base/take.h"
#include "metric/exact.h"
#include "metric/metric.h"

#include <string.h>

enum { DEFAULT_BINS = 15, MAX_BINS = 10000 };

typedef struct calibration_metric {
    lk_metric base;
    int bins;
    bool from_logits;
    int64_t *counts, *hits;      /* samples of each bin, and those that are right */
    lk_exact_sum *probabilities; /* the sums of each bin */
} calibration_metric;

/* The highest probability of a sample: 1 / sum(exp(x - max)) of logits. */
static double highest(const float *scores, int64_t classes, int64_t best, bool from_logits)
{
    if (!from_logits) return scores[best];
    double sum = 0;
    for (int64_t c = 0; c < classes; c++) sum += exp((double)scores[c] - (double)scores[best]);
    return 1 / sum;
}

static lk_status calibration_update(lk_metric *base, const lki_metric_batch *batch)
{
    calibration_metric *metric = (calibration_metric *)base;
    const float *scores;
    const int64_t *targets;
    LKI_TRY(lki_metric_see_classes(base, batch));
    LKI_TRY(lki_metric_outputs_f32(base, batch, &scores));
    LKI_TRY(lki_metric_targets_index(base, batch, &targets));
    int64_t classes = base->class_count;
    LKI_SCOPED double *found = LKI_NEW_ARRAY(double, batch->sample_count);
    LKI_SCOPED int64_t *best = LKI_NEW_ARRAY(int64_t, batch->sample_count);
    if (!found || !best) return LK_ERR_NOMEM;
    for (int64_t i = 0; i < batch->sample_count; i++) {
        const float *row = scores + i * classes;
        best[i] = lki_metric_argmax(row, classes);
        found[i] = highest(row, classes, best[i], metric->from_logits);
        if (!(found[i] >= 0 && found[i] <= 1))
            return lki_fail(LK_ERR_RANGE,
                            "calibration_error: expected probabilities, found %g in sample %lld; for logits "
                            "there is from_logits",
                            found[i], (long long)i);
    }
    for (int64_t i = 0; i < batch->sample_count; i++) {
        int64_t bin = (int64_t)(found[i] * metric->bins);
        bin = bin < metric->bins ? bin : metric->bins - 1;
        metric->counts[bin]++;
        metric->hits[bin] += best[i] == targets[i];
        lk_exact_sum_add(&metric->probabilities[bin], found[i]);
    }
    return LK_OK;
}

static void calibration_reset(lk_metric *base)
{
    calibration_metric *metric = (calibration_metric *)base;
    memset(metric->counts, 0, sizeof(int64_t) * (size_t)metric->bins);
    memset(metric->hits, 0, sizeof(int64_t) * (size_t)metric->bins);
    memset(metric->probabilities, 0, sizeof(lk_exact_sum) * (size_t)metric->bins);
}

static int calibration_parts(lk_metric *base, lki_metric_part parts[LKI_METRIC_MAX_PARTS])
{
    calibration_metric *metric = (calibration_metric *)base;
    parts[0] = (lki_metric_part){LKI_METRIC_SUM_I64, metric->counts, metric->bins};
    parts[1] = (lki_metric_part){LKI_METRIC_SUM_I64, metric->hits, metric->bins};
    parts[2] = (lki_metric_part){LKI_METRIC_EXACT, metric->probabilities, metric->bins};
    return 3;
}

static lk_status calibration_compute(lk_metric *base)
{
    const calibration_metric *metric = (const calibration_metric *)base;
    double all = 0, sum = 0, largest = 0;
    for (int b = 0; b < metric->bins; b++) {
        if (metric->counts[b] == 0) continue;
        double count = (double)metric->counts[b];
        double apart = fabs(lk_exact_sum_value(&metric->probabilities[b]) - (double)metric->hits[b]);
        all += count;
        sum += apart;
        largest = fmax(largest, apart / count);
    }
    base->values.items[0].value = all > 0 ? sum / all : NAN;
    base->values.items[1].value = all > 0 ? largest : NAN;
    return LK_OK;
}

static void calibration_fini(lk_metric *base)
{
    calibration_metric *metric = (calibration_metric *)base;
    lki_free(metric->counts);
    lki_free(metric->hits);
    lki_free(metric->probabilities);
}

static lk_status calibration_set_classes(lk_metric *base, int64_t class_count)
{
    base->class_count = class_count;
    return LK_OK;
}

lk_metric *lk_calibration_error_metric_with(const lk_metric_options *given)
{
    LKI_TAKE(lk_metric_options, options, given, NULL);
    static const lki_metric_kind kind = {
        .name = "calibration_error",
        .update = calibration_update,
        .reset = calibration_reset,
        .parts = calibration_parts,
        .compute = calibration_compute,
        .fini = calibration_fini,
        .set_classes = calibration_set_classes,
        .reads = LKI_READS_CLASSES | LKI_READS_LOGITS | LKI_READS_BINS,
    };
    int bins = options.num_bins ? options.num_bins : DEFAULT_BINS;
    if (bins < 1 || bins > MAX_BINS)
        return lki_fail_null(LK_ERR_INVALID, "calibration_error: num_bins: expected 1 to %d, found %d",
                             MAX_BINS, bins);
    calibration_metric *metric = (calibration_metric *)lki_metric_new(sizeof *metric, &kind, &options);
    if (!metric) return NULL;
    metric->bins = bins;
    metric->from_logits = options.from_logits;
    metric->base.class_count = options.num_classes;
    metric->counts = LKI_NEW_ARRAY(int64_t, bins);
    metric->hits = LKI_NEW_ARRAY(int64_t, bins);
    metric->probabilities = LKI_NEW_ARRAY(lk_exact_sum, bins);
    if (metric->counts && metric->hits && metric->probabilities &&
        !lki_metric_add_value(&metric->base, "ece", "") && !lki_metric_add_value(&metric->base, "mce", ""))
        return &metric->base;
    lk_metric_free(&metric->base);
    return NULL;
}
