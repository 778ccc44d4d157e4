#include "checkpoint/safetensors.h"

#include "base/crc32c.h"
#include "base/memory.h"
#include "base/number_text.h"
#include "base/status.h"
#include "tensor/buffer.h"
#include "tensor/mapped.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct reader {
    const char *path;
    lk_buffer *file;
    const char *header;
    uint64_t header_nbytes, data_nbytes;
} reader;

/* Where a tensor lies, relative to the end of the header. */
typedef struct extent {
    const char *name;
    uint64_t begin, end;
} extent;

/* The one place for errors: every sentence starts with the file. */
#define BAD(r, ...) fail_at((r)->path, __VA_ARGS__)
static lk_status fail_at(const char *path, const char *format, ...) LKI_PRINTF(2, 3);

static lk_status fail_at(const char *path, const char *format, ...)
{
    char text[800];
    va_list arguments;
    va_start(arguments, format);
    lki_vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return lki_fail(LK_ERR_FORMAT, "%s: %s", path, text);
}

static lk_status open_file(reader *r)
{
    LKI_TRY(lki_load_file(&r->file, r->path));
    size_t nbytes = lki_buffer_nbytes(r->file);
    const unsigned char *bytes = lki_buffer_data(r->file);
    if (nbytes < 8) return BAD(r, "no safetensors file: %zu bytes are too few", nbytes);
    for (int i = 7; i >= 0; i--) r->header_nbytes = r->header_nbytes << 8 | bytes[i];
    if (r->header_nbytes > LKI_SAFETENSORS_MAX_HEADER)
        return BAD(r, "no safetensors file: a header of %" PRIu64 " bytes is too long", r->header_nbytes);
    if (r->header_nbytes > nbytes - 8)
        return BAD(r, "truncated: the header should have %" PRIu64 " bytes, there are %zu", r->header_nbytes,
                   nbytes - 8);
    r->header = (const char *)bytes + 8;
    r->data_nbytes = nbytes - 8 - r->header_nbytes;
    if (r->header_nbytes == 0 || r->header[0] != '{')
        return BAD(r, "no safetensors file: the header does not start with {");
    return LK_OK;
}

static lk_status parse_header(reader *r, json_t **out)
{
    json_error_t error;
    *out = json_loadb(r->header, r->header_nbytes, JSON_REJECT_DUPLICATES, &error);
    if (!*out) return BAD(r, "malformed header: %s", error.text);
    return LK_OK;
}

static lk_status read_dtype(const reader *r, const char *name, const json_t *entry, lk_dtype *out)
{
    const char *text = json_string_value(json_object_get(entry, "dtype"));
    if (!text) return BAD(r, "tensor \"%s\": no dtype", name);
    if (lki_safetensors_dtype_parse(out, text)) return LK_OK;
    return BAD(r,
               "tensor \"%s\": dtype %s is not supported; known are F32, F64, BF16, F16, I64, I32, U8, BOOL",
               name, text);
}

static lk_status read_shape(const reader *r, const char *name, const json_t *entry, lk_shape *out)
{
    const json_t *dims = json_object_get(entry, "shape");
    if (!json_is_array(dims)) return BAD(r, "tensor \"%s\": no shape", name);
    if (json_array_size(dims) > LK_MAX_DIMS)
        return BAD(r, "tensor \"%s\": %zu dimensions, at most %d are supported", name, json_array_size(dims),
                   LK_MAX_DIMS);
    *out = (lk_shape){.rank = (int)json_array_size(dims)};
    for (int i = 0; i < out->rank; i++) {
        const json_t *dim = json_array_get(dims, (size_t)i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return BAD(r, "tensor \"%s\": dimension %d of the shape is no count", name, i);
        out->dim[i] = json_integer_value(dim);
    }
    return LK_OK;
}

static lk_status read_extent(const reader *r, const char *name, const json_t *entry, extent *out)
{
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
        json_integer_value(begin) < 0 || json_integer_value(begin) > json_integer_value(end))
        return BAD(r, "tensor \"%s\": data_offsets are not [begin, end]", name);
    *out = (extent){name, (uint64_t)json_integer_value(begin), (uint64_t)json_integer_value(end)};
    if (out->end > r->data_nbytes)
        return BAD(r,
                   "tensor \"%s\": ends at byte %" PRIu64 " of %" PRIu64 ": the file is truncated or damaged",
                   name, out->end, r->data_nbytes);
    return LK_OK;
}

/* A view of the file, or a copy where the element would not be aligned. */
static lk_tensor *make_tensor(const reader *r, lk_dtype dtype, lk_shape shape, uint64_t begin)
{
    size_t offset = 8 + (size_t)r->header_nbytes + (size_t)begin;
    char *data = (char *)lki_buffer_data(r->file) + offset;
    if (lk_shape_count(shape) > 0 && (uintptr_t)data % lk_dtype_nbytes(dtype))
        return lk_tensor_from(dtype, shape, data);
    return lki_tensor_over(r->file, offset, dtype, shape);
}

static lk_status read_tensor(const reader *r, const char *name, const json_t *entry, extent *place,
                             lk_state_dict *dict)
{
    lk_dtype dtype;
    lk_shape shape;
    if (!json_is_object(entry)) return BAD(r, "tensor \"%s\": the header has no description of it", name);
    LKI_TRY(read_dtype(r, name, entry, &dtype));
    LKI_TRY(read_shape(r, name, entry, &shape));
    LKI_TRY(read_extent(r, name, entry, place));
    if (lki_shape_check(dtype, shape))
        return BAD(r, "tensor \"%s\": the shape is larger than any memory", name);
    uint64_t expected = (uint64_t)lk_shape_count(shape) * lk_dtype_nbytes(dtype);
    if (place->end - place->begin != expected) {
        char text[160];
        return BAD(r, "tensor \"%s\": %s %s needs %" PRIu64 " bytes, the file has %" PRIu64, name,
                   lki_safetensors_dtype_name(dtype), lk_shape_format(text, sizeof text, shape), expected,
                   place->end - place->begin);
    }
    return lk_state_dict_put(dict, name, make_tensor(r, dtype, shape, place->begin));
}

static int by_begin(const void *a, const void *b)
{
    const extent *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

/* The tensors must cover the bytes exactly. */
static lk_status check_cover(const reader *r, extent *places, size_t count)
{
    uint64_t at = 0;
    qsort(places, count, sizeof *places, by_begin);
    for (size_t i = 0; i < count; i++) {
        if (places[i].begin < at)
            return BAD(r, "tensor \"%s\" overlaps tensor \"%s\"", places[i].name,
                       i ? places[i - 1].name : places[i].name);
        if (places[i].begin > at)
            return BAD(r, "%" PRIu64 " bytes before tensor \"%s\" belong to no tensor", places[i].begin - at,
                       places[i].name);
        at = places[i].end;
    }
    if (at != r->data_nbytes)
        return BAD(r, "%" PRIu64 " bytes at the end belong to no tensor", r->data_nbytes - at);
    return LK_OK;
}

static lk_status check_crc(const reader *r, const lk_state_dict *dict, const char *name, const char *expected)
{
    char actual[16];
    if (!lk_state_dict_has(dict, name))
        return BAD(r, "there is a checksum for tensor \"%s\", which is missing", name);
    const lk_tensor *tensor = lk_state_dict_get(dict, name);
    if (!tensor) return BAD(r, "there is a checksum for tensor \"%s\", which is missing", name);
    snprintf(actual, sizeof actual, "%08" PRIx32, lki_crc32c(0, tensor->data, lk_tensor_nbytes(tensor)));
    if (strcmp(actual, expected) == 0) return LK_OK;
    return BAD(r, "tensor \"%s\": damaged: its checksum is %s, expected %.16s", name, actual, expected);
}

static lk_status read_metadata(const reader *r, json_t *metadata, lk_state_dict *dict)
{
    const char *key;
    json_t *value;
    size_t crc = strlen(LKI_SAFETENSORS_CRC), string = strlen(LKI_SAFETENSORS_STRING);
    if (!metadata) return LK_OK;
    if (!json_is_object(metadata)) return BAD(r, "__metadata__ is no object");
    json_object_foreach(metadata, key, value)
    {
        const char *text = json_string_value(value);
        if (!text) return BAD(r, "__metadata__: \"%s\" is no string", key);
        if (strncmp(key, LKI_SAFETENSORS_CRC, crc) == 0)
            LKI_TRY(check_crc(r, dict, key + crc, text));
        else
            LKI_TRY(lk_state_dict_put_string(
                dict, strncmp(key, LKI_SAFETENSORS_STRING, string) == 0 ? key + string : key, text));
    }
    return LK_OK;
}

static lk_status read_all(reader *r, json_t *header, lk_state_dict *dict)
{
    const char *name;
    json_t *entry;
    size_t count = 0;
    LKI_SCOPED extent *places = LKI_NEW_ARRAY(extent, json_object_size(header) + 1);
    if (!places) return LK_ERR_NOMEM;
    json_object_foreach(header, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0) continue;
        LKI_TRY(read_tensor(r, name, entry, &places[count], dict));
        count++;
    }
    LKI_TRY(check_cover(r, places, count));
    return read_metadata(r, json_object_get(header, "__metadata__"), dict);
}

lk_state_dict *lk_load_safetensors(const char *path)
{
    reader r = {.path = path};
    json_t *header = NULL;
    if (!path) return lki_fail_null(LK_ERR_INVALID, "load: NULL was passed");
    lk_state_dict *dict = lk_state_dict_create();
    lk_status status = dict ? LK_OK : LK_ERR_NOMEM;
    if (status == LK_OK) status = open_file(&r);
    if (status == LK_OK) status = parse_header(&r, &header);
    if (status == LK_OK) status = read_all(&r, header, dict);
    json_decref(header);
    lki_buffer_release(r.file);
    if (status == LK_OK) return dict;
    lk_state_dict_free(dict);
    return NULL;
}
