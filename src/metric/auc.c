#include "base/take.h"
#include "metric/auc.h"

#include <stdio.h>
#include <string.h>

/* With one class the labels are indicators already, so the counts alone say which form they have. */
bool lki_auc_has_indices(const lki_auc_metric *metric)
{
    return metric->labels.count != metric->scores.count;
}

static lk_status append_labels(lki_auc_metric *metric, const lki_metric_batch *batch, int64_t cell_count)
{
    int64_t count = batch->target_count;
    bool indices = count != cell_count;
    if (metric->labels.count && indices != lki_auc_has_indices(metric))
        return lki_fail(LK_ERR_SHAPE, "%s: targets are class indices in one batch and indicators in another",
                        metric->base.kind->name);
    LKI_TRY(lki_metric_array_reserve(&metric->labels, count));
    int32_t *to = (int32_t *)metric->labels.data + metric->labels.count;
    if (indices) {
        const int64_t *from;
        LKI_TRY(lki_metric_targets_index(&metric->base, batch, &from));
        for (int64_t i = 0; i < count; i++) to[i] = (int32_t)from[i];
    } else {
        const float *from;
        LKI_TRY(lki_metric_targets_f32(&metric->base, batch, &from));
        for (int64_t i = 0; i < count; i++) to[i] = from[i] > 0.5f;
    }
    return LK_OK;
}

lk_status lki_auc_update(lk_metric *base, const lki_metric_batch *batch)
{
    lki_auc_metric *metric = (lki_auc_metric *)base;
    const float *scores;
    LKI_TRY(lki_metric_see_classes(base, batch));
    int64_t cell_count = batch->sample_count * base->class_count;
    LKI_TRY(lki_metric_outputs_f32(base, batch, &scores));
    LKI_TRY(lki_metric_array_reserve(&metric->scores, cell_count));
    LKI_TRY(append_labels(metric, batch, cell_count));
    memcpy((float *)metric->scores.data + metric->scores.count, scores, sizeof(float) * (size_t)cell_count);
    metric->scores.count += cell_count;
    metric->labels.count += batch->target_count;
    return LK_OK;
}

void lki_auc_reset(lk_metric *base)
{
    lki_auc_metric *metric = (lki_auc_metric *)base;
    metric->scores.count = metric->labels.count = 0;
}

int lki_auc_parts(lk_metric *base, lki_metric_part parts[LKI_METRIC_MAX_PARTS])
{
    lki_auc_metric *metric = (lki_auc_metric *)base;
    parts[0] = (lki_metric_part){LKI_METRIC_JOIN, &metric->scores, 0};
    parts[1] = (lki_metric_part){LKI_METRIC_JOIN, &metric->labels, 0};
    return 2;
}

bool lki_auc_is_sound(const lk_metric *base)
{
    const lki_auc_metric *metric = (const lki_auc_metric *)base;
    int64_t classes = base->class_count, cells = metric->scores.count, labels = metric->labels.count;
    if (classes == 0) return cells == 0 && labels == 0;
    return cells % classes == 0 && (labels == cells || labels == cells / classes);
}

/* Puts the class's positives at `front` upwards and its negatives at `back` downwards. Returns the number of
 * positives, or -1 where a score is NaN. */
static int64_t split_class(const lki_auc_metric *metric, int64_t class, int64_t sample_count, float *front,
                           float *back)
{
    const float *scores = metric->scores.data;
    const int32_t *labels = metric->labels.data;
    int64_t classes = metric->base.class_count, positives = 0, negatives = 0;
    bool indices = lki_auc_has_indices(metric), bad = false;
    for (int64_t i = 0; i < sample_count; i++) {
        float score = scores[i * classes + class];
        bool positive = indices ? labels[i] == class : labels[i * classes + class];
        bad |= score != score;
        /* Both places are still free, or the same place for the very last cell: no branch is needed. */
        front[positives] = score;
        back[-1 - negatives] = score;
        positives += positive;
        negatives += !positive;
    }
    return bad ? -1 : positives;
}

/* NaN without positives or without negatives. */
static lk_status area(double *out, float *positives, int64_t positive_count, float *negatives,
                      int64_t negative_count, lki_rank_workspace *workspace)
{
    *out = NAN;
    if (positive_count == 0 || negative_count == 0) return LK_OK;
    int64_t pairs, all = 2 * positive_count * negative_count;
    if (positive_count <= negative_count) {
        LKI_TRY(lki_rank_pairs(&pairs, positives, positive_count, negatives, negative_count, workspace));
    } else {
        LKI_TRY(lki_rank_pairs(&pairs, negatives, negative_count, positives, positive_count, workspace));
        pairs = all - pairs;
    }
    *out = (double)pairs / (double)all;
    return LK_OK;
}

typedef struct averages {
    double macro, micro, weighted;
} averages;

static lk_status compute_areas(lki_auc_metric *metric, averages *out, double *per_class)
{
    int64_t classes = metric->base.class_count, sample_count = metric->scores.count / classes;
    metric->cells.count = 0;
    LKI_TRY(lki_metric_array_reserve(&metric->cells, metric->scores.count + 1));
    float *front = metric->cells.data, *back = front + metric->scores.count;
    double sum = 0, weighted_sum = 0, defined = 0, support = 0;
    for (int64_t c = 0; c < classes; c++) {
        double value;
        int64_t positives = split_class(metric, c, sample_count, front, back),
                negatives = sample_count - positives;
        if (positives < 0) return LK_OK; /* a NaN score: everything stays NaN */
        LKI_TRY(area(&value, front, positives, back - negatives, negatives, &metric->workspace));
        front += positives;
        back -= negatives;
        per_class[c] = value;
        if (isnan(value)) continue;
        sum += value;
        weighted_sum += value * (double)positives;
        defined += 1;
        support += (double)positives;
    }
    float *first = metric->cells.data;
    if (defined > 0) *out = (averages){sum / defined, NAN, weighted_sum / support};
    return area(&out->micro, first, front - first, back, first + metric->scores.count - back,
                &metric->workspace);
}

static lk_status auc_compute(lk_metric *base)
{
    lki_auc_metric *metric = (lki_auc_metric *)base;
    lk_metric_value *values = base->values.items;
    int64_t classes = base->class_count;
    LKI_SCOPED double *per_class = LKI_NEW_ARRAY(double, classes);
    averages all = {NAN, NAN, NAN};
    if (!per_class) return LK_ERR_NOMEM;
    for (int64_t c = 0; c < classes; c++) per_class[c] = NAN;
    if (metric->scores.count) LKI_TRY(compute_areas(metric, &all, per_class));
    for (int i = 0; i < base->values.count; i++) {
        double averaged[] = {all.macro, all.macro, all.micro, all.weighted};
        values[i].value = i < 4 ? averaged[i] : per_class[i - 4];
    }
    return LK_OK;
}

void lki_auc_fini(lk_metric *base)
{
    lki_auc_metric *metric = (lki_auc_metric *)base;
    lki_metric_array_fini(&metric->scores);
    lki_metric_array_fini(&metric->labels);
    lki_metric_array_fini(&metric->cells);
    lki_rank_workspace_fini(&metric->workspace);
}

lk_status lki_auc_set_classes(lk_metric *base, int64_t class_count)
{
    base->class_count = class_count;
    for (int64_t c = 0; ((lki_auc_metric *)base)->per_class && c < class_count; c++) {
        char tail[40];
        snprintf(tail, sizeof tail, "/class_%02lld", (long long)c);
        LKI_TRY(lki_metric_add_value(base, base->kind->name, tail));
    }
    return LK_OK;
}

lk_metric *lki_auc_create(const lki_metric_kind *kind, const lk_metric_options *options)
{
    static const char *const tails[] = {"", "/_macro", "/_micro", "/_weighted"};
    lki_auc_metric *metric = (lki_auc_metric *)lki_metric_new(sizeof *metric, kind, options);
    if (!metric) return NULL;
    metric->scores.element_nbytes = metric->cells.element_nbytes = sizeof(float);
    metric->labels.element_nbytes = sizeof(int32_t);
    metric->per_class = options->compute_per_class_metrics;
    lk_status status = LK_OK;
    for (int i = 0; i < 4 && status == LK_OK; i++)
        status = lki_metric_add_value(&metric->base, kind->name, tails[i]);
    if (status == LK_OK && options->num_classes)
        status = lki_auc_set_classes(&metric->base, options->num_classes);
    if (status == LK_OK) return &metric->base;
    lk_metric_free(&metric->base);
    return NULL;
}

lk_metric *lk_auc_metric_with(const lk_metric_options *given)
{
    LKI_TAKE(lk_metric_options, options, given, NULL);
    static const lki_metric_kind kind = {
        .reads = LKI_READS_CLASSES | LKI_READS_PER_CLASS,
        .name = "auc",
        .update = lki_auc_update,
        .reset = lki_auc_reset,
        .parts = lki_auc_parts,
        .compute = auc_compute,
        .fini = lki_auc_fini,
        .set_classes = lki_auc_set_classes,
        .is_sound = lki_auc_is_sound,
    };
    return lki_auc_create(&kind, &options);
}
