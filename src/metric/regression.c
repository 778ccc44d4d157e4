#include "base/take.h"
#include "metric/exact.h"
#include "metric/metric.h"
#include "tensor/element.h"

#include <string.h>

/* What one column of the targets has given so far: exact sums, so that neither the order of the samples nor
 * y² loses a digit. */
typedef enum column_sum { SQUARED_ERROR, TARGET, SQUARED_TARGET, COLUMN_SUMS } column_sum;

/* The mean errors need one sum over all columns; r2 needs COLUMN_SUMS of each column. */
typedef struct regression_metric {
    lk_metric base;
    lk_exact_sum *sums;
    int64_t sum_count, seen; /* seen: samples */
} regression_metric;

static double load(lk_dtype dtype, const void *data, int64_t index)
{
    return dtype == LK_F32 ? ((const float *)data)[index] : lki_load(dtype, data, index);
}

static bool is_r2(const lk_metric *base);
static bool is_mae(const lk_metric *base);

static lk_status regression_set_classes(lk_metric *base, int64_t class_count)
{
    regression_metric *metric = (regression_metric *)base;
    int64_t count = is_r2(base) ? COLUMN_SUMS * class_count : 1;
    lk_exact_sum *sums = LKI_NEW_ARRAY(lk_exact_sum, count);
    if (!sums) return LK_ERR_NOMEM;
    lki_free(metric->sums);
    metric->sums = sums;
    metric->sum_count = count;
    base->class_count = class_count;
    return LK_OK;
}

static double error_at(const lki_metric_batch *batch, int64_t i, double target)
{
    return load(batch->output_dtype, batch->outputs, i) - target;
}

/* One sample is summed in plain doubles: where it stands in the batch does not show. */
static void add_mean_errors(regression_metric *metric, const lki_metric_batch *batch, int64_t width)
{
    bool absolute = is_mae(&metric->base);
    for (int64_t at = 0; at < batch->target_count; at += width) {
        double sum = 0;
        for (int64_t i = at; i < at + width; i++) {
            double error = error_at(batch, i, load(batch->target_dtype, batch->targets, i));
            sum += absolute ? fabs(error) : error * error;
        }
        lk_exact_sum_add(metric->sums, sum);
    }
}

static void add_columns(regression_metric *metric, const lki_metric_batch *batch, int64_t width)
{
    for (int64_t i = 0; i < batch->target_count; i++) {
        lk_exact_sum *sums = metric->sums + COLUMN_SUMS * (width == 1 ? 0 : i % width);
        double target = load(batch->target_dtype, batch->targets, i), error = error_at(batch, i, target);
        lk_exact_sum_add(&sums[SQUARED_ERROR], error * error);
        lk_exact_sum_add(&sums[TARGET], target);
        lk_exact_sum_add_product(&sums[SQUARED_TARGET], target, target);
    }
}

static lk_status regression_update(lk_metric *base, const lki_metric_batch *batch)
{
    regression_metric *metric = (regression_metric *)base;
    LKI_TRY(lki_metric_check_cells(base, batch));
    int64_t width = batch->class_count * batch->inner_count;
    if (width == 0) return lki_fail(LK_ERR_SHAPE, "%s: outputs without values", base->kind->name);
    if (base->class_count == 0) LKI_TRY(regression_set_classes(base, width));
    if (base->class_count != width)
        return lki_fail(LK_ERR_SHAPE, "%s: expected %lld values per sample, found %lld", base->kind->name,
                        (long long)base->class_count, (long long)width);
    if (is_r2(base))
        add_columns(metric, batch, width);
    else
        add_mean_errors(metric, batch, width);
    metric->seen += batch->sample_count;
    return LK_OK;
}

static void regression_reset(lk_metric *base)
{
    regression_metric *metric = (regression_metric *)base;
    metric->seen = 0;
    if (metric->sums) memset(metric->sums, 0, sizeof(lk_exact_sum) * (size_t)metric->sum_count);
}

static int regression_parts(lk_metric *base, lki_metric_part parts[LKI_METRIC_MAX_PARTS])
{
    regression_metric *metric = (regression_metric *)base;
    parts[0] = (lki_metric_part){LKI_METRIC_SUM_I64, &metric->seen, 1};
    parts[1] = (lki_metric_part){LKI_METRIC_EXACT, metric->sums, metric->sum_count};
    return 2;
}

static bool regression_is_sound(const lk_metric *base)
{
    const regression_metric *metric = (const regression_metric *)base;
    return metric->seen >= 0 && (base->class_count || metric->seen == 0);
}

/* 1 - sum((y - f)²) / sum((y - mean)²); scikit-learn's values where the targets are constant. */
static double r2_of(const lk_exact_sum *sums, double count)
{
    double error = lk_exact_sum_value(&sums[SQUARED_ERROR]);
    double spread = lki_exact_square_deviations(&sums[TARGET], &sums[SQUARED_TARGET], count);
    if (count < 2) return NAN;
    if (spread != 0) return 1 - error / spread;
    return error == 0 ? 1 : 0;
}

static lk_status r2_compute(lk_metric *base)
{
    const regression_metric *metric = (const regression_metric *)base;
    double sum = 0;
    for (int64_t i = 0; i < base->class_count; i++)
        sum += r2_of(metric->sums + COLUMN_SUMS * i, (double)metric->seen);
    base->values.items[0].value = base->class_count ? sum / (double)base->class_count : NAN;
    return LK_OK;
}

static lk_status mean_error_compute(lk_metric *base)
{
    const regression_metric *metric = (const regression_metric *)base;
    double count = (double)metric->seen * (double)base->class_count;
    base->values.items[0].value = metric->seen ? lk_exact_sum_value(metric->sums) / count : NAN;
    return LK_OK;
}

static void regression_fini(lk_metric *base)
{
    lki_free(((regression_metric *)base)->sums);
}

#define REGRESSION_KIND(metric_name, compute_function)                                                       \
    {                                                                                                        \
        .name = metric_name, .update = regression_update, .reset = regression_reset,                         \
        .parts = regression_parts, .compute = compute_function, .fini = regression_fini,                     \
        .set_classes = regression_set_classes, .is_sound = regression_is_sound                               \
    }

static const lki_metric_kind r2_kind = REGRESSION_KIND("r2squared", r2_compute);
static const lki_metric_kind mse_kind = REGRESSION_KIND("mse", mean_error_compute);
static const lki_metric_kind mae_kind = REGRESSION_KIND("mae", mean_error_compute);

static bool is_r2(const lk_metric *base)
{
    return base->kind == &r2_kind;
}

static bool is_mae(const lk_metric *base)
{
    return base->kind == &mae_kind;
}

static lk_metric *create(const lki_metric_kind *kind, lk_metric_options *options)
{
    regression_metric *metric = (regression_metric *)lki_metric_new(sizeof *metric, kind, options);
    if (!metric) return NULL;
    if (lki_metric_add_value(&metric->base, kind->name, "")) {
        lk_metric_free(&metric->base);
        return NULL;
    }
    return &metric->base;
}

lk_metric *lk_r2_metric_with(const lk_metric_options *given)
{
    LKI_TAKE(lk_metric_options, options, given, NULL);
    return create(&r2_kind, &options);
}

lk_metric *lk_mse_metric_with(const lk_metric_options *given)
{
    LKI_TAKE(lk_metric_options, options, given, NULL);
    return create(&mse_kind, &options);
}

lk_metric *lk_mae_metric_with(const lk_metric_options *given)
{
    LKI_TAKE(lk_metric_options, options, given, NULL);
    return create(&mae_kind, &options);
}
