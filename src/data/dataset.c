#include "data/dataset.h"

#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "tensor/buffer.h"
#include "tensor/mapped.h"

#include <stdatomic.h>
#include <string.h>

struct lk_dataset {
    lk_dataset_ops ops;
    void *context;
    int64_t length;
    int field_count;
    lk_field *fields;     /* names are owned */
    unsigned kept_dtypes; /* a bit for each field */
    int class_field;
    int class_count;
    char **classes; /* (class_count) */
    lki_own_sizes own_sizes;
    const struct lki_stream *stream; /* what is read in the end; NULL: samples have numbers */
    atomic_int holders;
};

static void free_classes(lk_dataset *dataset)
{
    for (int i = 0; i < dataset->class_count; i++) lki_free(dataset->classes[i]);
    lki_free(dataset->classes);
    dataset->classes = NULL;
    dataset->class_count = 0;
}

static void free_dataset(lk_dataset *dataset)
{
    if (dataset->ops.free) dataset->ops.free(dataset->context);
    free_classes(dataset);
    for (int i = 0; i < dataset->field_count; i++) lki_free((char *)dataset->fields[i].name);
    lki_free(dataset->fields);
    lki_free(dataset);
}

static lk_status check_fields(const lk_dataset_ops *ops, const lk_field *fields, int field_count)
{
    if (!ops->length || (!ops->get && !ops->gather))
        return lki_fail(LK_ERR_INVALID, "a dataset needs length, and get or gather");
    if (field_count < 1 || field_count > LK_MAX_FIELDS)
        return lki_fail(LK_ERR_INVALID, "a dataset has 1 to %d fields, not %d", LK_MAX_FIELDS, field_count);
    for (int i = 0; i < field_count; i++) {
        if (!fields[i].name || !*fields[i].name)
            return lki_fail(LK_ERR_INVALID, "field %d of the dataset has no name", i);
        for (int j = 0; j < i; j++)
            if (strcmp(fields[i].name, fields[j].name) == 0)
                return lki_fail(LK_ERR_INVALID, "the dataset has two fields \"%s\"", fields[i].name);
        if (lki_shape_check(fields[i].dtype, fields[i].shape))
            return lki_fail_prefix(lki_last_status(), "field \"%s\"", fields[i].name);
        if (fields[i].shape.rank >= LK_MAX_DIMS)
            return lki_fail(LK_ERR_SHAPE, "field \"%s\": a sample has at most %d dimensions", fields[i].name,
                            LK_MAX_DIMS - 1);
    }
    return LK_OK;
}

static lk_status copy_fields(lk_dataset *dataset, const lk_field *fields, int field_count)
{
    dataset->fields = LKI_NEW_ARRAY(lk_field, field_count);
    if (!dataset->fields) return LK_ERR_NOMEM;
    for (int i = 0; i < field_count; i++) {
        dataset->fields[i] = fields[i];
        dataset->fields[i].name = lki_strdup(fields[i].name);
        dataset->field_count = i + 1;
        if (!dataset->fields[i].name) return LK_ERR_NOMEM;
    }
    return LK_OK;
}

#undef lk_dataset_create /* the header fills in a size that is missing */
lk_dataset *lk_dataset_create(const lk_dataset_ops *given, const lk_field *fields, int field_count,
                              void *context)
{
    lk_dataset_ops ops;
    lk_status status = lki_take(&ops, sizeof ops, given, "lk_dataset_ops");
    if (status == LK_OK) status = check_fields(&ops, fields, field_count);
    lk_dataset *dataset = status == LK_OK ? LKI_NEW(lk_dataset) : NULL;
    if (!dataset) {
        if (ops.free) ops.free(context);
        return NULL;
    }
    dataset->ops = ops;
    dataset->context = context;
    atomic_init(&dataset->holders, 1);
    if (copy_fields(dataset, fields, field_count) != LK_OK) {
        free_dataset(dataset);
        return NULL;
    }
    dataset->length = ops.length(context);
    if (dataset->length >= 0) return dataset;
    lki_fail(LK_ERR_INVALID, "a dataset says that its length is %lld", (long long)dataset->length);
    free_dataset(dataset);
    return NULL;
}

lk_dataset *lk_dataset_share(lk_dataset *dataset)
{
    if (dataset) atomic_fetch_add_explicit(&dataset->holders, 1, memory_order_relaxed);
    return dataset;
}

void lk_dataset_free(lk_dataset *dataset)
{
    if (!dataset || atomic_fetch_sub_explicit(&dataset->holders, 1, memory_order_acq_rel) > 1) return;
    free_dataset(dataset);
}

int64_t lk_dataset_length(const lk_dataset *dataset)
{
    return dataset ? dataset->length : 0;
}

int lk_dataset_field_count(const lk_dataset *dataset)
{
    return dataset ? dataset->field_count : 0;
}

const lk_field *lk_dataset_field(const lk_dataset *dataset, int position)
{
    if (!dataset || position < 0 || position >= dataset->field_count) return NULL;
    return &dataset->fields[position];
}

int lk_dataset_find_field(const lk_dataset *dataset, const char *name)
{
    for (int i = 0; dataset && name && i < dataset->field_count; i++)
        if (strcmp(dataset->fields[i].name, name) == 0) return i;
    return -1;
}

const struct lki_stream *lki_dataset_stream(const lk_dataset *dataset)
{
    return dataset ? dataset->stream : NULL;
}

void lki_dataset_set_stream(lk_dataset *dataset, const struct lki_stream *stream)
{
    dataset->stream = stream;
}

lk_status lki_dataset_check_length(const lk_dataset *dataset, const char *who)
{
    if (!lki_dataset_stream(dataset)) return LK_OK;
    return lki_fail(
        LK_ERR_UNSUPPORTED,
        "%s: the dataset is a stream, whose samples have no numbers and whose length is not known", who);
}

size_t lki_field_nbytes(const lk_field *field)
{
    return (size_t)lk_shape_count(field->shape) * lk_dtype_nbytes(field->dtype);
}

/* For datasets without `gather`. */
static lk_status get_one_by_one(void *context, const lk_pass *pass, const int64_t *indices, int64_t count,
                                void *const *destinations)
{
    const lk_dataset *dataset = context;
    void *slots[LK_MAX_FIELDS];
    for (int64_t i = 0; i < count; i++) {
        for (int f = 0; f < dataset->field_count; f++)
            slots[f] = (char *)destinations[f] + (size_t)i * lki_field_nbytes(&dataset->fields[f]);
        LKI_TRY(dataset->ops.get(dataset->context, pass, indices[i], slots));
    }
    return LK_OK;
}

lki_gatherer lki_dataset_gatherer(const lk_dataset *dataset)
{
    if (dataset->ops.gather) return (lki_gatherer){dataset->ops.gather, dataset->context};
    return (lki_gatherer){get_one_by_one, (void *)dataset};
}

lk_status lki_dataset_gather(const lk_dataset *dataset, const lk_pass *pass, const int64_t *indices,
                             int64_t count, void *const *destinations)
{
    lki_gatherer by = lki_dataset_gatherer(dataset);
    return by.gather(by.context, pass, indices, count, destinations);
}

lk_status lki_check_indices(const int64_t *indices, int64_t count, int64_t length)
{
    for (int64_t i = 0; i < count; i++)
        if ((uint64_t)indices[i] >= (uint64_t)length)
            return lki_fail(LK_ERR_RANGE, "sample %lld: the dataset has %lld samples", (long long)indices[i],
                            (long long)length);
    return LK_OK;
}

lk_status lk_dataset_gather(lk_dataset *dataset, const lk_pass *pass, const int64_t *indices, int64_t count,
                            void *const *destinations)
{
    if (!dataset) return lki_fail(LK_ERR_INVALID, "no dataset to read from");
    static const lk_pass first = {0};
    LKI_TRY(lki_dataset_check_length(dataset, "gather"));
    LKI_TRY(lki_check_indices(indices, count, dataset->length));
    if (!pass) pass = &first;
    LKI_TRY(lki_dataset_gather(dataset, pass, indices, count, destinations));
    return lki_mapped_check();
}

bool lk_dataset_storage(const lk_dataset *dataset, int field, lk_storage *out)
{
    if (!dataset || field < 0 || field >= dataset->field_count || !dataset->ops.storage) return false;
    return dataset->ops.storage(dataset->context, field, out);
}

/* ---- Pictures of any size ---- */

void lki_dataset_set_own_sizes(lk_dataset *dataset, const lki_own_sizes *pictures)
{
    dataset->own_sizes = *pictures;
}

const lki_own_sizes *lki_dataset_own_sizes(const lk_dataset *dataset)
{
    return dataset->own_sizes.read ? &dataset->own_sizes : NULL;
}

/* ---- Dtypes ---- */

bool lki_dataset_keeps_dtype(const lk_dataset *dataset, int field)
{
    return dataset->kept_dtypes >> field & 1;
}

void lki_dataset_keep_dtype(lk_dataset *dataset, int field)
{
    dataset->kept_dtypes |= 1u << field;
}

/* What the dataset's own op makes; NULL with LK_ERR_UNSUPPORTED without one. */
lk_dataset *lki_dataset_cast_whole(lk_dataset *dataset, int field, lk_dtype dtype)
{
    if (!dataset->ops.cast) return lki_fail_null(LK_ERR_UNSUPPORTED, "the dataset is not in memory");
    return dataset->ops.cast(dataset->context, dataset->fields, field, dtype);
}

/* ---- Classes ---- */

static lk_status copy_classes(lk_dataset *dataset, int field, const char *const *names, int count)
{
    dataset->classes = LKI_NEW_ARRAY(char *, count);
    if (!dataset->classes) return LK_ERR_NOMEM;
    dataset->class_field = field;
    for (int i = 0; i < count; i++) {
        dataset->classes[i] = lki_strdup(names[i]);
        if (!dataset->classes[i]) return LK_ERR_NOMEM;
        dataset->class_count = i + 1;
    }
    return LK_OK;
}

lk_status lk_dataset_set_classes(lk_dataset *dataset, const char *field, const char *const *names, int count)
{
    int position = lk_dataset_find_field(dataset, field);
    if (!dataset) return lki_last_status();
    if (position < 0)
        return lki_fail(LK_ERR_NOT_FOUND, "classes: the dataset has no field \"%s\"", field ? field : "");
    if (lk_dtype_is_float(dataset->fields[position].dtype))
        return lki_fail(LK_ERR_DTYPE, "classes: field \"%s\" holds %s, labels are integers", field,
                        lk_dtype_name(dataset->fields[position].dtype));
    for (int i = 0; i < count; i++)
        for (int j = 0; j < i; j++)
            if (strcmp(names[i], names[j]) == 0)
                return lki_fail(LK_ERR_INVALID, "classes: there are two named \"%s\"", names[i]);
    free_classes(dataset);
    return copy_classes(dataset, position, names, count);
}

int lk_dataset_class_count(const lk_dataset *dataset)
{
    return dataset ? dataset->class_count : 0;
}

const char *lk_dataset_class_name(const lk_dataset *dataset, int label)
{
    return dataset && label >= 0 && label < dataset->class_count ? dataset->classes[label] : NULL;
}

int lki_dataset_class_field(const lk_dataset *dataset)
{
    return dataset->class_count ? dataset->class_field : -1;
}

lk_dataset *lki_dataset_inherit(lk_dataset *outer, const lk_dataset *inner)
{
    if (!outer) return NULL;
    outer->stream = inner->stream;
    for (int f = 0; f < outer->field_count && f < inner->field_count; f++)
        if (lki_dataset_keeps_dtype(inner, f) && outer->fields[f].dtype == inner->fields[f].dtype)
            lki_dataset_keep_dtype(outer, f);
    if (!inner->class_count || copy_classes(outer, inner->class_field, (const char *const *)inner->classes,
                                            inner->class_count) == LK_OK)
        return outer;
    lk_dataset_free(outer);
    return NULL;
}
