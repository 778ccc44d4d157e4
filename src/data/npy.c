/* NumPy's .npy: a magic string, a version, the length of a header that is a Python dictionary in text, then
 * the bytes. */
#include <lockstep/data.h>

#include "base/memory.h"
#include "base/status.h"
#include "data/file.h"
#include "data/memory_dataset.h"
#include "tensor/buffer.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

typedef struct header {
    lk_dtype dtype;
    lk_shape shape;
    size_t offset; /* of the data */
} header;

static lk_status malformed(const char *path, const char *what)
{
    return lki_fail(LK_ERR_FORMAT, "%s: not a .npy file that can be read: %s", path, what);
}

/* What follows `'key':` in the dictionary, spaces skipped; NULL where the key is missing. */
static const char *value_of(const char *text, const char *key)
{
    const char *found = strstr(text, key);
    if (!found) return NULL;
    found += strlen(key);
    while (*found && (isspace((unsigned char)*found) || *found == ':')) found++;
    return found;
}

static lk_status parse_dtype(lk_dtype *out, const char *path, const char *text)
{
    static const struct {
        const char *descr;
        lk_dtype dtype;
    } known[] = {{"'<f4'", LK_F32}, {"'<f8'", LK_F64}, {"'<f2'", LK_F16}, {"'<i8'", LK_I64},
                 {"'<i4'", LK_I32}, {"'|u1'", LK_U8},  {"'|b1'", LK_BOOL}};
    const char *value = value_of(text, "'descr'");
    for (size_t i = 0; value && i < sizeof known / sizeof *known; i++) {
        if (strncmp(value, known[i].descr, strlen(known[i].descr)) != 0) continue;
        *out = known[i].dtype;
        return LK_OK;
    }
    return lki_fail(LK_ERR_UNSUPPORTED, "%s: dtype %.8s: known are <f4, <f8, <f2, <i8, <i4, |u1, |b1", path,
                    value ? value : "missing");
}

static lk_status parse_shape(lk_shape *out, const char *path, const char *text)
{
    const char *value = value_of(text, "'shape'");
    if (!value || *value != '(') return malformed(path, "no shape");
    value++;
    for (;;) {
        while (*value == ' ' || *value == ',') value++;
        if (*value == ')') return LK_OK;
        char *end;
        long long dim = strtoll(value, &end, 10);
        if (end == value || dim < 0) return malformed(path, "bad shape");
        if (out->rank == LK_MAX_DIMS)
            return lki_fail(LK_ERR_UNSUPPORTED, "%s: more than %d dimensions", path, LK_MAX_DIMS);
        out->dim[out->rank++] = dim;
        value = *end == 'L' ? end + 1 : end;
    }
}

static lk_status parse_header(header *out, const char *path, const unsigned char *bytes, size_t nbytes)
{
    if (nbytes < 10 || memcmp(bytes, "\x93NUMPY", 6) != 0) return malformed(path, "wrong magic at offset 0");
    size_t start = bytes[6] == 1 ? 10 : 12, length = (size_t)bytes[8] | (size_t)bytes[9] << 8;
    if (bytes[6] < 1 || bytes[6] > 3) return malformed(path, "unknown version at offset 6");
    if (nbytes < start) return malformed(path, "truncated header");
    if (bytes[6] > 1) length |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
    if (length > nbytes - start) return malformed(path, "truncated header");
    LKI_SCOPED char *text = lki_strndup((const char *)bytes + start, length);
    if (!text) return LK_ERR_NOMEM;
    LKI_TRY(parse_dtype(&out->dtype, path, text));
    LKI_TRY(parse_shape(&out->shape, path, text));
    const char *order = value_of(text, "'fortran_order'");
    if (!order) return malformed(path, "no fortran_order");
    if (strncmp(order, "True", 4) == 0 && out->shape.rank > 1)
        return lki_fail(LK_ERR_UNSUPPORTED,
                        "%s: the array is in Fortran order: save numpy.ascontiguousarray of it", path);
    out->offset = start + length;
    return LK_OK;
}

static lk_status check_size(const header *head, const char *path, size_t nbytes)
{
    LKI_TRY(lki_shape_check(head->dtype, head->shape));
    size_t expected = head->offset + (size_t)lk_shape_count(head->shape) * lk_dtype_nbytes(head->dtype);
    if (nbytes >= expected) return LK_OK;
    return lki_fail(LK_ERR_FORMAT, "%s: truncated: the header promises %zu bytes, the file has %zu", path,
                    expected, nbytes);
}

lk_tensor *lk_npy_read(const char *path)
{
    lk_buffer *buffer = NULL;
    header head = {0};
    if (lki_file_map(&buffer, path) != LK_OK) return NULL;
    lk_tensor *tensor = NULL;
    if (parse_header(&head, path, lki_buffer_data(buffer), lki_buffer_nbytes(buffer)) == LK_OK &&
        check_size(&head, path, lki_buffer_nbytes(buffer)) == LK_OK)
        tensor = lki_tensor_over(buffer, head.offset, head.dtype, head.shape);
    lki_buffer_release(buffer);
    return tensor;
}

lk_dataset *lk_npy_dataset_create(const lk_named_file *files, int count)
{
    if (count < 1 || count > LK_MAX_FIELDS)
        return lki_fail_null(LK_ERR_INVALID, "a dataset has 1 to %d fields, not %d", LK_MAX_FIELDS, count);
    lki_memory_field fields[LK_MAX_FIELDS];
    for (int i = 0; i < count; i++) {
        lk_tensor *tensor = lk_npy_read(files[i].path);
        if (!tensor) {
            while (--i >= 0) lk_tensor_free(fields[i].tensor);
            return NULL;
        }
        fields[i] = lki_memory_field_of(files[i].name, tensor);
    }
    return lki_memory_dataset_create(fields, count);
}
