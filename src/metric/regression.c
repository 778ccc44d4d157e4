#include "metric/metric.h"
#include "metric/moments.h"
#include "tensor/element.h"

#include <string.h>

/* What one column of the targets has given so far; joined over ranks, so that no digit is lost to y² sums. */
typedef struct column {
    lki_moments targets;
    double squared_error, absolute_error;
} column;

typedef struct regression_metric {
    lk_metric base;
    lki_metric_array columns; /* class_count columns a rank */
} regression_metric;

static double load(lk_dtype dtype, const void *data, int64_t index)
{
    return dtype == LK_F32 ? ((const float *)data)[index] : lki_load(dtype, data, index);
}

static lk_status regression_set_classes(lk_metric *base, int64_t class_count)
{
    regression_metric *metric = (regression_metric *)base;
    LKI_TRY(lki_metric_array_reserve(&metric->columns, class_count));
    memset(metric->columns.data, 0, sizeof(column) * (size_t)class_count);
    metric->columns.count = base->class_count = class_count;
    return LK_OK;
}

static lk_status regression_update(lk_metric *base, const lki_metric_batch *batch)
{
    regression_metric *metric = (regression_metric *)base;
    LKI_TRY(lki_metric_check_cells(base, batch));
    int64_t width = batch->class_count * batch->inner_count;
    if (base->class_count == 0) LKI_TRY(regression_set_classes(base, width));
    if (base->class_count != width)
        return lki_fail(LK_ERR_SHAPE, "%s: expected %lld values a sample, found %lld", base->kind->name,
                        (long long)base->class_count, (long long)width);
    column *columns = metric->columns.data;
    for (int64_t i = 0; i < batch->target_count; i++) {
        column *c = &columns[width == 1 ? 0 : i % width];
        double target = load(batch->target_dtype, batch->targets, i);
        double error = load(batch->output_dtype, batch->outputs, i) - target;
        c->squared_error += error * error;
        c->absolute_error += fabs(error);
        lki_moments_add(&c->targets, target, 1);
    }
    return LK_OK;
}

static void regression_reset(lk_metric *base)
{
    regression_metric *metric = (regression_metric *)base;
    metric->columns.count = base->class_count;
    if (base->class_count) memset(metric->columns.data, 0, sizeof(column) * (size_t)base->class_count);
}

static int regression_parts(lk_metric *base, lki_metric_part parts[LKI_METRIC_MAX_PARTS])
{
    parts[0] = (lki_metric_part){LKI_METRIC_JOIN, &((regression_metric *)base)->columns, 0};
    return 1;
}

static bool regression_is_sound(const lk_metric *base)
{
    int64_t count = ((const regression_metric *)base)->columns.count;
    return base->class_count ? count % base->class_count == 0 : count == 0;
}

static column column_total(const lk_metric *base, int64_t index)
{
    const regression_metric *metric = (const regression_metric *)base;
    const column *columns = metric->columns.data;
    column total = columns[index];
    for (int64_t i = index + base->class_count; i < metric->columns.count; i += base->class_count) {
        lki_moments_merge(&total.targets, &columns[i].targets);
        total.squared_error += columns[i].squared_error;
        total.absolute_error += columns[i].absolute_error;
    }
    return total;
}

/* 1 - sum((y - f)²) / sum((y - mean)²); scikit-learn's values where the targets are constant. */
static double r2_of(const column *c)
{
    if (c->targets.count < 2) return NAN;
    if (c->targets.squares != 0) return 1 - c->squared_error / c->targets.squares;
    return c->squared_error == 0 ? 1 : 0;
}

static double mse_of(const column *c)
{
    return c->targets.count > 0 ? c->squared_error / c->targets.count : NAN;
}

static double mae_of(const column *c)
{
    return c->targets.count > 0 ? c->absolute_error / c->targets.count : NAN;
}

static void average_columns(lk_metric *base, double (*value_of)(const column *))
{
    double sum = 0;
    for (int64_t i = 0; i < base->class_count; i++) {
        column total = column_total(base, i);
        sum += value_of(&total);
    }
    base->values.items[0].value = base->class_count ? sum / (double)base->class_count : NAN;
}

static lk_status r2_compute(lk_metric *base)
{
    average_columns(base, r2_of);
    return LK_OK;
}

static lk_status mse_compute(lk_metric *base)
{
    average_columns(base, mse_of);
    return LK_OK;
}

static lk_status mae_compute(lk_metric *base)
{
    average_columns(base, mae_of);
    return LK_OK;
}

static void regression_fini(lk_metric *base)
{
    lki_metric_array_fini(&((regression_metric *)base)->columns);
}

#define REGRESSION_KIND(metric_name, compute_function)                                                       \
    {                                                                                                        \
        .name = metric_name, .update = regression_update, .reset = regression_reset,                         \
        .parts = regression_parts, .compute = compute_function, .fini = regression_fini,                     \
        .set_classes = regression_set_classes, .is_sound = regression_is_sound                               \
    }

static const lki_metric_kind r2_kind = REGRESSION_KIND("r2squared", r2_compute);
static const lki_metric_kind mse_kind = REGRESSION_KIND("mse", mse_compute);
static const lki_metric_kind mae_kind = REGRESSION_KIND("mae", mae_compute);

static lk_metric *create(const lki_metric_kind *kind, lk_metric_options *options)
{
    regression_metric *metric = (regression_metric *)lki_metric_new(sizeof *metric, kind, options);
    if (!metric) return NULL;
    metric->columns.element_nbytes = sizeof(column);
    if (lki_metric_add_value(&metric->base, kind->name, "")) {
        lk_metric_free(&metric->base);
        return NULL;
    }
    return &metric->base;
}

lk_metric *lk_r2_metric_create(lk_metric_options options)
{
    return create(&r2_kind, &options);
}

lk_metric *lk_mse_metric_create(lk_metric_options options)
{
    return create(&mse_kind, &options);
}

lk_metric *lk_mae_metric_create(lk_metric_options options)
{
    return create(&mae_kind, &options);
}
