#include "tensor/npy.h"

#include "base/atomic_file.h"
#include "base/memory.h"
#include "base/status.h"
#include "tensor/buffer.h"
#include "tensor/mapped.h"

#include <ctype.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

/* What the header says. */
typedef struct header {
    char order, kind; /* '<', '>', '|' or '='; 'f', 'i', 'u' or 'b' */
    int item_nbytes;
    bool fortran;
    lk_shape shape;
    size_t data_offset;
} header;

/* Returns what follows "'key':" in the header's dictionary, or NULL. */
static const char *value_of(const char *text, const char *key)
{
    char quoted[40];
    snprintf(quoted, sizeof quoted, "'%s':", key);
    const char *found = strstr(text, quoted);
    if (!found) return NULL;
    found += strlen(quoted);
    while (*found == ' ') found++;
    return found;
}

static lk_status parse_shape(const char *path, const char *text, lk_shape *out)
{
    *out = (lk_shape){0};
    if (!text || *text != '(') return lki_fail(LK_ERR_FORMAT, "%s: malformed header: no shape", path);
    text++;
    for (;;) {
        char *end;
        while (*text == ' ' || *text == ',') text++;
        if (*text == ')') return LK_OK;
        if (!isdigit((unsigned char)*text))
            return lki_fail(LK_ERR_FORMAT, "%s: malformed header: no shape", path);
        if (out->rank == LK_MAX_DIMS)
            return lki_fail(LK_ERR_UNSUPPORTED, "%s: an array has at most %d dimensions here", path,
                            LK_MAX_DIMS);
        out->dim[out->rank++] = strtoll(text, &end, 10);
        text = end;
    }
}

static lk_status parse_text(const char *path, const char *text, header *out)
{
    const char *descr = value_of(text, "descr"), *fortran = value_of(text, "fortran_order");
    if (!descr || !fortran)
        return lki_fail(LK_ERR_FORMAT, "%s: malformed header: no descr or no fortran_order", path);
    if (*descr != '\'' || !strchr("<>|=", descr[1]) || !descr[1] || !strchr("fiub", descr[2]) || !descr[2] ||
        !isdigit((unsigned char)descr[3]))
        return lki_fail(LK_ERR_UNSUPPORTED, "%s: arrays of type %.*s are not supported", path,
                        (int)strcspn(descr, ",}"), descr);
    out->order = descr[1];
    out->kind = descr[2];
    out->item_nbytes = atoi(descr + 3);
    out->fortran = strncmp(fortran, "True", 4) == 0;
    return parse_shape(path, value_of(text, "shape"), &out->shape);
}

static lk_status parse_header(const char *path, const unsigned char *bytes, size_t nbytes, header *out)
{
    if (nbytes < 12 || memcmp(bytes, "\x93NUMPY", 6) != 0)
        return lki_fail(LK_ERR_FORMAT, "%s: no .npy file", path);
    int version = bytes[6];
    size_t start = version == 1 ? 10 : 12, length = bytes[8] | (size_t)bytes[9] << 8;
    if (version != 1) length |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
    if (version < 1 || version > 3)
        return lki_fail(LK_ERR_UNSUPPORTED, "%s: version %d of the .npy format", path, version);
    if (length > nbytes - start) return lki_fail(LK_ERR_FORMAT, "%s: truncated in the header", path);
    LKI_SCOPED char *text = lki_strndup((const char *)bytes + start, length);
    if (!text) return LK_ERR_NOMEM;
    out->data_offset = start + length;
    return parse_text(path, text, out);
}

/* The dtype that holds the array's items; *same where the bytes are the same. */
static lk_status choose_dtype(const char *path, const header *h, lk_dtype *out, bool *same)
{
    static const struct {
        char kind;
        int nbytes;
        lk_dtype dtype;
        bool same;
    } known[] = {
        {'f', 4, LK_F32, true},  {'f', 8, LK_F64, true},  {'f', 2, LK_F16, true},  {'i', 8, LK_I64, true},
        {'i', 4, LK_I32, true},  {'u', 1, LK_U8, true},   {'b', 1, LK_BOOL, true}, {'i', 1, LK_I32, false},
        {'i', 2, LK_I32, false}, {'u', 2, LK_I32, false}, {'u', 4, LK_I64, false}, {'u', 8, LK_I64, false},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (known[i].kind != h->kind || known[i].nbytes != h->item_nbytes) continue;
        *out = known[i].dtype;
        *same = known[i].same;
        return LK_OK;
    }
    return lki_fail(LK_ERR_UNSUPPORTED, "%s: arrays of type %c%d are not supported", path, h->kind,
                    h->item_nbytes);
}

static uint64_t load_item(const header *h, const unsigned char *at)
{
    uint64_t value = 0;
    for (int i = 0; i < h->item_nbytes; i++)
        value = value << 8 | at[h->order == '>' ? i : h->item_nbytes - 1 - i];
    return value;
}

/* Copies item by item, in our byte order and our dtype. */
static lk_status convert(const char *path, const header *h, const unsigned char *from, lk_tensor *to)
{
    int64_t count = lk_tensor_count(to);
    size_t nbytes = lk_dtype_nbytes(to->dtype);
    int unused_bits = 64 - 8 * h->item_nbytes;
    for (int64_t i = 0; i < count; i++) {
        uint64_t value = load_item(h, from + i * h->item_nbytes);
        if (h->kind == 'i') value = (uint64_t)((int64_t)(value << unused_bits) >> unused_bits);
        if (h->kind == 'u' && value > INT64_MAX)
            return lki_fail(LK_ERR_RANGE, "%s: element %lld is %llu, which int64 cannot hold", path,
                            (long long)i, (unsigned long long)value);
        memcpy((char *)to->data + (size_t)i * nbytes, &value, nbytes);
    }
    return LK_OK;
}

/* Fortran order is C order of the reversed shape. */
static lk_tensor *from_fortran(lk_tensor *reversed)
{
    int order[LK_MAX_DIMS];
    for (int i = 0; i < reversed->shape.rank; i++) order[i] = reversed->shape.rank - 1 - i;
    lk_tensor *view = lk_tensor_permute(reversed, order);
    lk_tensor *dense = lk_tensor_clone(view);
    lk_tensor_free(view);
    return dense;
}

static lk_status make_tensor(lk_tensor **out, const char *path, lk_buffer *file, const header *h)
{
    lk_dtype dtype = LK_F32;
    bool same = false;
    lk_shape shape = h->shape;
    LKI_TRY(choose_dtype(path, h, &dtype, &same));
    for (int i = 0; h->fortran && i < shape.rank; i++) shape.dim[i] = h->shape.dim[shape.rank - 1 - i];
    if (lki_shape_check(LK_F64, shape)) return lki_fail_prefix(LK_ERR_FORMAT, "%s", path);
    uint64_t needed = (uint64_t)lk_shape_count(shape) * (uint64_t)h->item_nbytes;
    uint64_t present = lki_buffer_nbytes(file) - h->data_offset;
    if (present < needed)
        return lki_fail(LK_ERR_FORMAT, "%s: truncated: %llu bytes of data, there should be %llu", path,
                        (unsigned long long)present, (unsigned long long)needed);
    const unsigned char *data = (const unsigned char *)lki_buffer_data(file) + h->data_offset;
    bool in_place =
        same && (h->order != '>' || h->item_nbytes == 1) && (uintptr_t)data % (unsigned)h->item_nbytes == 0;
    *out = in_place ? lki_tensor_over(file, h->data_offset, dtype, shape) : lk_tensor_create(dtype, shape);
    if (*out && !in_place && (convert(path, h, data, *out) || lki_mapped_check())) {
        lk_tensor_free(*out);
        *out = NULL;
    }
    if (*out && h->fortran && shape.rank > 1) {
        lk_tensor *reversed = *out;
        *out = from_fortran(reversed);
        lk_tensor_free(reversed);
    }
    return *out ? LK_OK : lki_last_status();
}

lk_tensor *lki_npy_from(const char *path, lk_buffer *bytes)
{
    lk_tensor *tensor = NULL;
    header h = {0};
    if (parse_header(path, lki_buffer_data(bytes), lki_buffer_nbytes(bytes), &h) == LK_OK)
        make_tensor(&tensor, path, bytes, &h);
    return tensor;
}

lk_tensor *lki_npy_read(const char *path)
{
    lk_buffer *file;
    if (lki_map_file(&file, path)) return NULL;
    lk_tensor *tensor = lki_npy_from(path, file);
    lki_buffer_release(file);
    return tensor;
}

size_t lki_npy_format_header(char *text, size_t capacity, const lk_tensor *tensor)
{
    static const char *const types[] = {
        [LK_F32] = "<f4", [LK_F64] = "<f8", [LK_BF16] = "<f4", [LK_F16] = "<f2",
        [LK_I64] = "<i8", [LK_I32] = "<i4", [LK_U8] = "|u1",   [LK_BOOL] = "|b1",
    };
    char shape[200];
    lk_shape_format(shape, sizeof shape, tensor->shape);
    size_t used =
        (size_t)snprintf(text + 10, capacity - 10, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }",
                         types[tensor->dtype], shape);
    size_t total = (10 + used + 1 + 63) / 64 * 64;
    memset(text + 10 + used, ' ', total - 10 - used);
    text[total - 1] = '\n';
    memcpy(text, "\x93NUMPY\x01\x00", 8);
    text[8] = (char)((total - 10) & 255);
    text[9] = (char)((total - 10) >> 8);
    return total;
}

lk_status lki_npy_write(const char *path, const lk_tensor *tensor)
{
    char text[512];
    lki_atomic_file *file;
    lk_tensor *copy = NULL;
    if (tensor->dtype == LK_BF16)
        tensor = copy = lk_tensor_cast(tensor, LK_F32);
    else if (!lk_tensor_is_contiguous(tensor))
        tensor = copy = lk_tensor_clone(tensor);
    if (!tensor) return lki_last_status();
    lk_status status = lki_atomic_file_open(&file, path);
    if (status == LK_OK) {
        lki_atomic_file_write(file, text, lki_npy_format_header(text, sizeof text, tensor));
        lki_atomic_file_write(file, tensor->data, lk_tensor_nbytes(tensor));
        status = lki_atomic_file_commit(file);
    }
    lk_tensor_free(copy);
    return status;
}
