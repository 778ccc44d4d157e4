#include "data/file.h"

#if LOCKSTEP_HAVE_DEFLATE

#include <libdeflate.h>

bool lki_gunzip_whole(void *out, size_t capacity, size_t *out_nbytes, const void *packed,
                      size_t packed_nbytes)
{
    struct libdeflate_decompressor *decompressor = libdeflate_alloc_decompressor();
    if (!decompressor) return false;
    size_t used = 0, made = 0;
    bool whole = libdeflate_gzip_decompress_ex(decompressor, packed, packed_nbytes, out, capacity, &used,
                                               &made) == LIBDEFLATE_SUCCESS &&
                 used == packed_nbytes;
    libdeflate_free_decompressor(decompressor);
    if (whole) *out_nbytes = made;
    return whole;
}

#else

bool lki_gunzip_whole(void *out, size_t capacity, size_t *out_nbytes, const void *packed,
                      size_t packed_nbytes)
{
    (void)out, (void)capacity, (void)out_nbytes, (void)packed, (void)packed_nbytes;
    return false;
}

#endif
