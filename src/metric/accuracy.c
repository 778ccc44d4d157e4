#include "metric/mean.h"

#include "base/arguments.h"
#include "base/take.h"

#include <stdio.h>
#include <string.h>

typedef struct accuracy_metric {
    lk_metric base;
    int64_t hits[LK_MAX_TOPK]; /* for each k */
    int64_t seen;              /* samples; cells of a multilabel accuracy */
    lki_spread spread;
    int topk[LK_MAX_TOPK];
    int topk_count;
    float cut; /* multilabel: positive above it */
    bool per_class;
    int64_t *class_hits; /* (classes, topk + 1), with the samples of the class at last; NULL for none */
} accuracy_metric;

/* How many classes come before `target` when scores are sorted from the highest, ties by class. A NaN comes
 * first, so a sample whose scores are NaN is never right by chance. */
static int classes_before(const float *scores, int64_t class_count, int64_t target)
{
    float score = scores[target];
    int before = 0, equal = 0;
    for (int64_t c = 0; c < class_count; c++) {
        before += !(scores[c] <= score);
        equal += scores[c] == score;
    }
    for (int64_t c = 0; equal > 1 && c < target; c++) before += scores[c] == score;
    return before;
}

/* How many numbers a class has. */
static int64_t row_of(const accuracy_metric *metric)
{
    return metric->topk_count + 1;
}

static int64_t class_hit_count(const accuracy_metric *metric)
{
    return metric->class_hits ? row_of(metric) * metric->base.class_count : 0;
}

static void add_batch(accuracy_metric *metric, const int64_t *hits, int width, int64_t count)
{
    metric->seen += count;
    for (int k = 0; k < width; k++) {
        metric->hits[k] += hits[k];
        lki_spread_add(&metric->spread, k, (double)hits[k] / (double)count, (double)count);
    }
}

static lk_status topk_update(lk_metric *base, const lki_metric_batch *batch)
{
    accuracy_metric *metric = (accuracy_metric *)base;
    const float *scores;
    const int64_t *targets;
    LKI_TRY(lki_metric_see_classes(base, batch));
    LKI_TRY(lki_metric_outputs_f32(base, batch, &scores));
    LKI_TRY(lki_metric_targets_index(base, batch, &targets));
    int64_t hits[LK_MAX_TOPK] = {0};
    for (int64_t i = 0; i < batch->sample_count; i++) {
        int before = classes_before(scores + i * base->class_count, base->class_count, targets[i]);
        int64_t *of_class = metric->per_class ? metric->class_hits + targets[i] * row_of(metric) : NULL;
        for (int k = 0; k < metric->topk_count; k++) {
            hits[k] += before < metric->topk[k];
            if (of_class) of_class[k] += before < metric->topk[k];
        }
        if (of_class) of_class[metric->topk_count]++;
    }
    add_batch(metric, hits, metric->topk_count, batch->sample_count);
    return LK_OK;
}

static lk_status multilabel_update(lk_metric *base, const lki_metric_batch *batch)
{
    accuracy_metric *metric = (accuracy_metric *)base;
    const float *scores, *targets;
    LKI_TRY(lki_metric_check_cells(base, batch));
    LKI_TRY(lki_metric_outputs_f32(base, batch, &scores));
    LKI_TRY(lki_metric_targets_f32(base, batch, &targets));
    int64_t hits = 0;
    for (int64_t i = 0; i < batch->target_count; i++)
        hits += (scores[i] > metric->cut) == (targets[i] > 0.5f);
    add_batch(metric, &hits, 1, batch->target_count);
    return LK_OK;
}

static void accuracy_reset(lk_metric *base)
{
    accuracy_metric *metric = (accuracy_metric *)base;
    memset(metric->hits, 0, sizeof metric->hits);
    metric->seen = 0;
    if (metric->class_hits) memset(metric->class_hits, 0, sizeof(int64_t) * (size_t)class_hit_count(metric));
    lki_spread_reset(&metric->spread);
}

static int accuracy_parts(lk_metric *base, lki_metric_part parts[LKI_METRIC_MAX_PARTS])
{
    accuracy_metric *metric = (accuracy_metric *)base;
    parts[0] = (lki_metric_part){LKI_METRIC_SUM_I64, metric->hits, LK_MAX_TOPK};
    parts[1] = (lki_metric_part){LKI_METRIC_SUM_I64, &metric->seen, 1};
    parts[2] = lki_spread_part(&metric->spread);
    if (!metric->per_class) return 3;
    parts[3] = (lki_metric_part){LKI_METRIC_SUM_I64, metric->class_hits, class_hit_count(metric)};
    return 4;
}

static bool accuracy_is_sound(const lk_metric *metric)
{
    return lki_spread_is_sound(&((const accuracy_metric *)metric)->spread);
}

/* After the averages: for each k the mean over the classes that occur, and each class. */
static void compute_classes(accuracy_metric *metric, lk_metric_value *values)
{
    int64_t classes = metric->base.class_count;
    for (int k = 0; k < metric->topk_count; k++, values += classes + 1) {
        double sum = 0, occurring = 0;
        for (int64_t c = 0; c < classes; c++) {
            const int64_t *row = metric->class_hits + c * row_of(metric);
            double count = (double)row[metric->topk_count];
            values[1 + c].value = count > 0 ? (double)row[k] / count : NAN;
            if (count > 0) sum += values[1 + c].value;
            occurring += count > 0;
        }
        values[0].value = occurring > 0 ? sum / occurring : NAN;
    }
}

static lk_status accuracy_compute(lk_metric *base)
{
    accuracy_metric *metric = (accuracy_metric *)base;
    if (metric->class_hits) compute_classes(metric, base->values.items + 2 * metric->topk_count);
    for (int k = 0; k < base->batch_values.count; k++) {
        base->values.items[2 * k].value = metric->seen ? (double)metric->hits[k] / (double)metric->seen : NAN;
        base->values.items[2 * k + 1].value = lki_spread_std(&metric->spread, k);
    }
    return LK_OK;
}

static lk_status accuracy_compute_batch(lk_metric *metric)
{
    for (int k = 0; k < metric->batch_values.count; k++)
        metric->batch_values.items[k].value = ((accuracy_metric *)metric)->spread.last[k];
    return LK_OK;
}

static void accuracy_fini(lk_metric *metric)
{
    lki_metric_array_fini(&((accuracy_metric *)metric)->spread.moments);
    lki_free(((accuracy_metric *)metric)->class_hits);
}

static lk_status add_names(lk_metric *metric, const char *name)
{
    LKI_TRY(lki_metric_add_value(metric, name, ""));
    LKI_TRY(lki_metric_add_batch_value(metric, metric->values.count - 1));
    return lki_metric_add_value(metric, name, "/std");
}

/* Catalyst's default: 1; 3 with more than three classes; 5 with more than five. */
static void choose_default_topk(accuracy_metric *metric, int64_t class_count)
{
    metric->topk[metric->topk_count++] = 1;
    if (class_count > 3) metric->topk[metric->topk_count++] = 3;
    if (class_count > 5) metric->topk[metric->topk_count++] = 5;
}

/* Once the classes are known. */
static lk_status add_class_names(accuracy_metric *metric, int64_t class_count)
{
    if (metric->class_hits) return LK_OK;
    metric->class_hits = LKI_NEW_ARRAY(int64_t, row_of(metric) * class_count);
    if (!metric->class_hits) return LK_ERR_NOMEM;
    for (int k = 0; k < metric->topk_count; k++) {
        char name[32], tail[40];
        snprintf(name, sizeof name, "accuracy%02d", metric->topk[k]);
        LKI_TRY(lki_metric_add_value(&metric->base, name, "/_macro"));
        for (int64_t c = 0; c < class_count; c++) {
            snprintf(tail, sizeof tail, "/class_%02lld", (long long)c);
            LKI_TRY(lki_metric_add_value(&metric->base, name, tail));
        }
    }
    return LK_OK;
}

static lk_status topk_set_classes(lk_metric *base, int64_t class_count)
{
    accuracy_metric *metric = (accuracy_metric *)base;
    for (int k = 0; class_count && k < metric->topk_count; k++)
        if (metric->topk[k] > class_count)
            return lki_fail(LK_ERR_INVALID,
                            "accuracy: topk: %d of %lld classes is always right: leave it out",
                            metric->topk[k], (long long)class_count);
    base->class_count = class_count;
    if (base->values.count)
        return metric->per_class && class_count ? add_class_names(metric, class_count) : LK_OK;
    if (metric->topk_count == 0) choose_default_topk(metric, class_count);
    LKI_TRY(lki_spread_init(&metric->spread, metric->topk_count));
    for (int k = 0; k < metric->topk_count; k++) {
        char name[32];
        snprintf(name, sizeof name, "accuracy%02d", metric->topk[k]);
        LKI_TRY(add_names(base, name));
    }
    return metric->per_class && class_count ? add_class_names(metric, class_count) : LK_OK;
}

static const lki_metric_kind topk_kind = {
    .name = "accuracy",
    .update = topk_update,
    .reset = accuracy_reset,
    .parts = accuracy_parts,
    .compute = accuracy_compute,
    .compute_batch = accuracy_compute_batch,
    .fini = accuracy_fini,
    .is_sound = accuracy_is_sound,
    .set_classes = topk_set_classes,
    .reads = LKI_READS_CLASSES | LKI_READS_TOPK | LKI_READS_PER_CLASS,
};

lk_metric *lk_accuracy_metric_with(const lk_metric_options *given)
{
    LKI_TAKE(lk_metric_options, options, given, NULL);
    accuracy_metric *metric = (accuracy_metric *)lki_metric_new(sizeof *metric, &topk_kind, &options);
    if (!metric) return NULL;
    metric->per_class = options.compute_per_class_metrics;
    if (lki_spread_init(&metric->spread, 0)) goto failed;
    for (int k = 0; k < LK_MAX_TOPK && options.topk[k]; k++) {
        if (options.topk[k] < 0) {
            lki_fail(LK_ERR_INVALID, "accuracy: topk: expected at least 1, found %d", options.topk[k]);
            goto failed;
        }
        metric->topk[metric->topk_count++] = options.topk[k];
    }
    /* Without a number of classes the names wait for the first batch, unless topk already says them. */
    if ((options.num_classes || metric->topk_count) && topk_set_classes(&metric->base, options.num_classes))
        goto failed;
    return &metric->base;
failed:
    lk_metric_free(&metric->base);
    return NULL;
}

static const lki_metric_kind multilabel_kind = {
    .name = "multilabel accuracy",
    .reads = LKI_READS_THRESHOLD,
    .update = multilabel_update,
    .reset = accuracy_reset,
    .parts = accuracy_parts,
    .compute = accuracy_compute,
    .compute_batch = accuracy_compute_batch,
    .fini = accuracy_fini,
    .is_sound = accuracy_is_sound,
};

lk_metric *lk_multilabel_accuracy_metric_with(const lk_metric_options *given)
{
    LKI_TAKE(lk_metric_options, options, given, NULL);
    accuracy_metric *metric = (accuracy_metric *)lki_metric_new(sizeof *metric, &multilabel_kind, &options);
    if (!metric) return NULL;
    metric->cut = lki_metric_cut(lki_number_or(options.threshold, 0.5), options.from_logits);
    if (lki_spread_init(&metric->spread, 1) || add_names(&metric->base, "accuracy")) {
        lk_metric_free(&metric->base);
        return NULL;
    }
    return &metric->base;
}
