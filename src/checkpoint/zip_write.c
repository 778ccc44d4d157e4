#include "checkpoint/zip_write.h"

#include "base/memory.h"
#include "base/status.h"

#include <stdbool.h>
#include <string.h>
#include <zlib.h>

enum { LOCAL_NBYTES = 30, ENTRY_NBYTES = 46, ALIGNMENT = 64, MAX_HEADER = 256 };
enum { UTF8_NAMES = 0x800, FIRST_OF_JANUARY_1980 = 0x21, PADDING = 0x4246, LARGE_FIELD = 1 };

typedef struct bytes {
    uint8_t data[MAX_HEADER];
    size_t count;
} bytes;

static void put(bytes *out, uint64_t value, int nbytes)
{
    for (int i = 0; i < nbytes; i++) out->data[out->count++] = (uint8_t)(value >> (8 * i));
}

static uint64_t capped(uint64_t value)
{
    return value < UINT32_MAX ? value : UINT32_MAX;
}

static lk_status append(lki_zip_writer *writer, const void *data, size_t nbytes)
{
    writer->at += nbytes;
    return nbytes ? lki_atomic_file_write(writer->file, data, nbytes) : LK_OK;
}

lk_status lki_zip_writer_begin(lki_zip_writer *writer, const char *path)
{
    *writer = (lki_zip_writer){0};
    return lki_atomic_file_open(&writer->file, path);
}

/* From the version that is needed to the length of the name, which both headers of an entry have. */
static void put_common(bytes *out, const lki_zip_written *item)
{
    bool is_large = item->nbytes >= UINT32_MAX;
    put(out, is_large ? 45 : 20, 2);
    put(out, UTF8_NAMES, 2);
    put(out, 0, 4); /* stored, at midnight */
    put(out, FIRST_OF_JANUARY_1980, 2);
    put(out, item->crc, 4);
    put(out, capped(item->nbytes), 4);
    put(out, capped(item->nbytes), 4);
    put(out, strlen(item->name), 2);
}

/* The extra fields end where the data begins, at a multiple of 64. */
static lk_status write_local(lki_zip_writer *writer, const lki_zip_written *item)
{
    bytes header = {0}, extra = {0};
    if (item->nbytes >= UINT32_MAX) {
        put(&extra, LARGE_FIELD, 2);
        put(&extra, 16, 2);
        put(&extra, item->nbytes, 8);
        put(&extra, item->nbytes, 8);
    }
    uint64_t end = writer->at + LOCAL_NBYTES + strlen(item->name) + extra.count + 4;
    size_t padding = (size_t)((ALIGNMENT - end % ALIGNMENT) % ALIGNMENT);
    put(&extra, PADDING, 2);
    put(&extra, padding, 2);
    for (size_t i = 0; i < padding; i++) put(&extra, 'Z', 1);
    put(&header, 0x04034b50, 4);
    put_common(&header, item);
    put(&header, extra.count, 2);
    LKI_TRY(append(writer, header.data, header.count));
    LKI_TRY(append(writer, item->name, strlen(item->name)));
    return append(writer, extra.data, extra.count);
}

static lki_zip_written *new_item(lki_zip_writer *writer, const char *name)
{
    if (writer->count == writer->capacity) {
        size_t capacity = writer->capacity ? 2 * writer->capacity : 64;
        lki_zip_written *items = lki_realloc(writer->items, sizeof *items * capacity, "an archive's entries");
        if (!items) return NULL;
        writer->items = items;
        writer->capacity = capacity;
    }
    lki_zip_written *item = &writer->items[writer->count];
    *item = (lki_zip_written){.name = lki_strdup(name), .offset = writer->at};
    if (!item->name) return NULL;
    writer->count++;
    return item;
}

lk_status lki_zip_writer_add(lki_zip_writer *writer, const char *name, const void *head, size_t head_nbytes,
                             const void *data, size_t nbytes)
{
    if (strlen(name) > UINT16_MAX)
        return lki_fail(LK_ERR_UNSUPPORTED, "a name of %zu bytes is too long for a zip archive",
                        strlen(name));
    lki_zip_written *item = new_item(writer, name);
    if (!item) return LK_ERR_NOMEM;
    item->nbytes = head_nbytes + nbytes;
    item->crc = (uint32_t)crc32_z(crc32_z(0, NULL, 0), head, head_nbytes);
    if (nbytes) item->crc = (uint32_t)crc32_z(item->crc, data, nbytes);
    LKI_TRY(write_local(writer, item));
    LKI_TRY(append(writer, head, head_nbytes));
    return append(writer, data, nbytes);
}

static lk_status write_entry(lki_zip_writer *writer, const lki_zip_written *item)
{
    bytes header = {0}, extra = {0};
    if (item->nbytes >= UINT32_MAX) put(&extra, item->nbytes, 8), put(&extra, item->nbytes, 8);
    if (item->offset >= UINT32_MAX) put(&extra, item->offset, 8);
    put(&header, 0x02014b50, 4);
    put(&header, 45, 2);
    put_common(&header, item);
    put(&header, extra.count ? extra.count + 4 : 0, 2);
    put(&header, 0, 2 + 2 + 2); /* no comment, disk 0 */
    put(&header, 0, 4);         /* no attributes */
    put(&header, capped(item->offset), 4);
    LKI_TRY(append(writer, header.data, header.count));
    LKI_TRY(append(writer, item->name, strlen(item->name)));
    if (!extra.count) return LK_OK;
    bytes prefix = {0};
    put(&prefix, LARGE_FIELD, 2);
    put(&prefix, extra.count, 2);
    LKI_TRY(append(writer, prefix.data, prefix.count));
    return append(writer, extra.data, extra.count);
}

/* Files of more than 4 GiB have a second end record, before the usual one. */
static lk_status write_end(lki_zip_writer *writer, uint64_t begin)
{
    bytes end = {0};
    uint64_t here = writer->at, length = here - begin;
    if (begin >= UINT32_MAX || length >= UINT32_MAX || writer->count >= UINT16_MAX) {
        put(&end, 0x06064b50, 4);
        put(&end, 44, 8);
        put(&end, 45, 2);
        put(&end, 45, 2);
        put(&end, 0, 8);
        put(&end, writer->count, 8);
        put(&end, writer->count, 8);
        put(&end, length, 8);
        put(&end, begin, 8);
        put(&end, 0x07064b50, 4);
        put(&end, 0, 4);
        put(&end, here, 8);
        put(&end, 1, 4);
    }
    uint64_t count = writer->count < UINT16_MAX ? writer->count : UINT16_MAX;
    put(&end, 0x06054b50, 4);
    put(&end, 0, 4);
    put(&end, count, 2);
    put(&end, count, 2);
    put(&end, capped(length), 4);
    put(&end, capped(begin), 4);
    put(&end, 0, 2);
    return append(writer, end.data, end.count);
}

static lk_status write_directory(lki_zip_writer *writer)
{
    uint64_t begin = writer->at;
    for (size_t i = 0; i < writer->count; i++) LKI_TRY(write_entry(writer, &writer->items[i]));
    return write_end(writer, begin);
}

lk_status lki_zip_writer_end(lki_zip_writer *writer, lk_status status)
{
    if (status == LK_OK) status = write_directory(writer);
    if (status == LK_OK)
        status = lki_atomic_file_commit(writer->file);
    else
        lki_atomic_file_abort(writer->file);
    for (size_t i = 0; i < writer->count; i++) lki_free(writer->items[i].name);
    lki_free(writer->items);
    *writer = (lki_zip_writer){0};
    return status;
}
