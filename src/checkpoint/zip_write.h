/* Writes a zip archive of stored entries, atomically.
 *
 * The same entries give the same bytes: no time of day is kept. The data of every entry begins at a multiple
 * of 64, as PyTorch wants it. One thread. */
#ifndef LKI_CHECKPOINT_ZIP_WRITE_H
#define LKI_CHECKPOINT_ZIP_WRITE_H

#include "base/atomic_file.h"

#include <lockstep/status.h>

#include <stddef.h>
#include <stdint.h>

typedef struct lki_zip_written {
    char *name;
    uint32_t crc;
    uint64_t nbytes, offset;
} lki_zip_written;

typedef struct lki_zip_writer {
    lki_atomic_file *file;
    uint64_t at;
    lki_zip_written *items;
    size_t count, capacity;
} lki_zip_writer;

/* After success followed by lki_zip_writer_end. */
lk_status lki_zip_writer_begin(lki_zip_writer *writer, const char *path);
/* An entry of two parts, which may be empty; the name is copied. */
lk_status lki_zip_writer_add(lki_zip_writer *writer, const char *name, const void *head, size_t head_nbytes,
                             const void *data, size_t nbytes);
/* Writes the list of entries and the file appears, if `status` is LK_OK; else the file is thrown away and the
 * status comes back. */
lk_status lki_zip_writer_end(lki_zip_writer *writer, lk_status status);

#endif
