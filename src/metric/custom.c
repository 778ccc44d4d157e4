/* Metrics of your own: <lockstep/sys/metric.h>. */
#include "base/take.h"
#include "metric/exact.h"
#include "metric/metric.h"

#include <string.h>

typedef struct custom_metric {
    lk_metric base;
    lki_metric_kind kind; /* its own, for the name in error sentences */
    char *name;
    lk_custom_metric_options options;
    int part_count;
    double *computed; /* one per value */
} custom_metric;

lk_status lk_metric_array_append(lk_metric_array *array, const void *elements, int64_t count)
{
    if (count < 0 || (count > 0 && !elements))
        return lki_fail(LK_ERR_INVALID, "a metric's array: %lld elements cannot be added", (long long)count);
    if (!array->element_nbytes)
        return lki_fail(LK_ERR_INVALID, "a metric's array: it is not among the parts of a metric");
    LKI_TRY(lki_metric_array_reserve(array, count));
    if (count)
        memcpy((char *)array->data + (size_t)array->count * array->element_nbytes, elements,
               (size_t)count * array->element_nbytes);
    array->count += count;
    return LK_OK;
}

static lk_status custom_update(lk_metric *base, const lk_tensor *outputs, const lk_tensor *targets)
{
    const lk_custom_metric_options *own = &((custom_metric *)base)->options;
    unsigned long said = lki_fail_count();
    return lki_fail_if_silent(own->update(own->context, outputs, targets), said, "the update of metric",
                              own->name);
}

static lk_status custom_compute(lk_metric *base)
{
    custom_metric *metric = (custom_metric *)base;
    const lk_custom_metric_options *own = &metric->options;
    unsigned long said = lki_fail_count();
    LKI_TRY(lki_fail_if_silent(own->compute(own->context, metric->computed), said, "the compute of metric",
                               own->name));
    for (int i = 0; i < base->values.count; i++) base->values.items[i].value = metric->computed[i];
    return LK_OK;
}

static bool is_i64(const lk_metric_part *part)
{
    return part->dtype == LK_I64;
}

/* What joins with anything and leaves it as it is. */
static void reset_part(const lk_metric_part *part)
{
    lk_metric_array *array = part->data;
    bool highest = part->join == LK_JOIN_MAX;
    switch (part->join) {
    case LK_JOIN_SUM: memset(part->data, 0, sizeof(int64_t) * (size_t)part->count); return;
    case LK_JOIN_EXACT_SUM: memset(part->data, 0, sizeof(lk_exact_sum) * (size_t)part->count); return;
    case LK_JOIN_CONCAT: array->count = 0; return;
    case LK_JOIN_MAX:
    case LK_JOIN_MIN: break;
    }
    for (int64_t i = 0; i < part->count; i++) {
        if (is_i64(part))
            ((int64_t *)part->data)[i] = highest ? INT64_MIN : INT64_MAX;
        else
            ((double *)part->data)[i] = highest ? -INFINITY : INFINITY;
    }
}

static void custom_reset(lk_metric *base)
{
    const custom_metric *metric = (const custom_metric *)base;
    for (int i = 0; i < metric->part_count; i++) reset_part(&metric->options.parts[i]);
    if (metric->options.reset) metric->options.reset(metric->options.context);
}

static lki_metric_part_kind kind_of(const lk_metric_part *part)
{
    switch (part->join) {
    case LK_JOIN_SUM: return is_i64(part) ? LKI_METRIC_SUM_I64 : LKI_METRIC_SUM_F64;
    case LK_JOIN_EXACT_SUM: return LKI_METRIC_EXACT;
    case LK_JOIN_MAX: return is_i64(part) ? LKI_METRIC_MAX_I64 : LKI_METRIC_MAX_F64;
    case LK_JOIN_MIN: return is_i64(part) ? LKI_METRIC_MIN_I64 : LKI_METRIC_MIN_F64;
    case LK_JOIN_CONCAT: break;
    }
    return LKI_METRIC_JOIN;
}

static int custom_parts(lk_metric *base, lki_metric_part parts[LKI_METRIC_MAX_PARTS])
{
    const custom_metric *metric = (const custom_metric *)base;
    for (int i = 0; i < metric->part_count; i++) {
        const lk_metric_part *own = &metric->options.parts[i];
        parts[i] = (lki_metric_part){kind_of(own), own->data, own->join == LK_JOIN_CONCAT ? 0 : own->count};
    }
    return metric->part_count;
}

static void custom_fini(lk_metric *base)
{
    custom_metric *metric = (custom_metric *)base;
    for (int i = 0; i < metric->part_count; i++)
        if (metric->options.parts[i].join == LK_JOIN_CONCAT)
            lki_metric_array_fini(metric->options.parts[i].data);
    if (metric->options.free) metric->options.free(metric->options.context);
    lki_free(metric->name);
    lki_free(metric->computed);
}

static lk_status check_part(const lk_metric_part *part, const char *name, int i)
{
    if ((unsigned)part->join > LK_JOIN_CONCAT)
        return lki_fail(LK_ERR_INVALID, "%s: part %d: there is no way %d to join", name, i, (int)part->join);
    bool numbers = part->join == LK_JOIN_SUM || part->join == LK_JOIN_MAX || part->join == LK_JOIN_MIN;
    if (numbers && part->dtype != LK_I64 && part->dtype != LK_F64)
        return lki_fail(LK_ERR_DTYPE, "%s: part %d: expected i64 or f64, found %s", name, i,
                        lk_dtype_name(part->dtype));
    if (part->join != LK_JOIN_CONCAT && part->count < 1)
        return lki_fail(LK_ERR_INVALID, "%s: part %d: count: expected at least 1, found %lld", name, i,
                        (long long)part->count);
    return LK_OK;
}

static lk_status check_options(const lk_custom_metric_options *options)
{
    const char *name = options->name ? options->name : "metric";
    if (!options->update || !options->compute)
        return lki_fail(LK_ERR_INVALID, "%s: a metric of your own needs update and compute", name);
    if (!options->value_names || !options->value_names[0])
        return lki_fail(LK_ERR_INVALID, "%s: a metric of your own needs value_names", name);
    for (int i = 0; options->value_names[i]; i++)
        if (!*options->value_names[i])
            return lki_fail(LK_ERR_INVALID, "%s: value_names: name %d is empty", name, i);
    if (!options->parts[0].data)
        return lki_fail(LK_ERR_INVALID, "%s: list its state in parts: the ranks cannot join it otherwise",
                        name);
    for (int i = 0; i < LK_METRIC_MAX_PARTS && options->parts[i].data; i++)
        LKI_TRY(check_part(&options->parts[i], name, i));
    return LK_OK;
}

static lk_status fill_in(custom_metric *metric, const lk_custom_metric_options *options)
{
    int count = 0;
    metric->name = lki_strdup(options->name ? options->name : "metric");
    if (!metric->name) return LK_ERR_NOMEM;
    metric->kind.name = metric->options.name = metric->name;
    for (; options->value_names[count]; count++)
        LKI_TRY(lki_metric_add_value(&metric->base, options->value_names[count], ""));
    metric->computed = LKI_NEW_ARRAY(double, count);
    if (!metric->computed) return LK_ERR_NOMEM;
    for (int i = 0; i < metric->part_count; i++) {
        const lk_metric_part *part = &options->parts[i];
        if (part->join == LK_JOIN_CONCAT)
            ((lk_metric_array *)part->data)->element_nbytes = lk_dtype_nbytes(part->dtype);
    }
    return LK_OK;
}

lk_metric *lk_custom_metric_with(const lk_custom_metric_options *given)
{
    lk_custom_metric_options options;
    lk_status status = lki_take(&options, sizeof options, given, "lk_custom_metric_options");
    static const lki_metric_kind kind = {.name = "metric",
                                         .update_tensors = custom_update,
                                         .reset = custom_reset,
                                         .parts = custom_parts,
                                         .compute = custom_compute,
                                         .fini = custom_fini};
    lk_metric_options named = {LK_SIZE(lk_metric_options), .prefix = options.prefix,
                               .suffix = options.suffix};
    custom_metric *metric = NULL;
    if (status == LK_OK && check_options(&options) == LK_OK)
        metric = (custom_metric *)lki_metric_new(sizeof *metric, &kind, &named);
    if (!metric) {
        if (options.free) options.free(options.context);
        return NULL;
    }
    metric->kind = kind;
    metric->base.kind = &metric->kind;
    metric->options = options;
    while (metric->part_count < LK_METRIC_MAX_PARTS && options.parts[metric->part_count].data)
        metric->part_count++;
    if (fill_in(metric, &options)) {
        lk_metric_free(&metric->base);
        return NULL;
    }
    custom_reset(&metric->base);
    return &metric->base;
}
