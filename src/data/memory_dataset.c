#include "data/memory_dataset.h"

#include <lockstep/data.h>

#include "base/memory.h"
#include "base/status.h"
#include "data/convert.h"
#include "data/rows.h"
#include "tensor/mapped.h"

#include <pthread.h>

typedef struct memory {
    lki_row_fields fields; /* first: lki_row_fields_gather takes it for the whole */
    int64_t length;
    lk_tensor *tensors[LK_MAX_FIELDS];
    /* The latest conversion of each field: two subsets of one dataset share it. */
    pthread_mutex_t casts_lock;
    lk_tensor *casts[LK_MAX_FIELDS];
} memory;

static int64_t memory_length(void *context)
{
    return ((memory *)context)->length;
}

static bool memory_storage(void *context, int field, lk_storage *out)
{
    const lki_rows *rows = &((memory *)context)->fields.rows[field];
    *out = (lk_storage){rows->data, rows->stored, rows->divisor, rows->mean, rows->std};
    return true;
}

static void memory_free(void *context)
{
    memory *self = context;
    for (int f = 0; f < self->fields.count; f++) {
        lk_tensor_free(self->tensors[f]);
        lk_tensor_free(self->casts[f]);
    }
    pthread_mutex_destroy(&self->casts_lock);
    lki_free(self);
}

/* ---- Another dtype ---- */

static lk_tensor *convert_tensor(const memory *self, const lk_field *field, int f, lk_dtype dtype)
{
    const lk_tensor *from = self->tensors[f];
    lk_tensor *to = lk_tensor_create(dtype, from->shape);
    if (!to) return NULL;
    int64_t bad = lki_convert(to->data, dtype, from->data, from->dtype, lk_tensor_count(from));
    if (bad < 0 && lki_mapped_check() == LK_OK) return to;
    lk_tensor_free(to);
    if (bad < 0) return NULL;
    lki_convert_fail(field->name, bad / self->fields.rows[f].width, dtype, from->data, from->dtype, bad);
    return NULL;
}

/* A view of the field as `dtype`. */
static lk_tensor *cast_tensor(memory *self, const lk_field *field, int f, lk_dtype dtype)
{
    pthread_mutex_lock(&self->casts_lock);
    if (!self->casts[f] || self->casts[f]->dtype != dtype) {
        lk_tensor *made = convert_tensor(self, field, f, dtype);
        if (made) lk_tensor_free(self->casts[f]);
        if (made) self->casts[f] = made;
    }
    bool done = self->casts[f] && self->casts[f]->dtype == dtype;
    lk_tensor *view = done ? lk_tensor_view(self->casts[f]) : NULL;
    pthread_mutex_unlock(&self->casts_lock);
    return view;
}

static lk_dataset *memory_cast(void *context, const lk_field *fields, int field, lk_dtype dtype)
{
    memory *self = context;
    lki_memory_field cast[LK_MAX_FIELDS];
    if (self->fields.rows[field].stored != fields[field].dtype)
        return lki_fail_null(LK_ERR_UNSUPPORTED, "field \"%s\" is scaled when it is gathered",
                             fields[field].name);
    for (int f = 0; f < self->fields.count; f++) {
        const lki_rows *rows = &self->fields.rows[f];
        bool as_stored = rows->stored == rows->dtype;
        cast[f] = (lki_memory_field){.name = fields[f].name,
                                     .tensor = f == field ? NULL : lk_tensor_view(self->tensors[f]),
                                     .dtype = f == field ? dtype : fields[f].dtype,
                                     .shape = fields[f].shape,
                                     .divisor = as_stored ? 0 : rows->divisor,
                                     .mean = as_stored ? 0 : rows->mean,
                                     .std = as_stored ? 0 : rows->std};
    }
    /* Bytes stay bytes: rows.c widens them for nothing while it gathers, and they take a quarter of the
     * memory.
     */
    bool widens = self->fields.rows[field].stored == LK_U8 && (dtype == LK_F32 || dtype == LK_I64);
    cast[field].tensor =
        widens ? lk_tensor_view(self->tensors[field]) : cast_tensor(self, &fields[field], field, dtype);
    return lki_memory_dataset_create(cast, self->fields.count);
}

static const lk_dataset_ops memory_ops = {
    LK_SIZE(lk_dataset_ops),   .length = memory_length, .gather = lki_row_fields_gather,
    .storage = memory_storage, .free = memory_free,     .cast = memory_cast};

static lk_status add_field(memory *self, int f, const lki_memory_field *field)
{
    const lk_tensor *tensor = field->tensor;
    char text[160];
    if (tensor->shape.rank < 1)
        return lki_fail(LK_ERR_SHAPE, "field \"%s\": a scalar has no samples", field->name);
    if (!lk_tensor_is_contiguous(tensor))
        return lki_fail(LK_ERR_INVALID, "field \"%s\": the tensor is not contiguous", field->name);
    int64_t length = tensor->shape.dim[0], width = lk_shape_count(field->shape);
    if (f > 0 && length != self->length)
        return lki_fail(LK_ERR_SHAPE, "field \"%s\" has %lld samples, the field before it %lld", field->name,
                        (long long)length, (long long)self->length);
    if (length * width != lk_tensor_count(tensor))
        return lki_fail(LK_ERR_SHAPE, "field \"%s\": a sample of shape %s does not fit the tensor",
                        field->name, lk_shape_format(text, sizeof text, field->shape));
    self->length = length;
    self->fields.rows[f] = (lki_rows){.data = tensor->data,
                                      .width = width,
                                      .stored = tensor->dtype,
                                      .dtype = field->dtype,
                                      .divisor = field->divisor != 0 ? field->divisor : 1,
                                      .mean = field->mean,
                                      .std = field->std != 0 ? field->std : 1};
    return lki_rows_check(&self->fields.rows[f], field->name);
}

static memory *make(const lki_memory_field *fields, int field_count)
{
    memory *self = LKI_NEW(memory);
    if (!self) return NULL;
    for (int f = 0; f < field_count; f++) {
        if (add_field(self, f, &fields[f]) == LK_OK) continue;
        lki_free(self);
        return NULL;
    }
    pthread_mutex_init(&self->casts_lock, NULL);
    for (int f = 0; f < field_count; f++) self->tensors[f] = fields[f].tensor;
    self->fields.count = field_count;
    return self;
}

static lk_dataset *give_up(const lki_memory_field *fields, int field_count)
{
    for (int f = 0; f < field_count; f++) lk_tensor_free(fields[f].tensor);
    return NULL;
}

lk_dataset *lki_memory_dataset_create(const lki_memory_field *fields, int field_count)
{
    lk_field public_fields[LK_MAX_FIELDS];
    for (int f = 0; f < field_count; f++)
        if (!fields[f].tensor) return give_up(fields, field_count);
    if (field_count < 1 || field_count > LK_MAX_FIELDS) {
        lki_fail(LK_ERR_INVALID, "a dataset has 1 to %d fields, not %d", LK_MAX_FIELDS, field_count);
        return give_up(fields, field_count);
    }
    memory *self = make(fields, field_count);
    if (!self) return give_up(fields, field_count);
    for (int f = 0; f < field_count; f++)
        public_fields[f] = (lk_field){fields[f].name, fields[f].dtype, fields[f].shape};
    return lk_dataset_create(&memory_ops, public_fields, field_count, self);
}

lki_memory_field lki_memory_field_of(const char *name, lk_tensor *tensor)
{
    lki_memory_field field = {.name = name, .tensor = tensor};
    if (!tensor) return field;
    field.dtype = tensor->dtype;
    field.shape.rank = tensor->shape.rank > 0 ? tensor->shape.rank - 1 : 0;
    for (int i = 0; i < field.shape.rank; i++) field.shape.dim[i] = tensor->shape.dim[i + 1];
    return field;
}

lk_dataset *lk_tensor_dataset_with(const lk_named_tensor *tensors, int count)
{
    lki_memory_field fields[LK_MAX_FIELDS];
    bool whole = true;
    for (int i = 0; i < count; i++) whole = whole && tensors[i].tensor;
    if (whole && count > LK_MAX_FIELDS)
        lki_fail(LK_ERR_INVALID, "a dataset has 1 to %d fields, not %d", LK_MAX_FIELDS, count);
    if (!whole || count > LK_MAX_FIELDS) {
        for (int i = 0; i < count; i++) lk_tensor_free(tensors[i].tensor);
        return NULL;
    }
    for (int i = 0; i < count; i++) {
        lk_tensor *dense = tensors[i].tensor;
        if (!lk_tensor_is_contiguous(dense)) { /* a view that jumps is copied once, here */
            dense = lk_tensor_clone(tensors[i].tensor);
            lk_tensor_free(tensors[i].tensor);
        }
        fields[i] = lki_memory_field_of(tensors[i].name, dense);
    }
    return lki_memory_dataset_create(fields, count);
}
