#include "resume/metric_state.h"

#include "base/memory.h"
#include "base/status.h"
#include "metric/exact.h"
#include "metric/metric.h"
#include "run/run.h"

#include <string.h>

/* A run that stops inside an epoch keeps what the metric has seen of it. */
lk_status lki_metric_save(lk_metric *metric, lk_state_dict *state, const char *prefix)
{
    lki_metric_part parts[LKI_METRIC_MAX_PARTS];
    int count = metric->kind->parts(metric, parts);
    LKI_SCOPED char *classes = lki_format("%sclasses", prefix);
    if (!classes) return LK_ERR_NOMEM;
    LKI_TRY(lk_state_dict_put_i64(state, classes, metric->class_count));
    for (int i = 0; i < count; i++) {
        const lki_metric_array *array = parts[i].kind == LKI_METRIC_JOIN ? parts[i].data : NULL;
        const void *data = array ? array->data : parts[i].data;
        int64_t nbytes = (int64_t)lki_metric_part_nbytes(&parts[i]);
        LKI_SCOPED char *name = lki_format("%spart.%d", prefix, i);
        if (!name) return LK_ERR_NOMEM;
        LKI_TRY(lk_state_dict_put(state, name, lk_tensor_from(LK_U8, LK_SHAPE(nbytes), data ? data : "")));
    }
    return LK_OK;
}

/* An empty part is that of a metric which had not seen its classes yet: there is nothing to add. */
static lk_status restore_part(const lki_metric_part *part, const lk_tensor *bytes)
{
    int64_t nbytes = (int64_t)lk_tensor_nbytes(bytes);
    lki_metric_array *array = part->kind == LKI_METRIC_JOIN ? part->data : NULL;
    int64_t element = array ? (int64_t)array->element_nbytes : 1;
    if (nbytes == 0) return LK_OK;
    if (nbytes % element != 0 || (!array && nbytes != (int64_t)lki_metric_part_nbytes(part)))
        return lki_fail(LK_ERR_FORMAT, "metric: the saved state has another size");
    if (array) {
        array->count = 0;
        LKI_TRY(lki_metric_array_reserve(array, nbytes / element));
        array->count = nbytes / element;
    }
    memcpy(array ? array->data : part->data, bytes->data, (size_t)nbytes);
    return LK_OK;
}

/* A metric may know its classes already, from its options. */
static lk_status restore_classes(lk_metric *metric, const lk_state_dict *state, const char *prefix)
{
    LKI_SCOPED char *name = lki_format("%sclasses", prefix);
    int64_t saved;
    if (!name) return LK_ERR_NOMEM;
    LKI_TRY(lk_state_dict_get_i64(state, name, &saved));
    if (saved < 0 || saved > INT32_MAX)
        return lki_fail(LK_ERR_FORMAT, "%s: the saved state has %lld classes", metric->kind->name,
                        (long long)saved);
    if (!saved || saved == metric->class_count || !metric->kind->set_classes) return LK_OK;
    if (!metric->class_count) return metric->kind->set_classes(metric, saved);
    return lki_fail(LK_ERR_FORMAT, "%s: the checkpoint's has %lld classes, this run's %lld",
                    metric->kind->name, (long long)saved, (long long)metric->class_count);
}

lk_status lki_metric_restore(lk_metric *metric, const lk_state_dict *state, const char *prefix)
{
    LKI_TRY(restore_classes(metric, state, prefix));
    lk_metric_reset(metric);
    lki_metric_part parts[LKI_METRIC_MAX_PARTS];
    int count = metric->kind->parts(metric, parts);
    for (int i = 0; i < count; i++) {
        LKI_SCOPED char *name = lki_format("%spart.%d", prefix, i);
        const lk_tensor *bytes = name ? lk_state_dict_get(state, name) : NULL;
        if (!bytes) return lki_last_status();
        LKI_TRY(restore_part(&parts[i], bytes));
    }
    if (!metric->kind->is_sound || metric->kind->is_sound(metric)) return LK_OK;
    return lki_fail(LK_ERR_FORMAT, "%s: the parts of the saved state do not fit together",
                    metric->kind->name);
}

/* ---- More than one state in a metric ---- */

static double highest_or_lowest(double a, double b, bool highest)
{
    return b != b || (highest ? b > a : b < a) ? b : a;
}

static void add_numbers(const lki_metric_part *part, const void *bytes)
{
    const int64_t *words = bytes;
    const double *numbers = bytes;
    int64_t *own = part->data;
    double *doubles = part->data;
    size_t count = lki_metric_part_nbytes(part) / sizeof *words;
    bool highest = part->kind == LKI_METRIC_MAX_I64 || part->kind == LKI_METRIC_MAX_F64;
    for (size_t i = 0; i < count; i++) switch (part->kind) {
        case LKI_METRIC_SUM_I64:
        case LKI_METRIC_EXACT: own[i] += words[i]; break;
        case LKI_METRIC_SUM_F64: doubles[i] += numbers[i]; break;
        case LKI_METRIC_MAX_I64:
        case LKI_METRIC_MIN_I64:
            own[i] = (highest ? words[i] > own[i] : words[i] < own[i]) ? words[i] : own[i];
            break;
        case LKI_METRIC_MAX_F64:
        case LKI_METRIC_MIN_F64: doubles[i] = highest_or_lowest(doubles[i], numbers[i], highest); break;
        case LKI_METRIC_JOIN: break;
        }
}

static lk_status add_part(const lki_metric_part *part, const lk_tensor *bytes)
{
    size_t nbytes = lk_tensor_nbytes(bytes);
    lki_metric_array *array = part->kind == LKI_METRIC_JOIN ? part->data : NULL;
    if (nbytes == 0) return LK_OK;
    if (array ? nbytes % array->element_nbytes != 0 : nbytes != lki_metric_part_nbytes(part))
        return lki_fail(LK_ERR_FORMAT, "metric: the saved state has another size");
    if (!array) return add_numbers(part, bytes->data), LK_OK;
    LKI_TRY(lki_metric_array_reserve(array, (int64_t)(nbytes / array->element_nbytes)));
    memcpy((char *)array->data + (size_t)array->count * array->element_nbytes, bytes->data, nbytes);
    array->count += (int64_t)(nbytes / array->element_nbytes);
    return LK_OK;
}

/* Exact sums may hold carries: both sides pass theirs on first, so that words do not overflow. */
static void normalize(const lki_metric_part *part)
{
    for (int64_t i = 0; part->kind == LKI_METRIC_EXACT && i < part->count; i++)
        lki_exact_normalize((lk_exact_sum *)part->data + i);
}

lk_status lki_metric_restore_more(lk_metric *metric, const lk_state_dict *state, const char *prefix)
{
    lki_metric_part parts[LKI_METRIC_MAX_PARTS];
    LKI_TRY(restore_classes(metric, state, prefix));
    int count = metric->kind->parts(metric, parts);
    for (int i = 0; i < count; i++) {
        LKI_SCOPED char *name = lki_format("%spart.%d", prefix, i);
        const lk_tensor *bytes = name ? lk_state_dict_get(state, name) : NULL;
        if (!bytes) return lki_last_status();
        normalize(&parts[i]);
        LKI_TRY(add_part(&parts[i], bytes));
        normalize(&parts[i]);
    }
    if (!metric->kind->is_sound || metric->kind->is_sound(metric)) return LK_OK;
    return lki_fail(LK_ERR_FORMAT, "%s: the parts of the saved states do not fit together",
                    metric->kind->name);
}

/* ---- Metrics of the user's own ---- */

#define PREFIX "own_metric."
#define TAIL   ".classes" /* a name that every saved metric has */

lk_status lki_own_metrics_save(const lk_runner *runner, lk_state_dict *state)
{
    const lki_pass_metrics *pass = &runner->run->pass;
    for (int i = 0; i < pass->own_count && runner->run->inside_epoch; i++) {
        if (!pass->own[i].is_seen) continue;
        LKI_SCOPED char *prefix = lki_format(PREFIX "%s.", pass->own[i].name);
        if (!prefix) return LK_ERR_NOMEM;
        LKI_TRY(lki_metric_save(pass->own[i].metric, state, prefix));
    }
    return LK_OK;
}

/* "own_metric.NAME.classes"; of further ranks' shares, "more.1.own_metric.NAME.classes". */
static lk_status restore_own(lk_runner *runner, const lk_state_dict *state, const char *whole)
{
    const char *saved = strncmp(whole, "more.", 5) == 0 ? strstr(whole, PREFIX) : whole;
    if (!saved) return LK_OK;
    size_t length = strlen(saved), around = sizeof PREFIX - 1 + sizeof TAIL - 1;
    lki_own_metric *own;
    if (length <= around || strncmp(saved, PREFIX, sizeof PREFIX - 1) != 0 ||
        strcmp(saved + length - (sizeof TAIL - 1), TAIL) != 0)
        return LK_OK;
    LKI_SCOPED char *prefix =
        lki_format("%.*s.", (int)(length - (sizeof TAIL - 1) + (size_t)(saved - whole)), whole);
    LKI_SCOPED char *name = lki_format("%.*s", (int)(length - around), saved + sizeof PREFIX - 1);
    if (!prefix || !name) return LK_ERR_NOMEM;
    LKI_TRY(lki_own_metric_find(&runner->run->pass, name, &own));
    bool is_more = own->is_seen;
    own->is_seen = true;
    return is_more ? lki_metric_restore_more(own->metric, state, prefix)
                   : lki_metric_restore(own->metric, state, prefix);
}

lk_status lki_own_metrics_restore(lk_runner *runner, const lk_state_dict *state)
{
    lki_own_metrics_forget(&runner->run->pass);
    for (int64_t i = 0; i < lk_state_dict_count(state); i++)
        LKI_TRY(restore_own(runner, state, lk_state_dict_name(state, i)));
    return LK_OK;
}
