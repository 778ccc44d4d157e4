/* Tensors as arguments, and labels out of a dataset. */
#include "config/components/components.h"

#include "base/memory.h"
#include "base/status.h"
#include "data/dataset.h"
#include "config/build.h"

#include <lockstep/data.h>
#include <lockstep/tensor.h>

#include <string.h>

enum { BLOCK = 256 };

lk_status lki_arg_numbers(lk_args *args, const char *name, lk_tensor **out)
{
    int count = lk_arg_count(args, name);
    *out = lk_tensor_create(LK_F32, LK_SHAPE(count));
    if (!*out) return lki_last_status();
    for (int i = 0; i < count; i++) lk_tensor_set(*out, i, lk_arg_float_at(args, name, i));
    return LK_OK;
}

lk_status lki_arg_tensor_at(lk_args *args, const char *name, int index, lk_tensor **out)
{
    const char *path = lk_arg_path_at(args, name, index);
    const lki_object *object = lki_object_argument(args->object, name, index);
    /* {_var_: data.get_labels} */
    if (object && object->component->kind == LK_KIND_DATASET) return lki_dataset_labels(object->pointer, out);
    *out = path ? lki_read_tensor(path, NULL) : lk_arg_take_at(args, name, index);
    return *out ? LK_OK : lki_last_status();
}

lk_status lki_arg_tensor(lk_args *args, const char *name, lk_tensor **out)
{
    *out = NULL;
    if (!lk_arg_given(args, name)) return LK_OK;
    if (lk_arg_is_list(args, name)) return lki_arg_numbers(args, name, out);
    return lki_arg_tensor_at(args, name, 0, out);
}

/* Room for a block of samples of every field; the field of the targets goes straight into the labels. */
static lk_status allocate_fields(const lk_dataset *dataset, void **rooms)
{
    for (int i = 0; i < lk_dataset_field_count(dataset); i++) {
        const lk_field *field = lk_dataset_field(dataset, i);
        size_t nbytes = lk_dtype_nbytes(field->dtype) * (size_t)lk_shape_count(field->shape);
        rooms[i] = lki_calloc(nbytes * BLOCK, "a block of samples");
        if (!rooms[i]) return LK_ERR_NOMEM;
    }
    return LK_OK;
}

static lk_status read_labels(lk_dataset *dataset, int field, void *const *rooms, lk_tensor *labels)
{
    int64_t length = lk_dataset_length(dataset), indices[BLOCK];
    lk_pass pass = {0};
    lk_shape shape = LK_SHAPE(BLOCK);
    for (int64_t begin = 0; begin < length; begin += BLOCK) {
        int64_t count = length - begin < BLOCK ? length - begin : BLOCK;
        for (int64_t i = 0; i < count; i++) indices[i] = begin + i;
        LKI_TRY(lk_dataset_gather(dataset, &pass, indices, count, rooms));
        lk_tensor *block = lk_tensor_borrow(lk_dataset_field(dataset, field)->dtype, shape, rooms[field]);
        if (!block) return lki_last_status();
        for (int64_t i = 0; i < count; i++) lk_tensor_set(labels, begin + i, lk_tensor_get(block, i));
        lk_tensor_free(block);
    }
    return LK_OK;
}

lk_status lki_dataset_labels(lk_dataset *dataset, lk_tensor **out)
{
    int field = lk_dataset_find_field(dataset, "targets");
    void *rooms[LK_MAX_FIELDS] = {NULL};
    lk_tensor *labels = NULL;
    lk_status status;
    LKI_TRY(lki_dataset_check_length(dataset, "labels"));
    if (field < 0 || lk_shape_count(lk_dataset_field(dataset, field)->shape) != 1)
        return lki_fail(LK_ERR_CONFIG, "the dataset has no targets with one class per sample");
    LKI_TRY_OUT(allocate_fields(dataset, rooms));
    labels = lk_tensor_create(LK_I64, LK_SHAPE(lk_dataset_length(dataset)));
    LKI_TRY_OUT(labels ? LK_OK : lki_last_status());
    LKI_TRY_OUT(read_labels(dataset, field, rooms, labels));
    *out = labels;
    labels = NULL;
out:
    lk_tensor_free(labels);
    for (int i = 0; i < LK_MAX_FIELDS; i++) lki_free(rooms[i]);
    return status;
}

lk_status lki_built_with_dtypes(lk_args *args, lk_dataset *dataset, void **out)
{
    lk_field_dtype dtypes[LK_MAX_FIELDS];
    int given = lk_arg_count(args, "dtype"), count = 0, fields = lk_dataset_field_count(dataset);
    lk_status status = LK_OK;
    if (!dataset || !given) return lki_built(dataset, out);
    if (given > fields) status = lki_fail(LK_ERR_CONFIG, "dtype: %d names for %d fields", given, fields);
    for (int i = 0; i < given && !status; i++) {
        const char *name = lk_arg_string_at(args, "dtype", i);
        if (!strcmp(name, "auto")) continue;
        dtypes[count].field = lk_dataset_field(dataset, i)->name;
        status = lk_dtype_parse(&dtypes[count++].dtype, name);
        if (status) lki_fail_prefix(status, "dtype");
    }
    if (!status) return lki_built(lk_cast_fields_with(dataset, dtypes, count), out);
    lk_dataset_free(dataset);
    return status;
}
