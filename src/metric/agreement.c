/* How far predicted and true classes agree beyond chance: Cohen's kappa and Matthews's correlation. */
#include "base/take.h"
#include "metric/metric.h"

#include <string.h>

typedef struct agreement_metric {
    lk_metric base;
    int64_t *counts; /* (true, predicted) */
} agreement_metric;

static int64_t cell_count(const lk_metric *base)
{
    return base->class_count * base->class_count;
}

static lk_status agreement_set_classes(lk_metric *base, int64_t class_count)
{
    int64_t cells;
    if (__builtin_mul_overflow(class_count, class_count, &cells) || cells > INT32_MAX)
        return lki_fail(LK_ERR_INVALID, "%s: %lld classes are too many", base->kind->name,
                        (long long)class_count);
    ((agreement_metric *)base)->counts = LKI_NEW_ARRAY(int64_t, cells);
    base->class_count = class_count;
    return ((agreement_metric *)base)->counts ? LK_OK : LK_ERR_NOMEM;
}

static lk_status agreement_update(lk_metric *base, const lki_metric_batch *batch)
{
    agreement_metric *metric = (agreement_metric *)base;
    const float *scores;
    const int64_t *targets;
    LKI_TRY(lki_metric_see_classes(base, batch));
    LKI_TRY(lki_metric_outputs_f32(base, batch, &scores));
    LKI_TRY(lki_metric_targets_index(base, batch, &targets));
    int64_t classes = base->class_count;
    for (int64_t i = 0; i < batch->sample_count; i++)
        metric->counts[targets[i] * classes + lki_metric_argmax(scores + i * classes, classes)]++;
    return LK_OK;
}

static void agreement_reset(lk_metric *base)
{
    agreement_metric *metric = (agreement_metric *)base;
    if (metric->counts) memset(metric->counts, 0, sizeof(int64_t) * (size_t)cell_count(base));
}

static int agreement_parts(lk_metric *base, lki_metric_part parts[LKI_METRIC_MAX_PARTS])
{
    parts[0] = (lki_metric_part){LKI_METRIC_SUM_I64, ((agreement_metric *)base)->counts, cell_count(base)};
    return 1;
}

/* Sums of the counts c: all, those that agree, and over the classes k of t_k p_k, t_k^2 and p_k^2, with t_k
 * and p_k samples that are, and that are taken to be, of class k. */
typedef struct sums {
    double all, right, both, true_squares, predicted_squares;
} sums;

static sums sum_up(const agreement_metric *metric)
{
    int64_t classes = metric->base.class_count;
    sums s = {0};
    for (int64_t k = 0; k < classes; k++) {
        double is = 0, taken = 0;
        for (int64_t i = 0; i < classes; i++) {
            is += (double)metric->counts[k * classes + i];
            taken += (double)metric->counts[i * classes + k];
        }
        s.all += is;
        s.right += (double)metric->counts[k * classes + k];
        s.both += is * taken;
        s.true_squares += is * is;
        s.predicted_squares += taken * taken;
    }
    return s;
}

/* 1 - (what does not agree) / (what would not by chance) */
static lk_status kappa_compute(lk_metric *base)
{
    sums s = sum_up((agreement_metric *)base);
    double by_chance = s.all - s.both / s.all;
    base->values.items[0].value = s.all > 0 && by_chance != 0 ? 1 - (s.all - s.right) / by_chance : NAN;
    return LK_OK;
}

static lk_status matthews_compute(lk_metric *base)
{
    sums s = sum_up((agreement_metric *)base);
    double spread = (s.all * s.all - s.true_squares) * (s.all * s.all - s.predicted_squares);
    double common = s.right * s.all - s.both;
    base->values.items[0].value = s.all == 0 ? NAN : spread == 0 ? 0 : common / sqrt(spread);
    return LK_OK;
}

static void agreement_fini(lk_metric *base)
{
    lki_free(((agreement_metric *)base)->counts);
}

#define DEFINE_AGREEMENT(function, name_, compute_)                                                          \
    lk_metric *function(const lk_metric_options *given)                                                      \
    {                                                                                                        \
        LKI_TAKE(lk_metric_options, options, given, NULL);                                                   \
        static const lki_metric_kind kind = {                                                                \
            .name = name_,                                                                                   \
            .update = agreement_update,                                                                      \
            .reset = agreement_reset,                                                                        \
            .parts = agreement_parts,                                                                        \
            .compute = compute_,                                                                             \
            .fini = agreement_fini,                                                                          \
            .set_classes = agreement_set_classes,                                                            \
            .reads = LKI_READS_CLASSES,                                                                      \
        };                                                                                                   \
        lk_metric *metric = lki_metric_new(sizeof(agreement_metric), &kind, &options);                       \
        if (!metric) return NULL;                                                                            \
        lk_status status = lki_metric_add_value(metric, name_, "");                                          \
        if (!status && options.num_classes) status = agreement_set_classes(metric, options.num_classes);     \
        if (!status) return metric;                                                                          \
        lk_metric_free(metric);                                                                              \
        return NULL;                                                                                         \
    }

DEFINE_AGREEMENT(lk_cohen_kappa_metric_with, "cohen_kappa", kappa_compute)
DEFINE_AGREEMENT(lk_matthews_metric_with, "matthews", matthews_compute)
