#include "checkpoint/torch_zip.h"

#include "base/status.h"

#include <stdbool.h>
#include <string.h>
#include <zlib.h>

enum { END_NBYTES = 22, MAX_COMMENT = 65535, ENTRY_NBYTES = 46, LOCAL_NBYTES = 30 };

/* Files of more than 4 GiB (zip64) have a second end record, whose place stands before the usual one, and a
 * field of their own in an entry. Both hold what a 32-bit number of all ones says it cannot. */
enum { LOCATOR_NBYTES = 20, LARGE_END_NBYTES = 56, LARGE_FIELD = 1 };

static uint32_t u16_at(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static uint32_t u32_at(const uint8_t *p)
{
    return u16_at(p) | u16_at(p + 2) << 16;
}

static uint64_t u64_at(const uint8_t *p)
{
    return u32_at(p) | (uint64_t)u32_at(p + 4) << 32;
}

/* The end record of a large file; NULL where there is none. */
static const uint8_t *find_large_end(const lki_zip *zip, const uint8_t *end)
{
    const uint8_t *locator = end - LOCATOR_NBYTES;
    if ((size_t)(end - zip->data) < LOCATOR_NBYTES || u32_at(locator) != 0x07064b50) return NULL;
    uint64_t at = u64_at(locator + 8);
    if (zip->nbytes < LARGE_END_NBYTES || at > zip->nbytes - LARGE_END_NBYTES) return NULL;
    return u32_at(zip->data + at) == 0x06064b50 ? zip->data + at : NULL;
}

static bool find_directory(lki_zip *zip, const uint8_t *end)
{
    uint64_t begin = u32_at(end + 16), length = u32_at(end + 12);
    if (begin == UINT32_MAX || length == UINT32_MAX) {
        const uint8_t *large_end = find_large_end(zip, end);
        if (!large_end) return false;
        begin = u64_at(large_end + 48);
        length = u64_at(large_end + 40);
    }
    if (begin > zip->nbytes || length > zip->nbytes - begin) return false;
    zip->directory = begin;
    zip->directory_end = begin + length;
    return true;
}

lk_status lki_zip_open(lki_zip *zip, const char *path, const void *data, size_t nbytes)
{
    *zip = (lki_zip){.path = path, .data = data, .nbytes = nbytes};
    /* The end record stands last, before a comment of unknown length. */
    for (size_t back = END_NBYTES; back <= nbytes && back <= END_NBYTES + MAX_COMMENT; back++) {
        const uint8_t *end = zip->data + nbytes - back;
        if (u32_at(end) != 0x06054b50) continue;
        if (!find_directory(zip, end)) break;
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

/* Replaces the numbers that are all ones, in the order in which the field holds them. */
static void read_large_field(const uint8_t *field, size_t nbytes, uint64_t *numbers[], int count)
{
    for (int i = 0; i < count; i++) {
        if (*numbers[i] != UINT32_MAX) continue;
        if (nbytes < 8) return;
        *numbers[i] = u64_at(field);
        field += 8;
        nbytes -= 8;
    }
}

/* An entry's length and the place of its own header. */
static void read_extent(const uint8_t *entry, uint64_t *stored, uint64_t *offset)
{
    uint64_t unpacked = u32_at(entry + 24);
    const uint8_t *field = entry + ENTRY_NBYTES + u16_at(entry + 28), *end = field + u16_at(entry + 30);
    *stored = u32_at(entry + 20);
    *offset = u32_at(entry + 42);
    while (end - field >= 4 && u16_at(field + 2) <= (size_t)(end - field - 4)) {
        uint32_t nbytes = u16_at(field + 2);
        if (u16_at(field) == LARGE_FIELD)
            read_large_field(field + 4, nbytes, (uint64_t *[]){&unpacked, stored, offset}, 3);
        field += 4 + nbytes;
    }
}

static lk_status read_entry(const lki_zip *zip, const uint8_t *entry, const char *name, const uint8_t **data,
                            size_t *nbytes)
{
    uint32_t crc = u32_at(entry + 16);
    uint64_t stored, offset;
    read_extent(entry, &stored, &offset);
    if (u16_at(entry + 10) != 0)
        return lki_fail(LK_ERR_UNSUPPORTED, "%s: the entry %s is packed, which PyTorch does not do",
                        zip->path, name);
    if (zip->nbytes < LOCAL_NBYTES || offset > zip->nbytes - LOCAL_NBYTES)
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
