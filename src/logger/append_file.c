#include "logger/append_file.h"

#include "base/atomic_file.h"
#include "base/memory.h"
#include "base/number_text.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FLUSH_NBYTES = 1 << 18 };

lk_status lki_append_file_init(lki_append_file *file, const char *path)
{
    *file = (lki_append_file){.fd = -1, .path = lki_strdup(path)};
    return file->path ? LK_OK : LK_ERR_NOMEM;
}

static lk_status open_file(lki_append_file *file)
{
    struct stat info;
    if (file->fd >= 0) return LK_OK;
    file->in_place = lki_is_pipe_or_device(file->path);
    file->fd = file->in_place ? lki_open_in_place(file->path)
                              : open(file->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file->fd < 0 || fstat(file->fd, &info) != 0)
        return lki_fail(LK_ERR_IO, "%s: could not open: %s", file->path, strerror(errno));
    file->file_nbytes = info.st_size;
    return LK_OK;
}

lk_status lki_append_file_flush(lki_append_file *file)
{
    size_t done = 0;
    if (file->used == 0) return LK_OK;
    LKI_TRY(open_file(file));
    if (file->in_place) fflush(stdout); /* it may be the same file: whole lines one after another */
    while (done < file->used) {
        ssize_t written = write(file->fd, file->data + done, file->used - done);
        if (written < 0 && errno == EINTR) continue;
        if (written > 0) {
            done += (size_t)written;
            continue;
        }
        lk_status status = lki_fail(LK_ERR_IO, "%s: could not write: %s", file->path, strerror(errno));
        if (done && (file->in_place || ftruncate(file->fd, file->file_nbytes) != 0))
            status = lki_fail_prefix(status, "%s: the last entry is torn", file->path);
        return status;
    }
    file->file_nbytes += (int64_t)done;
    file->used = 0;
    return LK_OK;
}

static lk_status reserve(lki_append_file *file, size_t nbytes)
{
    if (file->used + nbytes <= file->capacity) return LK_OK;
    size_t capacity =
        file->capacity * 2 > file->used + nbytes ? file->capacity * 2 : file->used + nbytes + 4096;
    char *grown = lki_realloc(file->data, capacity, "a log's buffer");
    if (!grown) return LK_ERR_NOMEM;
    file->data = grown;
    file->capacity = capacity;
    return LK_OK;
}

lk_status lki_append_file_write(lki_append_file *file, const void *data, size_t nbytes)
{
    LKI_TRY(reserve(file, nbytes));
    memcpy(file->data + file->used, data, nbytes);
    file->used += nbytes;
    return LK_OK;
}

lk_status lki_append_file_printf(lki_append_file *file, const char *format, ...)
{
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int length = lki_vsnprintf(NULL, 0, format, arguments);
    lk_status status = length < 0 ? lki_fail(LK_ERR_INVALID, "%s: could not format text", file->path)
                                  : reserve(file, (size_t)length + 1);
    if (status == LK_OK) {
        lki_vsnprintf(file->data + file->used, (size_t)length + 1, format, again);
        file->used += (size_t)length;
    }
    va_end(again);
    va_end(arguments);
    return status;
}

lk_status lki_append_file_end_entry(lki_append_file *file)
{
    return file->used > FLUSH_NBYTES ? lki_append_file_flush(file) : LK_OK;
}

lk_status lki_append_file_fini(lki_append_file *file)
{
    lk_status status = lki_append_file_flush(file);
    if (file->fd >= 0 && close(file->fd) != 0 && status == LK_OK)
        status = lki_fail(LK_ERR_IO, "%s: could not write: %s", file->path, strerror(errno));
    lki_free(file->path);
    lki_free(file->data);
    *file = (lki_append_file){.fd = -1};
    return status;
}
