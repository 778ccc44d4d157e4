#include "metric/exact.h"
#include "base/arguments.h"
#include "base/take.h"
#include "metric/metric.h"

#include <stdio.h>
#include <math.h>
#include <string.h>

typedef struct region_metric {
    lk_metric base;
    /* (3, classes): true positives, false positives, false negatives; soft scores give fractions. */
    lk_exact_sum *sums;
    double *totals; /* the same of the last batch */
    int64_t batch_count;
    char **class_names;
    double *class_weights; /* NULL without weights */
    bool binarize, from_logits;
    float cut;
    double overlap;     /* how often tp counts: 1 for IoU, 2 for Dice */
    double alpha, beta; /* and how often fn and fp do: 1, but for Trevsky */
} region_metric;

static int64_t sum_count(const lk_metric *base)
{
    return 3 * base->class_count;
}

static double score_of(const region_metric *metric, float output)
{
    if (metric->binarize) return output > metric->cut;
    return metric->from_logits ? 1 / (1 + exp(-(double)output)) : output;
}

/* The cells of one sample and class are summed in plain doubles: where the sample stands does not show. */
static void add_region(region_metric *metric, int64_t class, const float *outputs, const float *targets,
                       int64_t count)
{
    int64_t classes = metric->base.class_count;
    double tp = 0, fp = 0, fn = 0;
    for (int64_t i = 0; i < count; i++) {
        double score = score_of(metric, outputs[i]), target = targets[i];
        tp += score * target;
        fp += score * (1 - target);
        fn += target * (1 - score);
    }
    const double found[] = {tp, fp, fn};
    for (int i = 0; i < 3; i++) {
        lk_exact_sum_add(&metric->sums[i * classes + class], found[i]);
        metric->totals[i * classes + class] += found[i];
    }
}

static lk_status region_set_classes(lk_metric *base, int64_t class_count);

static lk_status region_update(lk_metric *base, const lki_metric_batch *batch)
{
    region_metric *metric = (region_metric *)base;
    const float *outputs, *targets;
    LKI_TRY(lki_metric_check_cells(base, batch));
    if (base->class_count == 0) LKI_TRY(region_set_classes(base, batch->class_count));
    if (base->class_count != batch->class_count)
        return lki_fail(LK_ERR_SHAPE, "%s: expected %lld classes, found %lld", base->kind->name,
                        (long long)base->class_count, (long long)batch->class_count);
    LKI_TRY(lki_metric_outputs_f32(base, batch, &outputs));
    LKI_TRY(lki_metric_targets_f32(base, batch, &targets));
    memset(metric->totals, 0, sizeof(double) * (size_t)sum_count(base));
    int64_t inner = batch->inner_count, classes = base->class_count;
    for (int64_t i = 0; i < batch->sample_count * classes; i++)
        add_region(metric, i % classes, outputs + i * inner, targets + i * inner, inner);
    metric->batch_count++;
    return LK_OK;
}

static void region_reset(lk_metric *base)
{
    region_metric *metric = (region_metric *)base;
    metric->batch_count = 0;
    if (!metric->sums) return;
    memset(metric->sums, 0, sizeof(lk_exact_sum) * (size_t)sum_count(base));
    memset(metric->totals, 0, sizeof(double) * (size_t)sum_count(base));
}

static int region_parts(lk_metric *base, lki_metric_part parts[LKI_METRIC_MAX_PARTS])
{
    region_metric *metric = (region_metric *)base;
    parts[0] = (lki_metric_part){LKI_METRIC_EXACT, metric->sums, sum_count(base)};
    parts[1] = (lki_metric_part){LKI_METRIC_SUM_I64, &metric->batch_count, 1};
    return 2;
}

/* The values have names once the classes are known. */
static bool region_is_sound(const lk_metric *base)
{
    return base->class_count || ((const region_metric *)base)->batch_count == 0;
}

static double ratio(const region_metric *metric, double tp, double fp, double fn)
{
    double union_of = tp + fp + fn;
    return union_of == 0
               ? 1
               : metric->overlap * tp / (metric->overlap * tp + metric->beta * fp + metric->alpha * fn);
}

/* The score of each class, and their averages; `weighted` is 0 without weights. */
static void write_values(const region_metric *metric, const double *sums, double *macro, double *micro,
                         double *weighted, double *per_class)
{
    int64_t classes = metric->base.class_count;
    double tp = 0, fp = 0, fn = 0;
    *macro = *weighted = 0;
    for (int64_t c = 0; c < classes; c++) {
        per_class[c] = ratio(metric, sums[c], sums[classes + c], sums[2 * classes + c]);
        *macro += per_class[c] / (double)classes;
        if (metric->class_weights) *weighted += per_class[c] * metric->class_weights[c];
        tp += sums[c];
        fp += sums[classes + c];
        fn += sums[2 * classes + c];
    }
    *micro = ratio(metric, tp, fp, fn);
}

static lk_status fill(const region_metric *metric, const double *sums, lki_metric_value_list *list)
{
    LKI_SCOPED double *per_class = LKI_NEW_ARRAY(double, metric->base.class_count);
    double macro, micro, weighted;
    if (!per_class) return LK_ERR_NOMEM;
    write_values(metric, sums, &macro, &micro, &weighted, per_class);
    int i = 0;
    list->items[i++].value = macro;
    list->items[i++].value = macro;
    list->items[i++].value = micro;
    if (metric->class_weights) list->items[i++].value = weighted;
    for (int64_t c = 0; c < metric->base.class_count; c++) list->items[i++].value = per_class[c];
    return LK_OK;
}

static lk_status region_compute(lk_metric *base)
{
    region_metric *metric = (region_metric *)base;
    for (int i = 0; metric->batch_count == 0 && i < base->values.count; i++)
        base->values.items[i].value = NAN;
    if (metric->batch_count == 0) return LK_OK;
    LKI_SCOPED double *totals = LKI_NEW_ARRAY(double, sum_count(base));
    if (!totals) return LK_ERR_NOMEM;
    for (int64_t i = 0; i < sum_count(base); i++) totals[i] = lk_exact_sum_value(&metric->sums[i]);
    return fill(metric, totals, &base->values);
}

static lk_status region_compute_batch(lk_metric *base)
{
    region_metric *metric = (region_metric *)base;
    return metric->batch_count ? fill(metric, metric->totals, &base->batch_values) : LK_OK;
}

static void region_fini(lk_metric *base)
{
    region_metric *metric = (region_metric *)base;
    lki_free(metric->sums);
    lki_free(metric->totals);
    lki_free(metric->class_weights);
    lki_metric_free_names(metric->class_names, base->class_count);
}

static lk_status region_set_classes(lk_metric *base, int64_t class_count)
{
    region_metric *metric = (region_metric *)base;
    const char *name = base->kind->name;
    if (!metric->class_names) LKI_TRY(lki_metric_copy_names(&metric->class_names, NULL, class_count));
    base->class_count = class_count;
    metric->sums = LKI_NEW_ARRAY(lk_exact_sum, 3 * class_count);
    metric->totals = LKI_NEW_ARRAY(double, 3 * class_count);
    if (!metric->sums || !metric->totals) return LK_ERR_NOMEM;
    LKI_TRY(lki_metric_add_value(base, name, ""));
    LKI_TRY(lki_metric_add_value(base, name, "/_macro"));
    LKI_TRY(lki_metric_add_value(base, name, "/_micro"));
    if (metric->class_weights) LKI_TRY(lki_metric_add_value(base, name, "/_weighted"));
    for (int64_t c = 0; c < class_count; c++) {
        LKI_SCOPED char *tail = lki_format("/%s", metric->class_names[c]);
        if (!tail) return LK_ERR_NOMEM;
        LKI_TRY(lki_metric_add_value(base, name, tail));
    }
    for (int i = 0; i < base->values.count; i++) LKI_TRY(lki_metric_add_batch_value(base, i));
    return LK_OK;
}

/* "/_weighted" is the sum of the classes' scores times these. */
static lk_status check_weights(const lk_metric_options *options, const char *name)
{
    double sum = 0;
    for (int c = 0; c < options->num_classes; c++) {
        double weight = options->class_weights[c];
        if (!(weight >= 0) || isinf(weight))
            return lki_fail(LK_ERR_INVALID, "%s: class_weights: expected numbers of at least 0, found %g",
                            name, weight);
        sum += weight;
    }
    return sum > 0 ? LK_OK : lki_fail(LK_ERR_INVALID, "%s: class_weights: all of them are 0", name);
}

static lk_status set_options(region_metric *metric, const lk_metric_options *options)
{
    metric->binarize = lki_number_given(options->threshold);
    metric->from_logits = options->from_logits;
    if (metric->binarize) metric->cut = lki_metric_cut(options->threshold, options->from_logits);
    if (options->num_classes == 0) {
        if (!options->class_names && !options->class_weights) return LK_OK;
        return lki_fail(LK_ERR_INVALID, "%s: class_names and class_weights need num_classes",
                        metric->base.kind->name);
    }
    if (options->class_weights) {
        LKI_TRY(check_weights(options, metric->base.kind->name));
        metric->class_weights = LKI_NEW_ARRAY(double, options->num_classes);
        if (!metric->class_weights) return LK_ERR_NOMEM;
        memcpy(metric->class_weights, options->class_weights, sizeof(double) * (size_t)options->num_classes);
    }
    metric->base.class_count = options->num_classes;
    LKI_TRY(lki_metric_copy_names(&metric->class_names, options->class_names, options->num_classes));
    return region_set_classes(&metric->base, options->num_classes);
}

static lk_metric *create(const lki_metric_kind *kind, const lk_metric_options *options, double overlap,
                         double alpha, double beta)
{
    region_metric *metric = (region_metric *)lki_metric_new(sizeof *metric, kind, options);
    if (!metric) return NULL;
    metric->overlap = overlap;
    metric->alpha = alpha;
    metric->beta = beta;
    if (set_options(metric, options)) {
        lk_metric_free(&metric->base);
        return NULL;
    }
    return &metric->base;
}

#define REGION_KIND(metric_name, more)                                                                       \
    {                                                                                                        \
        .reads = LKI_READS_CLASSES | LKI_READS_THRESHOLD | LKI_READS_CLASS_NAMES | LKI_READS_CLASS_WEIGHTS | \
                 (more),                                                                                     \
        .name = metric_name, .update = region_update, .reset = region_reset, .parts = region_parts,          \
        .compute = region_compute, .compute_batch = region_compute_batch, .fini = region_fini,               \
        .set_classes = region_set_classes, .is_sound = region_is_sound                                       \
    }

static const lki_metric_kind iou_kind = REGION_KIND("iou", 0);
static const lki_metric_kind dice_kind = REGION_KIND("dice", 0);
static const lki_metric_kind trevsky_kind = REGION_KIND("trevsky", LKI_READS_ALPHA);

lk_metric *lk_iou_metric_with(const lk_metric_options *given)
{
    LKI_TAKE(lk_metric_options, options, given, NULL);
    return create(&iou_kind, &options, 1, 1, 1);
}

lk_metric *lk_dice_metric_with(const lk_metric_options *given)
{
    LKI_TAKE(lk_metric_options, options, given, NULL);
    return create(&dice_kind, &options, 2, 1, 1);
}

lk_metric *lk_trevsky_metric_with(const lk_metric_options *given)
{
    LKI_TAKE(lk_metric_options, options, given, NULL);
    double alpha = options.alpha, beta = lki_number_or(options.beta, 1 - alpha);
    if (!(alpha > 0 && alpha < 1) || !(beta > 0 && beta < 1))
        return lki_fail_null(LK_ERR_INVALID,
                             "trevsky: alpha and beta: expected numbers between 0 and 1, found %g and %g",
                             alpha, beta);
    return create(&trevsky_kind, &options, 1, alpha, beta);
}
