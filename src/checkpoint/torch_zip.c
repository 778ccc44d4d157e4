#include "checkpoint/torch_zip.h"

#include "base/memory.h"
#include "base/status.h"

#include <stdlib.h>
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

/* No archive of tensors needs a name that leads out of its folder; one with such a name is not what it seems.
 */
static bool is_safe_name(const char *name, size_t length)
{
    if (length == 0 || name[0] == '/' || memchr(name, 0, length) || memchr(name, '\\', length)) return false;
    for (size_t begin = 0; begin < length;) {
        const char *slash = memchr(name + begin, '/', length - begin);
        size_t end = slash ? (size_t)(slash - name) : length;
        if (end - begin == 2 && name[begin] == '.' && name[begin + 1] == '.') return false;
        begin = end + 1;
    }
    return true;
}

static lk_status read_item(const lki_zip *zip, const uint8_t *entry, lki_zip_item *item)
{
    const char *name = (const char *)entry + ENTRY_NBYTES;
    size_t length = u16_at(entry + 28);
    uint64_t stored, offset;
    if (!is_safe_name(name, length))
        return lki_fail(LK_ERR_FORMAT, "%s: an entry's name leads out of the archive", zip->path);
    read_extent(entry, &stored, &offset);
    *item = (lki_zip_item){.name = name,
                           .name_length = length,
                           .offset = offset,
                           .nbytes = stored,
                           .crc = u32_at(entry + 16),
                           .is_packed = u16_at(entry + 10) != 0};
    if (zip->nbytes < LOCAL_NBYTES || offset > zip->nbytes - LOCAL_NBYTES)
        return lki_fail(LK_ERR_FORMAT, "%s: the entry %.*s is damaged", zip->path, (int)length, name);
    const uint8_t *local = zip->data + offset;
    item->begin = offset + LOCAL_NBYTES + u16_at(local + 26) + u16_at(local + 28);
    if (u32_at(local) != 0x04034b50 || item->begin > zip->nbytes || stored > zip->nbytes - item->begin)
        return lki_fail(LK_ERR_FORMAT, "%s: the entry %.*s is damaged", zip->path, (int)length, name);
    return LK_OK;
}

static int compare_names(const char *a, size_t a_length, const char *b, size_t b_length)
{
    int order = memcmp(a, b, a_length < b_length ? a_length : b_length);
    return order ? order : (a_length > b_length) - (a_length < b_length);
}

static int by_name(const void *left, const void *right)
{
    const lki_zip_item *a = left, *b = right;
    return compare_names(a->name, a->name_length, b->name, b->name_length);
}

static int by_offset(const void *left, const void *right)
{
    const lki_zip_item *a = left, *b = right;
    return (a->offset > b->offset) - (a->offset < b->offset);
}

static lk_status sort_by_name(lki_zip *zip)
{
    qsort(zip->items, (size_t)zip->count, sizeof *zip->items, by_name);
    for (int i = 1; i < zip->count; i++)
        if (by_name(&zip->items[i - 1], &zip->items[i]) == 0)
            return lki_fail(LK_ERR_FORMAT, "%s: two entries of the archive have one name", zip->path);
    return LK_OK;
}

static lk_status check_items(lki_zip *zip)
{
    qsort(zip->items, (size_t)zip->count, sizeof *zip->items, by_offset);
    for (int i = 1; i < zip->count; i++)
        if (zip->items[i].offset < zip->items[i - 1].begin + zip->items[i - 1].nbytes)
            return lki_fail(LK_ERR_FORMAT, "%s: two entries of the archive overlap", zip->path);
    return sort_by_name(zip);
}

static lk_status list_items(lki_zip *zip)
{
    size_t most = (zip->directory_end - zip->directory) / ENTRY_NBYTES;
    zip->items = LKI_NEW_ARRAY(lki_zip_item, most + 1);
    if (!zip->items) return LK_ERR_NOMEM;
    for (size_t at = zip->directory; at + ENTRY_NBYTES <= zip->directory_end;) {
        const uint8_t *entry = zip->data + at;
        size_t length = ENTRY_NBYTES + u16_at(entry + 28) + u16_at(entry + 30) + u16_at(entry + 32);
        if (u32_at(entry) != 0x02014b50 || length > zip->directory_end - at)
            return lki_fail(LK_ERR_FORMAT, "%s: the archive's list of entries is damaged", zip->path);
        LKI_TRY(read_item(zip, entry, &zip->items[zip->count++]));
        at += length;
    }
    return check_items(zip);
}

lk_status lki_zip_open(lki_zip *zip, const char *path, const void *data, size_t nbytes)
{
    *zip = (lki_zip){.path = path, .data = data, .nbytes = nbytes};
    /* The end record stands last, before a comment of unknown length. */
    for (size_t back = END_NBYTES; back <= nbytes && back <= END_NBYTES + MAX_COMMENT; back++) {
        const uint8_t *end = zip->data + nbytes - back;
        if (u32_at(end) != 0x06054b50) continue;
        if (!find_directory(zip, end)) break;
        lk_status status = list_items(zip);
        if (status) lki_zip_close(zip);
        return status;
    }
    return lki_fail(LK_ERR_FORMAT, "%s: not a file of PyTorch's or NumPy's (no zip archive), or cut off",
                    path);
}

static lki_zip_item below_folder(lki_zip_item item)
{
    const char *slash = memchr(item.name, '/', item.name_length);
    if (!slash) return item;
    item.name_length -= (size_t)(slash + 1 - item.name);
    item.name = slash + 1;
    return item;
}

lk_status lki_zip_enter_folder(lki_zip *zip)
{
    for (int i = 0; i < zip->count; i++) zip->items[i] = below_folder(zip->items[i]);
    return sort_by_name(zip);
}

bool lki_zip_has_in_folder(const lki_zip *zip, const char *name)
{
    for (int i = 0; i < zip->count; i++) {
        lki_zip_item item = below_folder(zip->items[i]);
        if (compare_names(item.name, item.name_length, name, strlen(name)) == 0) return true;
    }
    return false;
}

void lki_zip_close(lki_zip *zip)
{
    lki_free(zip->items);
    *zip = (lki_zip){0};
}

static lki_zip_item *find(const lki_zip *zip, const char *name)
{
    int low = 0, high = zip->count;
    size_t length = strlen(name);
    while (low < high) {
        int middle = low + (high - low) / 2;
        int order = compare_names(name, length, zip->items[middle].name, zip->items[middle].name_length);
        if (order == 0) return &zip->items[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

bool lki_zip_has(const lki_zip *zip, const char *name)
{
    return find(zip, name) != NULL;
}

lk_status lki_zip_entry(lki_zip *zip, const char *name, const uint8_t **data, size_t *nbytes)
{
    lki_zip_item *item = find(zip, name);
    if (!item) return lki_fail(LK_ERR_FORMAT, "%s: the archive has no %s", zip->path, name);
    if (item->is_packed)
        return lki_fail(LK_ERR_UNSUPPORTED, "%s: the entry %s is packed, which PyTorch does not do",
                        zip->path, name);
    if (!item->is_verified &&
        crc32_z(crc32_z(0, NULL, 0), zip->data + item->begin, item->nbytes) != item->crc)
        return lki_fail(LK_ERR_FORMAT, "%s: the checksum of %s is wrong", zip->path, name);
    item->is_verified = true;
    *data = zip->data + item->begin;
    *nbytes = item->nbytes;
    return LK_OK;
}
