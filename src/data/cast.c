/* Datasets with a field as another dtype: converted once when the samples lie in memory, else around a
 * dataset that is converted while it is gathered. */
#include <lockstep/data.h>

#include "base/memory.h"
#include "base/status.h"
#include "data/convert.h"
#include "data/dataset.h"
#include "data/scratch.h"

#include <string.h>

/* ---- Around another dataset ---- */

typedef struct cast {
    lk_dataset *inner;
    int field; /* -1: none is converted; the wrapper only remembers which fields keep their dtype */
    lk_dtype dtype;
} cast;

static int64_t cast_length(void *context)
{
    return lk_dataset_length(((cast *)context)->inner);
}

static lk_status convert_samples(const cast *self, const void *in, void *out, const int64_t *indices,
                                 int64_t count)
{
    const lk_field *field = lk_dataset_field(self->inner, self->field);
    int64_t width = lk_shape_count(field->shape);
    int64_t bad = lki_convert(out, self->dtype, in, field->dtype, count * width);
    if (bad < 0) return LK_OK;
    return lki_convert_fail(field->name, indices[bad / width], self->dtype, in, field->dtype, bad);
}

static lk_status cast_gather(void *context, const lk_pass *pass, const int64_t *indices, int64_t count,
                             void *const *destinations)
{
    const cast *self = context;
    void *places[LK_MAX_FIELDS];
    if (self->field < 0) return lki_dataset_gather(self->inner, pass, indices, count, destinations);
    const lk_field *field = lk_dataset_field(self->inner, self->field);
    char *scratch = lki_scratch_take((size_t)count * lki_field_nbytes(field));
    if (!scratch) return lki_last_status();
    memcpy(places, destinations, sizeof *places * (size_t)lk_dataset_field_count(self->inner));
    places[self->field] = scratch;
    lk_status status = lki_dataset_gather(self->inner, pass, indices, count, places);
    if (!status) status = convert_samples(self, scratch, destinations[self->field], indices, count);
    lki_scratch_give();
    return status;
}

static bool cast_storage(void *context, int field, lk_storage *out)
{
    const cast *self = context;
    return field != self->field && lk_dataset_storage(self->inner, field, out);
}

static void cast_free(void *context)
{
    lk_dataset_free(((cast *)context)->inner);
    lki_free(context);
}

static const lk_dataset_ops cast_ops = {LK_SIZE(lk_dataset_ops), .length = cast_length, .gather = cast_gather,
                                        .storage = cast_storage, .free = cast_free};

/* `field` -1 changes no dtype. Takes `inner` over. */
static lk_dataset *wrap(lk_dataset *inner, int field, lk_dtype dtype)
{
    lk_field fields[LK_MAX_FIELDS];
    int count = lk_dataset_field_count(inner);
    cast *self = LKI_NEW(cast);
    if (!self) {
        lk_dataset_free(inner);
        return NULL;
    }
    *self = (cast){inner, field, dtype};
    for (int f = 0; f < count; f++) fields[f] = *lk_dataset_field(inner, f);
    if (field >= 0) fields[field].dtype = dtype;
    return lki_dataset_inherit(lk_dataset_create(&cast_ops, fields, count, self), inner);
}

lk_dataset *lki_dataset_cast(lk_dataset *dataset, int field, lk_dtype dtype)
{
    if (lk_dataset_field(dataset, field)->dtype == dtype) return lk_dataset_share(dataset);
    lk_dataset *whole = lki_dataset_cast_whole(dataset, field, dtype);
    if (whole) return lki_dataset_inherit(whole, dataset);
    if (lki_last_status() != LK_ERR_UNSUPPORTED) return NULL;
    return wrap(lk_dataset_share(dataset), field, dtype);
}

/* ---- What a user says ---- */

/* Before anything is converted: a name may be the dataset's own text, which goes with it. */
static lk_status find_fields(const lk_dataset *dataset, const lk_field_dtype *dtypes, int count, int *fields)
{
    if (count > LK_MAX_FIELDS)
        return lki_fail(LK_ERR_INVALID, "dtype: a dataset has at most %d fields, not %d", LK_MAX_FIELDS,
                        count);
    for (int i = 0; i < count; i++) {
        fields[i] = lk_dataset_find_field(dataset, dtypes[i].field);
        if (fields[i] < 0)
            return lki_fail(LK_ERR_NOT_FOUND, "dtype: the dataset has no field \"%s\"",
                            dtypes[i].field ? dtypes[i].field : "");
    }
    return LK_OK;
}

lk_dataset *lk_cast_fields_with(lk_dataset *dataset, const lk_field_dtype *dtypes, int count)
{
    int fields[LK_MAX_FIELDS];
    if (!dataset) return NULL;
    if (find_fields(dataset, dtypes, count, fields)) {
        lk_dataset_free(dataset);
        return NULL;
    }
    for (int i = 0; i < count; i++) {
        if (lk_dtype_nbytes(dtypes[i].dtype)) continue;
        lk_dataset_free(dataset);
        return lki_fail_null(LK_ERR_DTYPE, "field \"%s\": there is no dtype %d", dtypes[i].field,
                             (int)dtypes[i].dtype);
    }
    for (int i = 0; i < count && dataset; i++) {
        lk_dataset *next = lki_dataset_cast(dataset, fields[i], dtypes[i].dtype);
        lk_dataset_free(dataset);
        dataset = next;
    }
    lk_dataset *kept = dataset ? wrap(dataset, -1, LK_F32) : NULL;
    for (int i = 0; i < count && kept; i++) lki_dataset_keep_dtype(kept, fields[i]);
    return kept;
}
