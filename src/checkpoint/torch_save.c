/* Files that torch.load reads, with weights_only too: a zip archive with an OrderedDict of tensors. */
#include <lockstep/checkpoint.h>

#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/zip_write.h"

#include <stdio.h>
#include <string.h>

static const char *const storage_types[] = {
    [LK_F32] = "FloatStorage", [LK_F64] = "DoubleStorage", [LK_BF16] = "BFloat16Storage",
    [LK_F16] = "HalfStorage",  [LK_I64] = "LongStorage",   [LK_I32] = "IntStorage",
    [LK_U8] = "ByteStorage",   [LK_BOOL] = "BoolStorage",
};

/* ---- The pickle ---- */

typedef struct pickler {
    uint8_t *bytes;
    size_t count, capacity;
    lk_status status; /* the first failure */
} pickler;

static void put(pickler *p, const void *bytes, size_t count)
{
    if (p->status) return;
    if (p->count + count > p->capacity) {
        size_t capacity = 2 * (p->count + count) + 1024;
        uint8_t *grown = lki_realloc(p->bytes, capacity, "a pickle");
        if (!grown) {
            p->status = LK_ERR_NOMEM;
            return;
        }
        p->bytes = grown;
        p->capacity = capacity;
    }
    memcpy(p->bytes + p->count, bytes, count);
    p->count += count;
}

static void put_code(pickler *p, const char *codes)
{
    put(p, codes, strlen(codes));
}

static void put_little(pickler *p, uint64_t value, int nbytes)
{
    uint8_t bytes[8];
    for (int i = 0; i < nbytes; i++) bytes[i] = (uint8_t)(value >> (8 * i));
    put(p, bytes, (size_t)nbytes);
}

/* The shortest instruction, as Python's own: weights_only knows no other. */
static void put_int(pickler *p, int64_t value)
{
    if (value < 256) {
        put_code(p, "K");
        put_little(p, (uint64_t)value, 1);
    } else if (value < 65536) {
        put_code(p, "M");
        put_little(p, (uint64_t)value, 2);
    } else if (value <= INT32_MAX) {
        put_code(p, "J");
        put_little(p, (uint64_t)value, 4);
    } else {
        put_code(p, "\x8a\x08");
        put_little(p, (uint64_t)value, 8);
    }
}

static void put_text(pickler *p, const char *text)
{
    put_code(p, "X");
    put_little(p, strlen(text), 4);
    put_code(p, text);
}

static void put_ints(pickler *p, const int64_t *values, int count)
{
    put_code(p, "(");
    for (int i = 0; i < count; i++) put_int(p, values[i]);
    put_code(p, "t");
}

/* _rebuild_tensor_v2(("storage", type, key, "cpu", count), 0, size, stride, False, OrderedDict()). */
static void put_tensor(pickler *p, const lk_tensor *tensor, int64_t storage)
{
    char text[64];
    int64_t stride[LK_MAX_DIMS], next = 1;
    for (int i = tensor->shape.rank - 1; i >= 0; i--) {
        stride[i] = next;
        next *= tensor->shape.dim[i] > 1 ? tensor->shape.dim[i] : 1;
    }
    put_code(p, "ctorch._utils\n_rebuild_tensor_v2\n((");
    put_text(p, "storage");
    snprintf(text, sizeof text, "ctorch\n%s\n", storage_types[tensor->dtype]);
    put_code(p, text);
    snprintf(text, sizeof text, "%lld", (long long)storage);
    put_text(p, text);
    put_text(p, "cpu");
    put_int(p, lk_tensor_count(tensor));
    put_code(p, "tQ");
    put_int(p, 0);
    put_ints(p, tensor->shape.dim, tensor->shape.rank);
    put_ints(p, stride, tensor->shape.rank);
    put_code(p, "\x89"
                "ccollections\nOrderedDict\n)RtR");
}

/* The first tensor over the same bytes: tied weights stay tied. */
static int64_t storage_of(const lk_state_dict *dict, int64_t index)
{
    const lk_tensor *tensor = lk_state_dict_tensor(dict, index);
    if (!lk_tensor_is_contiguous(tensor) || lk_tensor_count(tensor) == 0) return index;
    for (int64_t i = 0; i < index; i++) {
        const lk_tensor *other = lk_state_dict_tensor(dict, i);
        if (other->data == tensor->data && other->dtype == tensor->dtype && lk_tensor_is_contiguous(other) &&
            lk_tensor_count(other) == lk_tensor_count(tensor))
            return i;
    }
    return index;
}

static void put_dict(pickler *p, const lk_state_dict *dict)
{
    put_code(p, "\x80\x02"
                "ccollections\nOrderedDict\n)R(");
    for (int64_t i = 0; i < lk_state_dict_count(dict); i++) {
        put_text(p, lk_state_dict_name(dict, i));
        put_tensor(p, lk_state_dict_tensor(dict, i), storage_of(dict, i));
    }
    put_code(p, "u.");
}

/* ---- The archive ---- */

static lk_status add_text(lki_zip_writer *writer, const char *name, const char *text)
{
    return lki_zip_writer_add(writer, name, text, strlen(text), NULL, 0);
}

static lk_status add_storage(lki_zip_writer *writer, int64_t index, const lk_tensor *tensor)
{
    char name[64];
    lk_tensor *dense = NULL;
    snprintf(name, sizeof name, "archive/data/%lld", (long long)index);
    if (!lk_tensor_is_contiguous(tensor) && !(tensor = dense = lk_tensor_clone(tensor)))
        return lki_last_status();
    lk_status status = lki_zip_writer_add(writer, name, NULL, 0, tensor->data, lk_tensor_nbytes(tensor));
    lk_tensor_free(dense);
    return status;
}

static lk_status add_all(lki_zip_writer *writer, const pickler *p, const lk_state_dict *dict)
{
    LKI_TRY(lki_zip_writer_add(writer, "archive/data.pkl", p->bytes, p->count, NULL, 0));
    LKI_TRY(add_text(writer, "archive/byteorder", "little"));
    for (int64_t i = 0; i < lk_state_dict_count(dict); i++)
        if (storage_of(dict, i) == i) LKI_TRY(add_storage(writer, i, lk_state_dict_tensor(dict, i)));
    return add_text(writer, "archive/version", "3\n");
}

static lk_status check_names(const char *path, const lk_state_dict *dict)
{
    for (int64_t i = 0; i < lk_state_dict_count(dict); i++)
        if (!lki_is_utf8(lk_state_dict_name(dict, i)))
            return lki_fail(LK_ERR_INVALID, "%s: tensor %lld: the name is not valid UTF-8", path,
                            (long long)i);
    return LK_OK;
}

lk_status lk_save_pth(const char *path, const lk_state_dict *dict)
{
    pickler p = {0};
    lki_zip_writer writer;
    if (!path || !dict) return lki_fail(LK_ERR_INVALID, "save: NULL was passed");
    LKI_TRY(check_names(path, dict));
    put_dict(&p, dict);
    lk_status status = p.status ? p.status : lki_zip_writer_begin(&writer, path);
    if (status == LK_OK) status = lki_zip_writer_end(&writer, add_all(&writer, &p, dict));
    lki_free(p.bytes);
    return status;
}
