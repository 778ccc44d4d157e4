#include "base/take.h"
#include "metric/mean.h"

#include <math.h>
#include <string.h>

/* ---- Moments ---- */

double lki_moments_mean(const lki_moments *moments)
{
    return moments->count > 0 ? moments->mean : NAN;
}

double lki_moments_std(const lki_moments *moments)
{
    if (moments->count <= 0) return NAN;
    return moments->count > 1 ? sqrt(moments->squares / (moments->count - 1)) : 0;
}

/* ---- The spread of a metric over its batches ---- */

lk_status lki_spread_init(lki_spread *spread, int width)
{
    spread->width = width;
    spread->moments.element_nbytes = sizeof(lki_moments);
    LKI_TRY(lki_metric_array_reserve(&spread->moments, width));
    lki_spread_reset(spread);
    return LK_OK;
}

void lki_spread_reset(lki_spread *spread)
{
    if (spread->width == 0) return;
    memset(spread->moments.data, 0, sizeof(lki_moments) * (size_t)spread->width);
    spread->moments.count = spread->width;
    for (int i = 0; i < spread->width; i++) spread->last[i] = NAN;
}

lki_metric_part lki_spread_part(lki_spread *spread)
{
    return (lki_metric_part){LKI_METRIC_JOIN, &spread->moments, 0};
}

bool lki_spread_is_sound(const lki_spread *spread)
{
    return spread->width ? spread->moments.count % spread->width == 0 : spread->moments.count == 0;
}

double lki_spread_std(const lki_spread *spread, int index)
{
    const lki_moments *moments = spread->moments.data;
    lki_moments total = moments[index];
    for (int64_t i = spread->width + index; i < spread->moments.count; i += spread->width)
        lki_moments_merge(&total, &moments[i]);
    return lki_moments_std(&total);
}

/* ---- The mean of numbers ---- */

typedef struct mean_metric {
    lk_metric base;
    lk_exact_sum sums[2]; /* of value × weight, and of the weights */
    lki_spread spread;
} mean_metric;

static lk_status mean_update_value(lk_metric *base, double value, int64_t sample_count)
{
    mean_metric *metric = (mean_metric *)base;
    lk_exact_sum_add_product(&metric->sums[0], value, (double)sample_count);
    lk_exact_sum_add(&metric->sums[1], (double)sample_count);
    lki_spread_add(&metric->spread, 0, value, (double)sample_count);
    return LK_OK;
}

lk_status lki_mean_metric_add_samples(lk_metric *base, const double *sums, const double *weights,
                                      int64_t count)
{
    mean_metric *metric = (mean_metric *)base;
    double sum = 0, weight = 0;
    int64_t ones = 0;
    if (count < 1) return LK_OK;
    LKI_TRY(lki_metric_check_open(base));
    for (int64_t i = 0; i < count; i++) {
        lki_exact_add(&metric->sums[0], sums[i]);
        sum += sums[i];
        weight += weights[i];
        if (weights[i] == 1)
            ones++;
        else
            lki_exact_add(&metric->sums[1], weights[i]);
    }
    lki_exact_add(&metric->sums[1], (double)ones);
    metric->spread.last[0] = NAN; /* a batch of which nothing counts has no mean */
    if (weight != 0) lki_spread_add(&metric->spread, 0, sum / weight, (double)count);
    return LK_OK;
}

static void mean_reset(lk_metric *base)
{
    mean_metric *metric = (mean_metric *)base;
    memset(metric->sums, 0, sizeof metric->sums);
    lki_spread_reset(&metric->spread);
}

static int mean_parts(lk_metric *base, lki_metric_part parts[LKI_METRIC_MAX_PARTS])
{
    mean_metric *metric = (mean_metric *)base;
    parts[0] = (lki_metric_part){LKI_METRIC_EXACT, metric->sums, 2};
    parts[1] = lki_spread_part(&metric->spread);
    return 2;
}

static bool mean_is_sound(const lk_metric *base)
{
    return lki_spread_is_sound(&((const mean_metric *)base)->spread);
}

static lk_status mean_compute(lk_metric *base)
{
    mean_metric *metric = (mean_metric *)base;
    double mean = lk_exact_sum_value(&metric->sums[0]) / lk_exact_sum_value(&metric->sums[1]);
    base->values.items[0].value = base->values.items[1].value = mean;
    base->values.items[2].value = lki_spread_std(&metric->spread, 0);
    return LK_OK;
}

static lk_status mean_compute_batch(lk_metric *base)
{
    base->batch_values.items[0].value = ((mean_metric *)base)->spread.last[0];
    return LK_OK;
}

static void mean_fini(lk_metric *base)
{
    lki_metric_array_fini(&((mean_metric *)base)->spread.moments);
}

static const lki_metric_kind mean_kind = {
    .name = "mean",
    .update_value = mean_update_value,
    .reset = mean_reset,
    .parts = mean_parts,
    .compute = mean_compute,
    .compute_batch = mean_compute_batch,
    .fini = mean_fini,
    .is_sound = mean_is_sound,
};

lk_metric *lk_mean_metric_with(const char *name, const lk_metric_options *given)
{
    LKI_TAKE(lk_metric_options, options, given, NULL);
    if (!name || !*name) return lki_fail_null(LK_ERR_INVALID, "mean: a metric needs a name");
    lk_metric *metric = lki_metric_new(sizeof(mean_metric), &mean_kind, &options);
    if (!metric) return NULL;
    if (lki_spread_init(&((mean_metric *)metric)->spread, 1) || lki_metric_add_value(metric, name, "") ||
        lki_metric_add_value(metric, name, "/mean") || lki_metric_add_value(metric, name, "/std") ||
        lki_metric_add_batch_value(metric, 0)) {
        lk_metric_free(metric);
        return NULL;
    }
    return metric;
}
