#include "checkpoint/torch_zip.h"

#include "base/status.h"

#include <stdbool.h>
#include <string.h>
#include <zlib.h>

enum { END_NBYTES = 22, MAX_COMMENT = 65535, ENTRY_NBYTES = 46, LOCAL_NBYTES = 30 };

static uint32_t u16_at(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static uint32_t u32_at(const uint8_t *p)
{
    return u16_at(p) | u16_at(p + 2) << 16;
}

lk_status lki_zip_open(lki_zip *zip, const char *path, const void *data, size_t nbytes)
{
    *zip = (lki_zip){.path = path, .data = data, .nbytes = nbytes};
    /* The end record stands last, before a comment of unknown length. */
    for (size_t back = END_NBYTES; back <= nbytes && back <= END_NBYTES + MAX_COMMENT; back++) {
        const uint8_t *end = zip->data + nbytes - back;
        if (u32_at(end) != 0x06054b50) continue;
        zip->directory = u32_at(end + 16);
        zip->directory_end = zip->directory + u32_at(end + 12);
        if (zip->directory_end > nbytes) break;
        return LK_OK;
    }
    return lki_fail(LK_ERR_FORMAT, "%s: not a file of PyTorch's (no zip archive), or cut off", path);
}

/* Whether an entry's full name is `name` below one folder. */
static bool is_named(const uint8_t *full, size_t length, const char *name)
{
    const uint8_t *slash = memchr(full, '/', length);
    size_t below = slash ? length - (size_t)(slash + 1 - full) : 0;
    return slash && below == strlen(name) && !memcmp(slash + 1, name, below);
}

static lk_status read_entry(const lki_zip *zip, const uint8_t *entry, const char *name, const uint8_t **data,
                            size_t *nbytes)
{
    uint32_t crc = u32_at(entry + 16);
    size_t stored = u32_at(entry + 20), offset = u32_at(entry + 42);
    if (u16_at(entry + 10) != 0)
        return lki_fail(LK_ERR_UNSUPPORTED, "%s: the entry %s is packed, which PyTorch does not do",
                        zip->path, name);
    if (offset + LOCAL_NBYTES > zip->nbytes)
        return lki_fail(LK_ERR_FORMAT, "%s: the entry %s is damaged", zip->path, name);
    const uint8_t *local = zip->data + offset;
    size_t begin = offset + LOCAL_NBYTES + u16_at(local + 26) + u16_at(local + 28);
    if (u32_at(local) != 0x04034b50 || begin > zip->nbytes || stored > zip->nbytes - begin)
        return lki_fail(LK_ERR_FORMAT, "%s: the entry %s is damaged", zip->path, name);
    if (crc32_z(crc32_z(0, NULL, 0), zip->data + begin, stored) != crc)
        return lki_fail(LK_ERR_FORMAT, "%s: the checksum of %s is wrong", zip->path, name);
    *data = zip->data + begin;
    *nbytes = stored;
    return LK_OK;
}

lk_status lki_zip_entry(const lki_zip *zip, const char *name, const uint8_t **data, size_t *nbytes)
{
    size_t at = zip->directory;
    while (at + ENTRY_NBYTES <= zip->directory_end) {
        const uint8_t *entry = zip->data + at;
        size_t name_length = u16_at(entry + 28);
        size_t length = ENTRY_NBYTES + name_length + u16_at(entry + 30) + u16_at(entry + 32);
        if (u32_at(entry) != 0x02014b50 || length > zip->directory_end - at) break;
        if (is_named(entry + ENTRY_NBYTES, name_length, name))
            return read_entry(zip, entry, name, data, nbytes);
        at += length;
    }
    return lki_fail(LK_ERR_FORMAT, "%s: not a file of PyTorch's (it has no %s)", zip->path, name);
}
