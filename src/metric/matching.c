/* Cumulative matching characteristics: for how many queries is one of the k nearest samples of the gallery of
 * the query's class? Distances are Euclidean; of samples equally far away the earlier one is nearer. Which
 * sample is nearer than which is not known before all of them have been seen, so all are kept. */
#include "base/take.h"
#include "metric/matching.h"
#include "tensor/element.h"
#include "tensor/layout.h"

#include <stdio.h>
#include <string.h>

typedef struct matching_metric {
    lk_metric base;
    lki_metric_array embeddings; /* f32 (samples, width); the width is base.class_count */
    lki_metric_array labels;     /* i64 (samples, 2): class, and camera or 0 */
    lki_metric_array queries;    /* i64 (samples): whether it is a query */
    int topk[LK_MAX_TOPK];
    int topk_count;
} matching_metric;

static lk_status matching_set_width(lk_metric *base, int64_t width)
{
    base->class_count = width;
    return LK_OK;
}

static lk_status append_numbers(lki_metric_array *array, const lk_tensor *tensor, int64_t stride, int64_t at,
                                int64_t count)
{
    int64_t *out = (int64_t *)array->data + array->count + at;
    for (int64_t i = 0; i < count; i++)
        out[i * stride] = tensor ? (int64_t)lki_load(tensor->dtype, tensor->data, i) : 0;
    return LK_OK;
}

static lk_status check_field(const lk_metric *base, const char *what, const lk_tensor *field, int64_t count)
{
    if (!field) return LK_OK;
    if (lk_tensor_count(field) != count || !lki_tensor_is_contiguous(field))
        return lki_fail(LK_ERR_SHAPE, "%s: expected one number per sample for %s: %lld, found %lld",
                        base->kind->name, what, (long long)count, (long long)lk_tensor_count(field));
    return LK_OK;
}

lk_status lki_matching_update(lk_metric *base, const lki_matching_batch *batch)
{
    matching_metric *metric = (matching_metric *)base;
    const lk_tensor *x = batch->embeddings;
    LKI_TRY(lki_metric_check_open(base));
    if (x->shape.rank != 2 || x->shape.dim[1] < 1 || !lki_tensor_is_contiguous(x))
        return lki_fail(LK_ERR_SHAPE, "%s: expected embeddings of shape (samples, width)", base->kind->name);
    int64_t count = x->shape.dim[0], width = x->shape.dim[1];
    if (base->class_count && base->class_count != width)
        return lki_fail(LK_ERR_SHAPE, "%s: expected embeddings of %lld numbers, found %lld", base->kind->name,
                        (long long)base->class_count, (long long)width);
    LKI_TRY(check_field(base, "the labels", batch->labels, count));
    LKI_TRY(check_field(base, "the cameras", batch->cameras, count));
    LKI_TRY(check_field(base, "is_query", batch->is_query, count));
    base->class_count = width;
    LKI_TRY(lki_metric_array_reserve(&metric->embeddings, count * width));
    LKI_TRY(lki_metric_array_reserve(&metric->labels, 2 * count));
    LKI_TRY(lki_metric_array_reserve(&metric->queries, count));
    float *out = (float *)metric->embeddings.data + metric->embeddings.count;
    for (int64_t i = 0; i < count * width; i++) out[i] = (float)lki_load(x->dtype, x->data, i);
    LKI_TRY(append_numbers(&metric->labels, batch->labels, 2, 0, count));
    LKI_TRY(append_numbers(&metric->labels, batch->cameras, 2, 1, count));
    LKI_TRY(append_numbers(&metric->queries, batch->is_query, 1, 0, count));
    metric->embeddings.count += count * width;
    metric->labels.count += 2 * count;
    metric->queries.count += count;
    return LK_OK;
}

static lk_status matching_update(lk_metric *base, const lk_tensor *outputs, const lk_tensor *targets)
{
    (void)outputs, (void)targets;
    return lki_fail(LK_ERR_INVALID, "%s: needs to know which samples are queries: use the callback",
                    base->kind->name);
}

static void matching_reset(lk_metric *base)
{
    matching_metric *metric = (matching_metric *)base;
    metric->embeddings.count = metric->labels.count = metric->queries.count = 0;
}

static int matching_parts(lk_metric *base, lki_metric_part parts[LKI_METRIC_MAX_PARTS])
{
    matching_metric *metric = (matching_metric *)base;
    parts[0] = (lki_metric_part){LKI_METRIC_JOIN, &metric->embeddings, 0};
    parts[1] = (lki_metric_part){LKI_METRIC_JOIN, &metric->labels, 0};
    parts[2] = (lki_metric_part){LKI_METRIC_JOIN, &metric->queries, 0};
    return 3;
}

static bool matching_is_sound(const lk_metric *base)
{
    const matching_metric *metric = (const matching_metric *)base;
    int64_t count = metric->queries.count;
    return metric->labels.count == 2 * count && metric->embeddings.count == count * base->class_count;
}

static double squared_distance(const float *a, const float *b, int64_t width)
{
    double sum = 0;
    for (int64_t i = 0; i < width; i++) {
        double difference = (double)a[i] - b[i];
        sum += difference * difference;
    }
    return sum;
}

typedef struct gallery_distance {
    double distance;
    bool is_match;
} gallery_distance;

/* How many of the gallery are nearer to a query than its nearest match; -1 if it has none. */
static int64_t nearer_than_match(const gallery_distance *gallery, int64_t count)
{
    int64_t nearest = -1, before = 0;
    for (int64_t i = 0; i < count; i++) {
        if (!gallery[i].is_match) continue;
        if (nearest < 0 || gallery[i].distance < gallery[nearest].distance) nearest = i;
    }
    for (int64_t i = 0; nearest >= 0 && i < count; i++) {
        double mine = gallery[i].distance, best = gallery[nearest].distance;
        before += mine < best || (mine == best && i < nearest);
    }
    return nearest < 0 ? -1 : before;
}

/* What the query's own camera has seen of its class is as far away as can be, as Catalyst has it. */
static double distance_between(const matching_metric *metric, int64_t query, int64_t other, bool has_cameras)
{
    const float *x = metric->embeddings.data;
    const int64_t *a = (const int64_t *)metric->labels.data + 2 * query;
    const int64_t *b = (const int64_t *)metric->labels.data + 2 * other;
    int64_t width = metric->base.class_count;
    if (has_cameras && a[0] == b[0] && a[1] == b[1]) return INFINITY;
    return squared_distance(x + query * width, x + other * width, width);
}

static lk_status matching_compute(lk_metric *base)
{
    matching_metric *metric = (matching_metric *)base;
    const int64_t *labels = metric->labels.data, *is_query = metric->queries.data;
    int64_t samples = metric->queries.count, queries = 0, hits[LK_MAX_TOPK] = {0};
    LKI_SCOPED gallery_distance *gallery = LKI_NEW_ARRAY(gallery_distance, samples + 1);
    if (!gallery) return LK_ERR_NOMEM;
    bool has_cameras = strcmp(base->kind->name, "reid cmc") == 0;
    for (int64_t q = 0; q < samples; q++) {
        int64_t count = 0;
        if (!is_query[q]) continue;
        for (int64_t g = 0; g < samples; g++) {
            if (is_query[g]) continue;
            gallery[count++] = (gallery_distance){distance_between(metric, q, g, has_cameras),
                                                  labels[2 * g] == labels[2 * q]};
        }
        int64_t before = nearer_than_match(gallery, count);
        for (int k = 0; k < metric->topk_count; k++) hits[k] += before >= 0 && before < metric->topk[k];
        queries++;
    }
    for (int k = 0; k < metric->topk_count; k++)
        base->values.items[k].value = queries ? (double)hits[k] / (double)queries : NAN;
    return LK_OK;
}

static void matching_fini(lk_metric *base)
{
    matching_metric *metric = (matching_metric *)base;
    lki_metric_array_fini(&metric->embeddings);
    lki_metric_array_fini(&metric->labels);
    lki_metric_array_fini(&metric->queries);
}

#define MATCHING(name_)                                                                                      \
    {                                                                                                        \
        .name = name_, .update_tensors = matching_update, .reset = matching_reset, .parts = matching_parts,  \
        .compute = matching_compute, .fini = matching_fini, .set_classes = matching_set_width,               \
        .is_sound = matching_is_sound, .reads = LKI_READS_TOPK                                               \
    }

lk_metric *lki_matching_metric(bool has_cameras, const lk_metric_options *options)
{
    static const lki_metric_kind plain = MATCHING("cmc"), reid = MATCHING("reid cmc");
    matching_metric *metric =
        (matching_metric *)lki_metric_new(sizeof *metric, has_cameras ? &reid : &plain, options);
    lk_status status = metric ? LK_OK : lki_last_status();
    if (!metric) return NULL;
    metric->embeddings.element_nbytes = sizeof(float);
    metric->labels.element_nbytes = metric->queries.element_nbytes = sizeof(int64_t);
    for (int k = 0; k < LK_MAX_TOPK && options->topk[k] && !status; k++) {
        metric->topk[metric->topk_count++] = options->topk[k];
        if (options->topk[k] < 0)
            status = lki_fail(LK_ERR_INVALID, "cmc: topk: expected at least 1, found %d", options->topk[k]);
    }
    if (!metric->topk_count) metric->topk[metric->topk_count++] = 1;
    for (int k = 0; k < metric->topk_count && !status; k++) {
        char name[32];
        snprintf(name, sizeof name, "cmc%02d", metric->topk[k]);
        status = lki_metric_add_value(&metric->base, name, "");
    }
    if (!status) return &metric->base;
    lk_metric_free(&metric->base);
    return NULL;
}
