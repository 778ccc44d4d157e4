/* Metrics of recommendations: outputs (samples, items) put the items of each sample in an order, the highest
 * score first and equal scores in the order of the items, and targets (samples, items) say how relevant each
 * of them is. Every metric is the mean over the samples of a number for the first k items:
 *
 *     hitrate   relevant items among the first k / relevant items; zero_division without any
 *     mrr       1 / the rank of the most relevant item among the first k; 0 without any
 *     map       the mean, over the relevant items among the first k, of the share of relevant items up to it
 *     ndcg      sum (2^target - 1) / log2(rank + 1) over the first k, divided by the most that can be had */
#include "base/take.h"
#include "metric/mean.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct ranking_metric {
    lk_metric base;
    lk_exact_sum sums[LK_MAX_TOPK];
    int64_t seen; /* samples */
    lki_spread spread;
    int topk[LK_MAX_TOPK];
    int topk_count;
    double zero_division;
    struct place *places; /* (items): workspace of one sample */
    double *ranked;       /* (items): its targets in their order */
} ranking_metric;

typedef struct place {
    float score;
    int64_t item;
    double target;
} place;

/* From the highest score to the lowest; a NaN counts as the highest. */
static int compare_places(const void *first, const void *second)
{
    const place *a = first, *b = second;
    bool a_is_nan = isnan(a->score), b_is_nan = isnan(b->score);
    if (a_is_nan != b_is_nan) return a_is_nan ? -1 : 1;
    if (!a_is_nan && a->score != b->score) return a->score > b->score ? -1 : 1;
    return (a->item > b->item) - (a->item < b->item);
}

/* Fills ranking->ranked with the targets, ordered by `scores`. */
static void rank_targets(ranking_metric *metric, const float *scores, const float *targets, int64_t count)
{
    for (int64_t i = 0; i < count; i++) metric->places[i] = (place){scores[i], i, targets[i]};
    qsort(metric->places, (size_t)count, sizeof *metric->places, compare_places);
    for (int64_t i = 0; i < count; i++) metric->ranked[i] = metric->places[i].target;
}

/* What one sample scores; `ranked` are its targets in the order of its outputs, of which the first k count.
 */
typedef double (*sample_score)(ranking_metric *metric, const float *targets, int64_t count, int64_t k);

static double hitrate_of(ranking_metric *metric, const float *targets, int64_t count, int64_t k)
{
    double hits = 0, all = 0;
    (void)targets;
    for (int64_t i = 0; i < count; i++) {
        all += metric->ranked[i];
        if (i < k) hits += metric->ranked[i];
    }
    return all != 0 ? hits / all : metric->zero_division;
}

static double reciprocal_rank_of(ranking_metric *metric, const float *targets, int64_t count, int64_t k)
{
    int64_t best = 0;
    (void)targets, (void)count;
    for (int64_t i = 1; i < k; i++)
        if (metric->ranked[i] > metric->ranked[best]) best = i;
    return metric->ranked[best] != 0 ? 1 / (double)(best + 1) : 0;
}

static double average_precision_of(ranking_metric *metric, const float *targets, int64_t count, int64_t k)
{
    double found = 0, sum = 0;
    int64_t relevant = 0;
    (void)targets, (void)count;
    for (int64_t i = 0; i < k; i++) {
        found += metric->ranked[i];
        double precision = found / (double)(i + 1) * metric->ranked[i];
        sum += precision;
        relevant += precision != 0;
    }
    return relevant ? sum / (double)relevant : 0;
}

static double gain(const double *ranked, int64_t k)
{
    double sum = 0;
    for (int64_t i = 0; i < k; i++) sum += (exp2(ranked[i]) - 1) / log2((double)i + 2);
    return sum;
}

static double ndcg_of(ranking_metric *metric, const float *targets, int64_t count, int64_t k)
{
    double found = gain(metric->ranked, k);
    rank_targets(metric, targets, targets, count);
    double ideal = gain(metric->ranked, k);
    return ideal != 0 ? found / ideal : 0;
}

static const struct {
    const char *name;
    sample_score score;
} kinds[] = {
    {"hitrate", hitrate_of}, {"mrr", reciprocal_rank_of}, {"map", average_precision_of}, {"ndcg", ndcg_of}};

static sample_score score_of(const lk_metric *metric)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(metric->kind->name, kinds[i].name) == 0) return kinds[i].score;
    return NULL;
}

static lk_status ranking_set_classes(lk_metric *base, int64_t class_count)
{
    ranking_metric *metric = (ranking_metric *)base;
    metric->places = LKI_NEW_ARRAY(place, class_count);
    metric->ranked = LKI_NEW_ARRAY(double, class_count);
    if (!metric->places || !metric->ranked) return LK_ERR_NOMEM;
    base->class_count = class_count;
    return LK_OK;
}

static lk_status ranking_update(lk_metric *base, const lki_metric_batch *batch)
{
    ranking_metric *metric = (ranking_metric *)base;
    const float *scores, *targets;
    double totals[LK_MAX_TOPK] = {0};
    sample_score score = score_of(base);
    LKI_TRY(lki_metric_see_classes(base, batch));
    LKI_TRY(lki_metric_check_cells(base, batch));
    LKI_TRY(lki_metric_outputs_f32(base, batch, &scores));
    LKI_TRY(lki_metric_targets_f32(base, batch, &targets));
    int64_t items = base->class_count;
    for (int64_t i = 0; i < batch->target_count; i++)
        if (!isfinite(targets[i]))
            return lki_fail(LK_ERR_RANGE, "%s: the target of item %lld of sample %lld is not finite",
                            base->kind->name, (long long)(i % items), (long long)(i / items));
    for (int64_t i = 0; i < batch->sample_count; i++)
        for (int k = 0; k < metric->topk_count; k++) {
            rank_targets(metric, scores + i * items, targets + i * items, items);
            int64_t first = metric->topk[k] < items ? metric->topk[k] : items;
            double value = score(metric, targets + i * items, items, first);
            lk_exact_sum_add(&metric->sums[k], value);
            totals[k] += value;
        }
    metric->seen += batch->sample_count;
    for (int k = 0; k < metric->topk_count; k++)
        lki_spread_add(&metric->spread, k, totals[k] / (double)batch->sample_count,
                       (double)batch->sample_count);
    return LK_OK;
}

static void ranking_reset(lk_metric *base)
{
    ranking_metric *metric = (ranking_metric *)base;
    memset(metric->sums, 0, sizeof metric->sums);
    metric->seen = 0;
    lki_spread_reset(&metric->spread);
}

static int ranking_parts(lk_metric *base, lki_metric_part parts[LKI_METRIC_MAX_PARTS])
{
    ranking_metric *metric = (ranking_metric *)base;
    parts[0] = (lki_metric_part){LKI_METRIC_EXACT, metric->sums, LK_MAX_TOPK};
    parts[1] = (lki_metric_part){LKI_METRIC_SUM_I64, &metric->seen, 1};
    parts[2] = lki_spread_part(&metric->spread);
    return 3;
}

static bool ranking_is_sound(const lk_metric *base)
{
    const ranking_metric *metric = (const ranking_metric *)base;
    return metric->seen >= 0 && lki_spread_is_sound(&metric->spread);
}

static lk_status ranking_compute(lk_metric *base)
{
    const ranking_metric *metric = (const ranking_metric *)base;
    for (int k = 0; k < metric->topk_count; k++) {
        base->values.items[2 * k].value =
            metric->seen ? lk_exact_sum_value(&metric->sums[k]) / (double)metric->seen : NAN;
        base->values.items[2 * k + 1].value = lki_spread_std(&metric->spread, k);
    }
    return LK_OK;
}

static lk_status ranking_compute_batch(lk_metric *base)
{
    for (int k = 0; k < base->batch_values.count; k++)
        base->batch_values.items[k].value = ((ranking_metric *)base)->spread.last[k];
    return LK_OK;
}

static void ranking_fini(lk_metric *base)
{
    ranking_metric *metric = (ranking_metric *)base;
    lki_metric_array_fini(&metric->spread.moments);
    lki_free(metric->places);
    lki_free(metric->ranked);
}

static lk_status add_names(ranking_metric *metric)
{
    for (int k = 0; k < metric->topk_count; k++) {
        char name[32];
        snprintf(name, sizeof name, "%s%02d", metric->base.kind->name, metric->topk[k]);
        LKI_TRY(lki_metric_add_value(&metric->base, name, ""));
        LKI_TRY(lki_metric_add_batch_value(&metric->base, 2 * k));
        LKI_TRY(lki_metric_add_value(&metric->base, name, "/std"));
    }
    return LK_OK;
}

static lk_status take_topk(ranking_metric *metric, const lk_metric_options *options)
{
    for (int k = 0; k < LK_MAX_TOPK && options->topk[k]; k++) {
        if (options->topk[k] < 0)
            return lki_fail(LK_ERR_INVALID, "%s: topk: expected at least 1, found %d",
                            metric->base.kind->name, options->topk[k]);
        metric->topk[metric->topk_count++] = options->topk[k];
    }
    if (metric->topk_count == 0) metric->topk[metric->topk_count++] = 1;
    return LK_OK;
}

static lk_metric *create(const lki_metric_kind *kind, const lk_metric_options *options)
{
    double zero = options->zero_division;
    if (!isnan(zero) && !(zero >= 0 && zero <= 1))
        return lki_fail_null(LK_ERR_INVALID, "%s: zero_division: expected 0 to 1, or NaN, found %g",
                             kind->name, zero);
    ranking_metric *metric = (ranking_metric *)lki_metric_new(sizeof *metric, kind, options);
    if (!metric) return NULL;
    metric->zero_division = options->zero_division;
    lk_status status = take_topk(metric, options);
    if (!status) status = lki_spread_init(&metric->spread, metric->topk_count);
    if (!status) status = add_names(metric);
    if (!status && options->num_classes) status = ranking_set_classes(&metric->base, options->num_classes);
    if (!status) return &metric->base;
    lk_metric_free(&metric->base);
    return NULL;
}

#define DEFINE_RANKING(function, name_, more)                                                                \
    lk_metric *function(const lk_metric_options *given)                                                      \
    {                                                                                                        \
        LKI_TAKE(lk_metric_options, options, given, NULL);                                                   \
        static const lki_metric_kind kind = {                                                                \
            .name = name_,                                                                                   \
            .update = ranking_update,                                                                        \
            .reset = ranking_reset,                                                                          \
            .parts = ranking_parts,                                                                          \
            .compute = ranking_compute,                                                                      \
            .compute_batch = ranking_compute_batch,                                                          \
            .fini = ranking_fini,                                                                            \
            .set_classes = ranking_set_classes,                                                              \
            .is_sound = ranking_is_sound,                                                                    \
            .reads = LKI_READS_CLASSES | LKI_READS_TOPK | (more),                                            \
        };                                                                                                   \
        return create(&kind, &options);                                                                      \
    }

DEFINE_RANKING(lk_hitrate_metric_with, "hitrate", LKI_READS_ZERO_DIVISION)
DEFINE_RANKING(lk_mrr_metric_with, "mrr", 0)
DEFINE_RANKING(lk_map_metric_with, "map", 0)
DEFINE_RANKING(lk_ndcg_metric_with, "ndcg", 0)
