/* A log file that only grows: writes gather in memory and reach the file together.
 *
 * A flush that fails (a full disk) takes back what it had written of it, so the file always ends with a whole
 * entry, and keeps the bytes for the next try. */
#ifndef LKI_LOGGER_APPEND_FILE_H
#define LKI_LOGGER_APPEND_FILE_H

#include <lockstep/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct lki_append_file {
    int fd; /* -1 before the first flush */
    char *path;
    bool in_place; /* a pipe, a device or the program's own output: nothing is taken back */
    int64_t file_nbytes;
    char *data;
    size_t used, capacity;
} lki_append_file;

/* Opens nothing yet: the file appears with the first flush. */
lk_status lki_append_file_init(lki_append_file *file, const char *path);
/* Adds bytes of an entry. */
lk_status lki_append_file_write(lki_append_file *file, const void *data, size_t nbytes);
lk_status lki_append_file_printf(lki_append_file *file, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Says that an entry is whole; flushes once there is much to write. */
lk_status lki_append_file_end_entry(lki_append_file *file);
lk_status lki_append_file_flush(lki_append_file *file);
/* Flushes, closes and frees, also where the flush fails. */
lk_status lki_append_file_fini(lki_append_file *file);

#endif
