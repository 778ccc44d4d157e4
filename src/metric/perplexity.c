/* Perplexity: how many tokens a language model hesitates between, on average. */
#include "base/arguments.h"
#include "base/take.h"
#include "metric/exact.h"
#include "metric/metric.h"
#include "tensor/element.h"

typedef struct perplexity_metric {
    lk_metric base;
    lk_exact_sum sum; /* of -log p */
    int64_t seen;     /* tokens that count */
    bool has_ignore;
    int64_t ignore;
} perplexity_metric;

/* -log softmax(x)[target], of scores that lie `stride` apart. */
static double surprise(const float *scores, int64_t classes, int64_t stride, int64_t target)
{
    double largest = -INFINITY, sum = 0;
    for (int64_t c = 0; c < classes; c++)
        if (scores[c * stride] > largest) largest = scores[c * stride];
    for (int64_t c = 0; c < classes; c++) sum += exp((double)scores[c * stride] - largest);
    return log(sum) + largest - (double)scores[target * stride];
}

static lk_status check_targets(const perplexity_metric *metric, const lki_metric_batch *batch)
{
    if (batch->target_count != batch->sample_count * batch->inner_count)
        return lki_fail(LK_ERR_SHAPE, "perplexity: %lld targets for %lld tokens",
                        (long long)batch->target_count,
                        (long long)(batch->sample_count * batch->inner_count));
    for (int64_t i = 0; i < batch->target_count; i++) {
        double target = lki_load(batch->target_dtype, batch->targets, i);
        if (metric->has_ignore && target == (double)metric->ignore) continue;
        if (!(target >= 0 && target < (double)batch->class_count) || target != floor(target))
            return lki_fail(LK_ERR_RANGE, "perplexity: target %g is none of %lld classes", target,
                            (long long)batch->class_count);
    }
    return LK_OK;
}

static lk_status perplexity_update(lk_metric *base, const lki_metric_batch *batch)
{
    perplexity_metric *metric = (perplexity_metric *)base;
    const float *scores;
    LKI_TRY(check_targets(metric, batch));
    LKI_TRY(lki_metric_outputs_f32(base, batch, &scores));
    int64_t inner = batch->inner_count, classes = batch->class_count;
    for (int64_t i = 0; i < batch->target_count; i++) {
        int64_t target = (int64_t)lki_load(batch->target_dtype, batch->targets, i);
        if (metric->has_ignore && target == metric->ignore) continue;
        const float *first = scores + i / inner * classes * inner + i % inner;
        lk_exact_sum_add(&metric->sum, surprise(first, classes, inner, target));
        metric->seen++;
    }
    return LK_OK;
}

static void perplexity_reset(lk_metric *base)
{
    perplexity_metric *metric = (perplexity_metric *)base;
    metric->sum = (lk_exact_sum){0};
    metric->seen = 0;
}

static int perplexity_parts(lk_metric *base, lki_metric_part parts[LKI_METRIC_MAX_PARTS])
{
    perplexity_metric *metric = (perplexity_metric *)base;
    parts[0] = (lki_metric_part){LKI_METRIC_EXACT, &metric->sum, 1};
    parts[1] = (lki_metric_part){LKI_METRIC_SUM_I64, &metric->seen, 1};
    return 2;
}

static lk_status perplexity_compute(lk_metric *base)
{
    const perplexity_metric *metric = (const perplexity_metric *)base;
    base->values.items[0].value =
        metric->seen > 0 ? exp(lk_exact_sum_value(&metric->sum) / (double)metric->seen) : NAN;
    return LK_OK;
}

lk_metric *lk_perplexity_metric_with(const lk_metric_options *given)
{
    LKI_TAKE(lk_metric_options, options, given, NULL);
    static const lki_metric_kind kind = {.name = "perplexity",
                                         .update = perplexity_update,
                                         .reset = perplexity_reset,
                                         .parts = perplexity_parts,
                                         .compute = perplexity_compute,
                                         .reads = LKI_READS_IGNORE};
    int64_t ignored;
    if (lki_whole_or(options.ignore_index, 0, "perplexity", "ignore_index", &ignored)) return NULL;
    perplexity_metric *metric = (perplexity_metric *)lki_metric_new(sizeof *metric, &kind, &options);
    if (!metric) return NULL;
    metric->has_ignore = lki_number_given(options.ignore_index);
    metric->ignore = ignored;
    if (!lki_metric_add_value(&metric->base, "perplexity", "")) return &metric->base;
    lk_metric_free(&metric->base);
    return NULL;
}
