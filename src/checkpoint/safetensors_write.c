#include "checkpoint/safetensors.h"

#include "base/atomic_file.h"
#include "base/crc32c.h"
#include "base/memory.h"
#include "base/status.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const dtype_names[] = {
    [LK_F32] = "F32", [LK_F64] = "F64", [LK_BF16] = "BF16", [LK_F16] = "F16",
    [LK_I64] = "I64", [LK_I32] = "I32", [LK_U8] = "U8",     [LK_BOOL] = "BOOL",
};

const char *lki_safetensors_dtype_name(lk_dtype dtype)
{
    return dtype_names[dtype];
}

bool lki_safetensors_dtype_parse(lk_dtype *out, const char *name)
{
    for (size_t i = 0; i < sizeof dtype_names / sizeof *dtype_names; i++) {
        if (strcmp(dtype_names[i], name) != 0) continue;
        *out = (lk_dtype)i;
        return true;
    }
    return false;
}

/* A tensor and its place in the file. */
typedef struct item {
    const char *name;
    const lk_tensor *tensor; /* contiguous */
    lk_tensor *dense;        /* a copy of ours, where the dict's tensor was not */
    int64_t index;
    uint64_t begin, nbytes;
} item;

/* Wide elements first, so that every tensor is aligned to its own element. */
static int by_alignment(const void *a, const void *b)
{
    const item *x = a, *y = b;
    size_t nx = lk_dtype_nbytes(x->tensor->dtype), ny = lk_dtype_nbytes(y->tensor->dtype);
    if (nx != ny) return nx > ny ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

static int by_index(const void *a, const void *b)
{
    return ((const item *)a)->index < ((const item *)b)->index ? -1 : 1;
}

static lk_status list_items(item *items, const lk_state_dict *dict)
{
    int64_t count = lk_state_dict_count(dict);
    for (int64_t i = 0; i < count; i++) {
        const lk_tensor *tensor = lk_state_dict_tensor(dict, i);
        items[i] = (item){.name = lk_state_dict_name(dict, i), .tensor = tensor, .index = i};
        if (!lk_tensor_is_contiguous(tensor)) {
            items[i].tensor = items[i].dense = lk_tensor_clone(tensor);
            if (!items[i].dense) return lki_last_status();
        }
        items[i].nbytes = lk_tensor_nbytes(items[i].tensor);
    }
    qsort(items, (size_t)count, sizeof *items, by_alignment);
    uint64_t at = 0;
    for (int64_t i = 0; i < count; at += items[i++].nbytes) items[i].begin = at;
    return LK_OK;
}

static json_t *describe(const item *item)
{
    json_t *shape = json_array();
    for (int i = 0; i < item->tensor->shape.rank; i++)
        json_array_append_new(shape, json_integer(item->tensor->shape.dim[i]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtype_names[item->tensor->dtype], "shape", shape,
                     "data_offsets", (json_int_t)item->begin, (json_int_t)(item->begin + item->nbytes));
}

static lk_status put_metadata(json_t *metadata, const char *kind, const char *name, const char *value)
{
    LKI_SCOPED char *key = lki_format("%s%s", kind, name);
    if (!key) return LK_ERR_NOMEM;
    json_t *text = json_string(value);
    if (!text || json_object_set_new(metadata, key, text) != 0)
        return lki_fail(LK_ERR_INVALID, "\"%s\": a name or string is not valid UTF-8", name);
    return LK_OK;
}

static lk_status fill_header(json_t *header, const item *items, const lk_state_dict *dict)
{
    json_t *metadata = json_object();
    if (json_object_set_new(header, "__metadata__", metadata) != 0)
        return lki_fail(LK_ERR_NOMEM, "out of memory");
    LKI_TRY(put_metadata(metadata, "", "format", "pt"));
    for (int64_t i = 0; i < lk_state_dict_string_count(dict); i++) {
        const char *name = lk_state_dict_string_name(dict, i);
        LKI_TRY(put_metadata(metadata, LKI_SAFETENSORS_STRING, name, lk_state_dict_get_string(dict, name)));
    }
    for (int64_t i = 0; i < lk_state_dict_count(dict); i++) {
        char crc[16];
        snprintf(crc, sizeof crc, "%08" PRIx32, lki_crc32c(0, items[i].tensor->data, items[i].nbytes));
        LKI_TRY(put_metadata(metadata, LKI_SAFETENSORS_CRC, items[i].name, crc));
        if (json_object_set_new(header, items[i].name, describe(&items[i])) != 0)
            return lki_fail(LK_ERR_INVALID, "tensor \"%s\": the name is not valid UTF-8", items[i].name);
    }
    return LK_OK;
}

/* The header as text, padded with spaces so that the bytes behind it start at a multiple of 8. */
static lk_status make_header(char **out, size_t *nbytes, item *items, const lk_state_dict *dict)
{
    int64_t count = lk_state_dict_count(dict);
    json_t *header = json_object();
    char *text = NULL;
    lk_status status = LK_OK;
    qsort(items, (size_t)count, sizeof *items, by_index); /* names keep the dict's order */
    LKI_TRY_OUT(fill_header(header, items, dict));
    qsort(items, (size_t)count, sizeof *items, by_alignment);
    text = json_dumps(header, JSON_COMPACT);
    size_t length = text ? strlen(text) : 0;
    *nbytes = (length + 7) / 8 * 8;
    *out = text ? lki_calloc(*nbytes + 1, "a checkpoint's header") : NULL;
    if (!*out) {
        status = lki_fail(LK_ERR_NOMEM, "out of memory for the header of a checkpoint");
        goto out;
    }
    memset(*out, ' ', *nbytes);
    memcpy(*out, text, length);
    if (*nbytes > LKI_SAFETENSORS_MAX_HEADER)
        status =
            lki_fail(LK_ERR_INVALID, "the header would have %zu bytes, more than the format allows", *nbytes);
out:
    free(text);
    json_decref(header);
    return status;
}

static lk_status write_items(const char *path, const char *header, size_t header_nbytes, const item *items,
                             int64_t count)
{
    lki_atomic_file *file;
    unsigned char length[8];
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)header_nbytes >> (8 * i));
    LKI_TRY(lki_atomic_file_open(&file, path));
    lk_status status = lki_atomic_file_write(file, length, sizeof length);
    if (status == LK_OK) status = lki_atomic_file_write(file, header, header_nbytes);
    for (int64_t i = 0; i < count && status == LK_OK; i++)
        status = lki_atomic_file_write(file, items[i].tensor->data, items[i].nbytes);
    return lki_atomic_file_commit(file); /* says what a write said */
}

lk_status lk_save_safetensors(const char *path, const lk_state_dict *dict)
{
    if (!path || !dict) return lki_fail(LK_ERR_INVALID, "save: NULL was passed");
    int64_t count = lk_state_dict_count(dict);
    char *header = NULL;
    size_t header_nbytes = 0;
    item *items = LKI_NEW_ARRAY(item, count);
    lk_status status = items ? LK_OK : LK_ERR_NOMEM;
    if (status == LK_OK) status = list_items(items, dict);
    if (status == LK_OK) status = make_header(&header, &header_nbytes, items, dict);
    if (status != LK_OK)
        lki_fail_prefix(status, "%s", path);
    else
        status = write_items(path, header, header_nbytes, items, count);
    for (int64_t i = 0; items && i < count; i++) lk_tensor_free(items[i].dense);
    lki_free(items);
    lki_free(header);
    return status;
}
