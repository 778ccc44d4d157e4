#include "metric/metric.h"

#include "base/arguments.h"
#include "tensor/element.h"
#include "tensor/layout.h"

#include <float.h>
#include <math.h>
#include <string.h>

lk_status lki_metric_array_reserve(lki_metric_array *array, int64_t extra)
{
    int64_t needed = array->count + extra;
    if (needed <= array->capacity) return LK_OK;
    int64_t capacity = array->capacity * 2 > needed ? array->capacity * 2 : needed;
    void *grown = lki_realloc(array->data, (size_t)capacity * array->element_nbytes, "a metric's scores");
    if (!grown) return LK_ERR_NOMEM;
    array->data = grown;
    array->capacity = capacity;
    return LK_OK;
}

void lki_metric_array_fini(lki_metric_array *array)
{
    lki_free(array->data);
    array->data = NULL;
    array->count = array->capacity = 0;
}

size_t lki_metric_part_nbytes(const lki_metric_part *part)
{
    const lki_metric_array *array = part->data;
    if (part->kind == LKI_METRIC_JOIN) return (size_t)array->count * array->element_nbytes;
    return (size_t)part->count * (part->kind == LKI_METRIC_EXACT ? sizeof(lk_exact_sum) : sizeof(int64_t));
}

/* One struct serves all metrics: an option that this one does not know would have no effect. */
static lk_status check_known(const lki_metric_kind *kind, const lk_metric_options *options)
{
    const struct {
        const char *name;
        bool is_given;
        unsigned bit;
    } given[] = {{"num_classes", options->num_classes != 0, LKI_READS_CLASSES},
                 {"topk", options->topk[0] != 0, LKI_READS_TOPK},
                 {"threshold", options->threshold != 0, LKI_READS_THRESHOLD},
                 {"from_logits", options->from_logits, LKI_READS_THRESHOLD | LKI_READS_LOGITS},
                 {"zero_division", options->zero_division != 0, LKI_READS_ZERO_DIVISION},
                 {"compute_per_class_metrics", options->compute_per_class_metrics, LKI_READS_PER_CLASS},
                 {"class_names", options->class_names != NULL, LKI_READS_CLASS_NAMES},
                 {"class_weights", options->class_weights != NULL, LKI_READS_CLASS_WEIGHTS},
                 {"normalize", options->normalize, LKI_READS_NORMALIZE},
                 {"num_bins", options->num_bins != 0, LKI_READS_BINS},
                 {"ignore_index", options->ignore_index != 0, LKI_READS_IGNORE},
                 {"alpha", options->alpha != 0, LKI_READS_ALPHA},
                 {"beta", options->beta != 0, LKI_READS_ALPHA},
                 {"max_order", options->max_order != 0, LKI_READS_ORDER},
                 {"smooth", options->smooth, LKI_READS_ORDER}};
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        if (given[i].is_given && !(kind->reads & given[i].bit))
            return lki_fail(LK_ERR_INVALID, "%s: this metric has no %s", kind->name, given[i].name);
    return LK_OK;
}

lk_metric *lki_metric_new(size_t nbytes, const lki_metric_kind *kind, const lk_metric_options *options)
{
    if (options->num_classes < 0)
        return lki_fail_null(LK_ERR_INVALID, "%s: num_classes: expected at least 1, found %d", kind->name,
                             options->num_classes);
    if (check_known(kind, options)) return NULL;
    if (!isfinite(options->threshold))
        return lki_fail_null(LK_ERR_INVALID, "%s: threshold: expected a finite number, found %g", kind->name,
                             options->threshold);
    double threshold = options->threshold; /* 0 and LK_ZERO may be had with logits too */
    if (options->from_logits && threshold != 0 && !(threshold > 0 && threshold < 1))
        return lki_fail_null(LK_ERR_INVALID,
                             "%s: threshold: expected between 0 and 1 with from_logits, found %g", kind->name,
                             threshold);
    lk_metric *metric = lki_calloc(nbytes, "a metric");
    if (!metric) return NULL;
    metric->kind = kind;
    metric->prefix = lki_strdup(options->prefix ? options->prefix : "");
    metric->suffix = lki_strdup(options->suffix ? options->suffix : "");
    if (!metric->prefix || !metric->suffix) {
        lk_metric_free(metric);
        return NULL;
    }
    return metric;
}

static lk_status value_list_push(lki_metric_value_list *list, const char *name)
{
    if (list->count == list->capacity) {
        int capacity = list->capacity ? list->capacity * 2 : 8;
        lk_metric_value *grown =
            lki_realloc(list->items, sizeof *grown * (size_t)capacity, "a metric's values");
        if (!grown) return LK_ERR_NOMEM;
        list->items = grown;
        list->capacity = capacity;
    }
    list->items[list->count++] = (lk_metric_value){name, NAN};
    return LK_OK;
}

lk_status lki_metric_add_value(lk_metric *metric, const char *name, const char *tail)
{
    char *full = lki_format("%s%s%s%s", metric->prefix, name, metric->suffix, tail);
    if (!full) return LK_ERR_NOMEM;
    lk_status status = value_list_push(&metric->values, full);
    if (status != LK_OK) lki_free(full);
    return status;
}

lk_status lki_metric_add_batch_value(lk_metric *metric, int index)
{
    return value_list_push(&metric->batch_values, metric->values.items[index].name);
}

void lk_metric_free(lk_metric *metric)
{
    if (!metric) return;
    if (metric->kind->fini) metric->kind->fini(metric);
    for (int i = 0; i < metric->values.count; i++) lki_free((char *)metric->values.items[i].name);
    lki_free(metric->values.items);
    lki_free(metric->batch_values.items);
    lki_free(metric->prefix);
    lki_free(metric->suffix);
    lki_free(metric->scratch[0]);
    lki_free(metric->scratch[1]);
    lki_free(metric);
}

void lk_metric_reset(lk_metric *metric)
{
    if (!metric) return;
    metric->kind->reset(metric);
    metric->reduced = false;
}

static lk_status describe(const lk_metric *metric, const lk_tensor *outputs, const lk_tensor *targets,
                          lki_metric_batch *batch)
{
    const char *name = metric->kind->name;
    if (outputs->shape.rank < 1 || targets->shape.rank < 1 ||
        outputs->shape.dim[0] != targets->shape.dim[0]) {
        char a[160], b[160];
        return lki_fail(LK_ERR_SHAPE, "%s: outputs %s and targets %s do not have the same samples", name,
                        lk_shape_format(a, sizeof a, outputs->shape),
                        lk_shape_format(b, sizeof b, targets->shape));
    }
    int64_t samples = outputs->shape.dim[0], classes = outputs->shape.rank > 1 ? outputs->shape.dim[1] : 1;
    int64_t inner = 1;
    for (int i = 2; i < outputs->shape.rank; i++) inner *= outputs->shape.dim[i];
    *batch =
        (lki_metric_batch){outputs->data, targets->data, outputs->dtype, targets->dtype,
                           samples,       classes,       inner,          lki_shape_count(&targets->shape)};
    return LK_OK;
}

lk_status lki_metric_check_open(const lk_metric *metric)
{
    if (!metric->reduced) return LK_OK;
    return lki_fail(LK_ERR_INVALID, "%s: updated after its reduction across ranks; reset it first",
                    metric->kind->name);
}

lk_status lk_metric_update(lk_metric *metric, const lk_tensor *outputs, const lk_tensor *targets)
{
    if (!metric || !outputs || (!targets && lki_metric_wants_targets(metric)))
        return lki_fail(LK_ERR_INVALID, "metric update: NULL was passed");
    if (metric->kind->update_tensors) {
        LKI_TRY(lki_metric_check_open(metric));
        bool is_empty = outputs->shape.rank > 0 && outputs->shape.dim[0] == 0;
        return is_empty ? LK_OK : metric->kind->update_tensors(metric, outputs, targets);
    }
    if (!metric->kind->update)
        return lki_fail(LK_ERR_INVALID, "%s: takes one number a batch, not tensors", metric->kind->name);
    LKI_TRY(lki_metric_check_open(metric));
    lk_tensor *dense_outputs = NULL, *dense_targets = NULL;
    lki_metric_batch batch;
    lk_status status = LK_OK;
    if (!lki_tensor_is_contiguous(outputs) && !(outputs = dense_outputs = lk_tensor_clone(outputs)))
        return lki_last_status();
    if (!lki_tensor_is_contiguous(targets) && !(targets = dense_targets = lk_tensor_clone(targets))) {
        status = lki_last_status();
        goto out;
    }
    LKI_TRY_OUT(describe(metric, outputs, targets, &batch));
    if (batch.sample_count > 0) status = metric->kind->update(metric, &batch);
out:
    if (dense_outputs) lk_tensor_free(dense_outputs);
    if (dense_targets) lk_tensor_free(dense_targets);
    return status;
}

lk_status lk_metric_update_value(lk_metric *metric, double value, int64_t sample_count)
{
    if (!metric) return lki_fail(LK_ERR_INVALID, "metric update: NULL was passed");
    if (!metric->kind->update_value)
        return lki_fail(LK_ERR_INVALID, "%s: takes outputs and targets, not one number", metric->kind->name);
    LKI_TRY(lki_metric_check_open(metric));
    return sample_count > 0 ? metric->kind->update_value(metric, value, sample_count) : LK_OK;
}

lk_status lk_metric_compute(lk_metric *metric, lk_metric_values *out)
{
    if (!metric) return lki_fail(LK_ERR_INVALID, "metric compute: NULL was passed");
    LKI_TRY(metric->kind->compute(metric));
    *out = (lk_metric_values){metric->values.items, metric->values.count};
    return LK_OK;
}

lk_status lk_metric_compute_batch(lk_metric *metric, lk_metric_values *out)
{
    if (!metric) return lki_fail(LK_ERR_INVALID, "metric compute: NULL was passed");
    if (metric->kind->compute_batch) LKI_TRY(metric->kind->compute_batch(metric));
    *out = (lk_metric_values){metric->batch_values.items, metric->batch_values.count};
    return LK_OK;
}

double lk_metric_get(lk_metric *metric, const char *name)
{
    lk_metric_values values;
    if (lk_metric_compute(metric, &values) != LK_OK) return NAN;
    for (int i = 0; i < values.count; i++)
        if (strcmp(values.items[i].name, name) == 0) return values.items[i].value;
    return NAN;
}

lk_status lki_metric_see_classes(lk_metric *metric, const lki_metric_batch *batch)
{
    if (batch->inner_count != 1)
        return lki_fail(LK_ERR_SHAPE, "%s: expected outputs of shape (samples, classes)", metric->kind->name);
    if (metric->class_count == batch->class_count) return LK_OK;
    if (metric->class_count == 0) {
        if (batch->class_count == 0)
            return lki_fail(LK_ERR_SHAPE, "%s: outputs without classes", metric->kind->name);
        return metric->kind->set_classes(metric, batch->class_count);
    }
    return lki_fail(LK_ERR_SHAPE, "%s: expected outputs for %lld classes, found %lld", metric->kind->name,
                    (long long)metric->class_count, (long long)batch->class_count);
}

static void *scratch_for(lk_metric *metric, int which, size_t nbytes)
{
    if (metric->scratch_nbytes[which] < nbytes) {
        void *grown = lki_realloc(metric->scratch[which], nbytes, "a metric's converted batch");
        if (!grown) return NULL;
        metric->scratch[which] = grown;
        metric->scratch_nbytes[which] = nbytes;
    }
    return metric->scratch[which];
}

static lk_status as_f32(lk_metric *metric, int which, lk_dtype dtype, const void *data, int64_t count,
                        const float **out)
{
    if (dtype == LK_F32) {
        *out = data;
        return LK_OK;
    }
    float *converted = scratch_for(metric, which, (size_t)count * sizeof *converted);
    if (!converted) return LK_ERR_NOMEM;
    for (int64_t i = 0; i < count; i++) converted[i] = (float)lki_load(dtype, data, i);
    *out = converted;
    return LK_OK;
}

lk_status lki_metric_outputs_f32(lk_metric *metric, const lki_metric_batch *batch, const float **out)
{
    int64_t count = batch->sample_count * batch->class_count * batch->inner_count;
    return as_f32(metric, 0, batch->output_dtype, batch->outputs, count, out);
}

lk_status lki_metric_targets_f32(lk_metric *metric, const lki_metric_batch *batch, const float **out)
{
    return as_f32(metric, 1, batch->target_dtype, batch->targets, batch->target_count, out);
}

static lk_status check_indices(const lk_metric *metric, const int64_t *targets, int64_t count)
{
    uint64_t class_count = (uint64_t)metric->class_count;
    bool bad = false;
    for (int64_t i = 0; i < count; i++) bad |= (uint64_t)targets[i] >= class_count;
    for (int64_t i = 0; bad && i < count; i++)
        if ((uint64_t)targets[i] >= class_count)
            return lki_fail(LK_ERR_RANGE, "%s: target %lld of sample %lld is outside of 0 to %lld",
                            metric->kind->name, (long long)targets[i], (long long)i,
                            (long long)metric->class_count - 1);
    return LK_OK;
}

lk_status lki_metric_targets_index(lk_metric *metric, const lki_metric_batch *batch, const int64_t **out)
{
    int64_t count = batch->sample_count;
    bool one_hot = batch->target_count == count * metric->class_count && metric->class_count > 1;
    if (batch->target_count != count && !one_hot)
        return lki_fail(LK_ERR_SHAPE, "%s: expected %lld class indices, found %lld targets",
                        metric->kind->name, (long long)count, (long long)batch->target_count);
    if (batch->target_dtype == LK_I64 && !one_hot) {
        *out = batch->targets;
        return check_indices(metric, *out, count);
    }
    int64_t *indices = scratch_for(metric, 1, (size_t)count * sizeof *indices);
    if (!indices) return LK_ERR_NOMEM;
    for (int64_t i = 0; i < count; i++) {
        if (!one_hot) {
            double value = lki_load(batch->target_dtype, batch->targets, i);
            indices[i] = value == floor(value) ? (int64_t)value : -1;
            continue;
        }
        indices[i] = 0;
        for (int64_t c = 1; c < metric->class_count; c++)
            if (lki_load(batch->target_dtype, batch->targets, i * metric->class_count + c) >
                lki_load(batch->target_dtype, batch->targets, i * metric->class_count + indices[i]))
                indices[i] = c;
    }
    *out = indices;
    return check_indices(metric, indices, count);
}

lk_status lki_metric_check_cells(const lk_metric *metric, const lki_metric_batch *batch)
{
    int64_t cells = batch->sample_count * batch->class_count * batch->inner_count;
    if (batch->target_count == cells) return LK_OK;
    return lki_fail(LK_ERR_SHAPE, "%s: expected as many targets as outputs, found %lld for %lld",
                    metric->kind->name, (long long)batch->target_count, (long long)cells);
}

lk_status lki_metric_copy_names(char ***out, const char *const *names, int64_t count)
{
    for (int64_t i = 0; names && i < count; i++)
        if (!names[i])
            return lki_fail(LK_ERR_INVALID, "class_names: expected %lld names, but name %lld is NULL",
                            (long long)count, (long long)i);
    char **copies = LKI_NEW_ARRAY(char *, count);
    if (!copies) return LK_ERR_NOMEM;
    for (int64_t i = 0; i < count; i++) {
        copies[i] = names ? lki_strdup(names[i]) : lki_format("class_%02lld", (long long)i);
        if (!copies[i]) {
            lki_metric_free_names(copies, i);
            return LK_ERR_NOMEM;
        }
    }
    *out = copies;
    return LK_OK;
}

void lki_metric_free_names(char **names, int64_t count)
{
    for (int64_t i = 0; names && i < count; i++) lki_free(names[i]);
    lki_free(names);
}

static int64_t first_nan(const float *scores, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (scores[i] != scores[i]) return i;
    return 0;
}

int64_t lki_metric_argmax(const float *scores, int64_t count)
{
    int64_t best = 0;
    float highest = scores[0];
    int ordered = highest == highest;
    for (int64_t i = 1; i < count; i++) {
        bool higher = scores[i] > highest;
        ordered &= scores[i] == scores[i];
        best = higher ? i : best;
        highest = higher ? scores[i] : highest;
    }
    return ordered ? best : first_nan(scores, count);
}

float lki_metric_cut(double threshold, bool from_logits)
{
    if (threshold == 0)
        threshold = DBL_TRUE_MIN; /* its logit is finite: a sigmoid of exactly 0 is below it */
    return (float)(from_logits ? log(threshold / (1 - threshold)) : threshold);
}
