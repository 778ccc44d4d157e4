/* Files that appear whole or not at all.
 *
 * Bytes go to a temporary beside the target; lki_atomic_file_commit syncs it, renames it over the target and
 * syncs the folder, so a reader, a crash or a full disk meets either the previous file or the new one. After
 * any failure the temporary is gone and the target untouched. An open file ends with commit or abort, also
 * after a failed write. Not thread-safe.
 *
 * A link is followed, and stays: the file that it leads to is replaced or made. What is there and is no file,
 * a pipe or a device, cannot be replaced: it is opened itself (a pipe waits for its reader) and written to as
 * the bytes come. */
#ifndef LKI_BASE_ATOMIC_FILE_H
#define LKI_BASE_ATOMIC_FILE_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct lki_atomic_file lki_atomic_file;

lk_status lki_atomic_file_open(lki_atomic_file **out, const char *path);
lk_status lki_atomic_file_write(lki_atomic_file *file, const void *data, size_t nbytes);
lk_status lki_atomic_file_printf(lki_atomic_file *file, const char *format, ...) LKI_PRINTF(2, 3);
/* Frees the file in any case. */
lk_status lki_atomic_file_commit(lki_atomic_file *file);
/* Throws away what was written; NULL is fine. */
void lki_atomic_file_abort(lki_atomic_file *file);

/* A whole file in one call. */
lk_status lki_write_file_atomic(const char *path, const void *data, size_t nbytes);

/* Whether something is there that is neither a file nor a folder, or the path is /dev/stdout or the like. It
 * must not be read to go on with it, and opening it twice may be noticed at its other end. */
bool lki_is_pipe_or_device(const char *path);
/* An fd that writes behind what is there; -1 and errno where there is none. Of the program's own output it is
 * the same open file, for one that was opened anew would write over what others write to that, and they over
 * it. */
int lki_open_in_place(const char *path);

/* Whether both are there and are one file or folder, whatever they are called. */
bool lki_is_same_file(const char *a, const char *b);

/* Makes `to` the same file as the committed `from`, atomically: a hard link where the file system has them,
 * else a copy. Costs no second write of the data: a best checkpoint is the link to its epoch's. */
lk_status lki_link_file_atomic(const char *from, const char *to);

/* Makes a folder and its parents; an existing one is fine. */
lk_status lki_make_folders(const char *path);

/* Reads a whole file; *out is freed with lki_free and has a zero byte after its nbytes. */
lk_status lki_read_file(char **out, size_t *nbytes, const char *path);

#endif
