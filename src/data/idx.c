#include "data/idx.h"

#include "base/status.h"
#include "data/file.h"
#include "tensor/buffer.h"

enum { TYPE_U8 = 0x08 };

static uint32_t big_endian_at(const unsigned char *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static lk_status parse(lk_shape *shape, const char *path, const lk_buffer *buffer, int rank)
{
    const unsigned char *bytes = lki_buffer_data(buffer);
    size_t nbytes = lki_buffer_nbytes(buffer), header = 4 + 4 * (size_t)rank;
    uint32_t expected = TYPE_U8 << 8 | (uint32_t)rank;
    if (nbytes < 4) return lki_fail(LK_ERR_FORMAT, "%s: truncated: %zu bytes are no IDX file", path, nbytes);
    if (big_endian_at(bytes) != expected)
        return lki_fail(LK_ERR_FORMAT, "%s: offset 0: magic number %u, expected %u (%s)", path,
                        big_endian_at(bytes), expected, rank == 1 ? "labels" : "images");
    if (nbytes < header)
        return lki_fail(LK_ERR_FORMAT, "%s: truncated: the header ends at offset %zu, the file at %zu", path,
                        header, nbytes);
    shape->rank = rank;
    size_t count = 1, largest = 1; /* a dimension of 0 does not make the others any smaller */
    for (int i = 0; i < rank; i++) {
        size_t size = big_endian_at(bytes + 4 + 4 * i);
        shape->dim[i] = (int64_t)size;
        if (__builtin_mul_overflow(largest, size ? size : 1, &largest) || largest > SIZE_MAX / 2)
            return lki_fail(LK_ERR_FORMAT, "%s: offset %d: the dimensions are too large", path, 4 + 4 * i);
        count *= size;
    }
    if (nbytes != header + count)
        return lki_fail(LK_ERR_FORMAT, "%s: %s: the header promises %zu bytes, the file has %zu", path,
                        nbytes < header + count ? "truncated" : "too long", header + count, nbytes);
    return LK_OK;
}

lk_status lki_idx_read(lk_tensor **out, const char *path, int rank)
{
    *out = NULL;
    lk_buffer *buffer = NULL;
    lk_shape shape = {0};
    LKI_TRY(lki_file_read(&buffer, path));
    lk_status status = parse(&shape, path, buffer, rank);
    if (status == LK_OK) {
        *out = lki_tensor_over(buffer, 4 + 4 * (size_t)rank, LK_U8, shape);
        if (!*out) status = LK_ERR_NOMEM;
    }
    lki_buffer_release(buffer);
    return status;
}
