/* Samples of different lengths as a padded batch. */
#include "data/transform.h"

#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "tensor/buffer.h"

#include <string.h>

enum { DEFAULT_MULTIPLE = 8 };

/* The field of a key's lengths; a key without one has those of the first key. */
static const char *lengths_of(const lk_transform *self, const lk_dataset *dataset, int key)
{
    return lk_dataset_find_field(dataset, self->lengths[key]) >= 0 ? self->lengths[key] : self->lengths[0];
}

static lk_status check_key(const lk_transform *self, const lk_dataset *dataset, int key)
{
    const char *name = self->options.collate.keys[key], *lengths = lengths_of(self, dataset, key);
    const lk_field *field = lk_dataset_field(dataset, lk_dataset_find_field(dataset, name));
    const lk_field *counts = lk_dataset_field(dataset, lk_dataset_find_field(dataset, lengths));
    if (!field) return lki_fail(LK_ERR_NOT_FOUND, "%s: the dataset has no field \"%s\"", self->kind, name);
    if (field->shape.rank < 1)
        return lki_fail(LK_ERR_SHAPE, "%s: field \"%s\" is a single number and has no length", self->kind,
                        name);
    if (!counts)
        return lki_fail(LK_ERR_NOT_FOUND,
                        "%s: the dataset has no field \"%s\", which says how long samples are", self->kind,
                        lengths);
    if (counts->dtype != LK_I64 || lk_shape_count(counts->shape) != 1)
        return lki_fail(LK_ERR_DTYPE, "%s: field \"%s\": expected one i64 per sample", self->kind, lengths);
    if (lk_dataset_find_field(dataset, self->masks[key]) >= 0)
        return lki_fail(LK_ERR_INVALID, "%s: the dataset has a field \"%s\" already", self->kind,
                        self->masks[key]);
    return LK_OK;
}

static lk_status check_batch(const lk_transform *self, const lk_dataset *dataset)
{
    int fields = lk_dataset_field_count(dataset);
    for (int k = 0; k < LK_MAX_FIELDS && self->options.collate.keys[k]; k++) {
        LKI_TRY(check_key(self, dataset, k));
        if (lk_dataset_find_field(dataset, self->lengths[k]) >= 0) fields++;
    }
    if (fields <= LK_MAX_FIELDS) return LK_OK;
    return lki_fail(LK_ERR_INVALID, "%s: with its masks a batch has %d fields, at most %d are possible",
                    self->kind, fields, LK_MAX_FIELDS);
}

static int added_fields(const lk_transform *self, const lk_dataset *dataset, lk_field *out, int capacity)
{
    int count = 0;
    for (int k = 0; k < LK_MAX_FIELDS && self->options.collate.keys[k] && count < capacity; k++) {
        if (lk_dataset_find_field(dataset, self->lengths[k]) < 0) continue;
        const lk_field *field =
            lk_dataset_field(dataset, lk_dataset_find_field(dataset, self->options.collate.keys[k]));
        if (field) out[count++] = (lk_field){self->masks[k], LK_BOOL, LK_SHAPE(field->shape.dim[0])};
    }
    return count;
}

/* ---- One batch ---- */

static lk_status longest_of(const lk_transform *self, const lk_tensor *lengths, const char *key, int64_t room,
                            int64_t *out)
{
    const int64_t *values = lengths->data;
    int64_t multiple = self->options.collate.multiple, longest = 1;
    for (int64_t i = 0; i < lk_tensor_count(lengths); i++) {
        if (values[i] < 0 || values[i] > room)
            return lki_fail(LK_ERR_RANGE, "%s: a sample of \"%s\" has the length %lld, expected 0 to %lld",
                            self->kind, key, (long long)values[i], (long long)room);
        if (values[i] > longest) longest = values[i];
    }
    if (multiple > room) multiple = room > 0 ? room : 1; /* what is longer is cut to the room anyway */
    longest = (longest + multiple - 1) / multiple * multiple;
    *out = longest < room ? longest : room;
    return LK_OK;
}

static void write_value(void *to, lk_dtype dtype, size_t count, double value)
{
    lk_tensor *tensor = &(lk_tensor){.dtype = dtype, .shape = LK_SHAPE((int64_t)count), .data = to};
    lki_tensor_set_contiguous(tensor);
    for (size_t i = 0; i < count; i++) lk_tensor_set(tensor, (int64_t)i, value);
}

/* (count, room, ...) becomes (count, longest, ...) in place: rows only move to the front. */
static void pad(lk_tensor *tensor, const int64_t *lengths, int64_t longest, double value)
{
    int64_t count = tensor->shape.dim[0], room = tensor->shape.dim[1], width = 1;
    for (int i = 2; i < tensor->shape.rank; i++) width *= tensor->shape.dim[i];
    size_t step = (size_t)width * lk_dtype_nbytes(tensor->dtype);
    char *data = tensor->data;
    for (int64_t i = 0; i < count; i++) {
        char *row = data + (size_t)(i * longest) * step;
        memmove(row, data + (size_t)(i * room) * step, (size_t)longest * step);
        int64_t rest = longest - lengths[i];
        if (rest > 0)
            write_value(row + (size_t)lengths[i] * step, tensor->dtype, (size_t)(rest * width), value);
    }
    tensor->shape.dim[1] = longest;
    lki_tensor_set_contiguous(tensor);
}

static void write_mask(lk_tensor *mask, const int64_t *lengths, int64_t longest)
{
    bool *values = mask->data;
    mask->shape.dim[1] = longest;
    lki_tensor_set_contiguous(mask);
    for (int64_t i = 0; i < mask->shape.dim[0]; i++)
        for (int64_t t = 0; t < longest; t++) values[i * longest + t] = t >= lengths[i];
}

static lk_status apply_batch(const lk_transform *self, lk_batch *batch, lki_keyed *random)
{
    const lk_pad_collate_options *options = &self->options.collate;
    (void)random;
    for (int k = 0; k < LK_MAX_FIELDS && options->keys[k]; k++) {
        lk_tensor *tensor = lk_batch_get(batch, options->keys[k]),
                  *mask = lk_batch_get(batch, self->masks[k]);
        const lk_tensor *lengths = lk_batch_get(batch, self->lengths[k]);
        int64_t longest = 0;
        if (!lengths) lengths = lk_batch_get(batch, self->lengths[0]);
        LKI_TRY(longest_of(self, lengths, options->keys[k], tensor->shape.dim[1], &longest));
        pad(tensor, lengths->data, longest, options->pad_values[k]);
        if (mask) write_mask(mask, lengths->data, longest);
    }
    return LK_OK;
}

/* ---- Making one ---- */

static lk_status name_keys(lk_transform *self, const lk_pad_collate_options *options)
{
    for (int k = 0; k < LK_MAX_FIELDS && options->keys[k]; k++) {
        self->options.collate.keys[k] = lki_strdup(options->keys[k]);
        self->lengths[k] = lki_format("%s_lengths", options->keys[k]);
        self->masks[k] = lki_format("%s_mask", options->keys[k]);
        if (!self->options.collate.keys[k] || !self->lengths[k] || !self->masks[k]) return LK_ERR_NOMEM;
    }
    return LK_OK;
}

lk_transform *lk_pad_collate_with(const lk_pad_collate_options *given)
{
    LKI_TAKE(lk_pad_collate_options, options, given, NULL);
    if (options.multiple < 0)
        return lki_fail_null(LK_ERR_INVALID, "pad_collate: multiple: expected at least 1, found %lld",
                             (long long)options.multiple);
    lk_transform *self = lki_transform_create("pad_collate", NULL, NULL);
    if (!self) return NULL;
    if (!options.keys[0]) options.keys[0] = "features";
    self->check_batch = check_batch;
    self->apply_batch = apply_batch;
    self->added_fields = added_fields;
    self->reshapes = true;
    self->options.collate.multiple = options.multiple ? options.multiple : DEFAULT_MULTIPLE;
    memcpy(self->options.collate.pad_values, options.pad_values, sizeof options.pad_values);
    if (name_keys(self, &options) == LK_OK) return self;
    lk_transform_free(self);
    return NULL;
}
