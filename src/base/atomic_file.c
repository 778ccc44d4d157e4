#define _GNU_SOURCE
#include "base/atomic_file.h"

#include "base/memory.h"
#include "base/number_text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUFFER_NBYTES = 1 << 16, MAX_LINKS = 40 };

struct lki_atomic_file {
    int fd;
    char *path;       /* as it was given, for messages */
    char *target;     /* where the path's links lead */
    char *temporary;  /* beside the target; NULL: the target itself is written, a pipe or a device */
    lk_status status; /* of the first failure */
    size_t used;
    char buffer[BUFFER_NBYTES];
};

static lk_status io_error(const char *path, const char *what)
{
    return lki_fail(LK_ERR_IO, "%s: could not %s: %s", path, what, strerror(errno));
}

/* "folder/.name.pid.tmp": hidden, in the same folder, and of this process alone. */
static char *temporary_beside(const char *path)
{
    const char *slash = strrchr(path, '/');
    int folder_length = slash ? (int)(slash + 1 - path) : 0;
    return lki_format("%.*s.%s.%ld.tmp", folder_length, path, path + folder_length, (long)getpid());
}

/* N of /dev/stdout and the like, /dev/fd/N; -1 for other paths. */
static int descriptor_of(const char *path)
{
    static const char *const names[] = {"/dev/stdin", "/dev/stdout", "/dev/stderr"};
    char *end;
    for (int i = 0; i < 3; i++)
        if (strcmp(path, names[i]) == 0) return i;
    if (strncmp(path, "/dev/fd/", 8) != 0 || !path[8]) return -1;
    long number = strtol(path + 8, &end, 10);
    return *end || number < 0 || number > INT_MAX ? -1 : (int)number;
}

int lki_open_in_place(const char *path)
{
    int own = descriptor_of(path);
    if (own < 0) return open(path, O_WRONLY | O_APPEND | O_NOCTTY | O_CLOEXEC);
    fflush(stdout);
    return fcntl(own, F_DUPFD_CLOEXEC, 0);
}

bool lki_is_pipe_or_device(const char *path)
{
    struct stat info;
    if (descriptor_of(path) >= 0) return true;
    return stat(path, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
}

/* Where the links of a path's last name lead, be it to a file that is not there yet; *out is the caller's. */
static lk_status follow_links(char **out, const char *path)
{
    char to[PATH_MAX];
    *out = lki_strdup(path);
    for (int count = 0; *out; count++) {
        char *from = *out;
        const char *slash = strrchr(from, '/');
        ssize_t length = readlink(from, to, sizeof to);
        if (length < 0) return LK_OK; /* no link; what else may be wrong shows when the file is made */
        if (count == MAX_LINKS) {
            errno = ELOOP;
            return io_error(path, "create");
        }
        int folder_length = slash && *to != '/' ? (int)(slash + 1 - from) : 0;
        *out = lki_format("%.*s%.*s", folder_length, from, (int)length, to);
        lki_free(from);
    }
    return LK_ERR_NOMEM;
}

static void discard(lki_atomic_file *file)
{
    if (file->fd >= 0) {
        close(file->fd);
        if (file->temporary) unlink(file->temporary);
        file->fd = -1;
    }
}

static lk_status write_all(lki_atomic_file *file, const char *data, size_t nbytes)
{
    while (nbytes > 0) {
        ssize_t written = write(file->fd, data, nbytes);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) {
            file->status = io_error(file->path, "write");
            discard(file);
            return file->status;
        }
        data += written;
        nbytes -= (size_t)written;
    }
    return LK_OK;
}

static lk_status flush_buffer(lki_atomic_file *file)
{
    size_t used = file->used;
    file->used = 0;
    return write_all(file, file->buffer, used);
}

static void free_file(lki_atomic_file *file)
{
    lki_free(file->path);
    lki_free(file->target);
    lki_free(file->temporary);
    lki_free(file);
}

/* Made by this call and nobody else: a link or a file that another user has put there is not written through.
 * One that a dead process of the same number has left is removed first. */
static int create_alone(const char *path)
{
    int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    int fd = open(path, flags, 0666);
    if (fd < 0 && errno == EEXIST && unlink(path) == 0) fd = open(path, flags, 0666);
    return fd;
}

static lk_status open_temporary(lki_atomic_file *file)
{
    LKI_TRY(follow_links(&file->target, file->path));
    file->temporary = temporary_beside(file->target);
    if (!file->temporary) return LK_ERR_NOMEM;
    file->fd = create_alone(file->temporary);
    return file->fd >= 0 ? LK_OK : io_error(file->path, "create");
}

static lk_status open_in_place(lki_atomic_file *file)
{
    file->fd = lki_open_in_place(file->path);
    return file->fd >= 0 ? LK_OK : io_error(file->path, "open");
}

lk_status lki_atomic_file_open(lki_atomic_file **out, const char *path)
{
    *out = NULL;
    lki_atomic_file *file = LKI_NEW(lki_atomic_file);
    if (!file) return LK_ERR_NOMEM;
    file->fd = -1;
    file->path = lki_strdup(path);
    lk_status status = LK_ERR_NOMEM;
    if (file->path) status = lki_is_pipe_or_device(path) ? open_in_place(file) : open_temporary(file);
    if (status != LK_OK)
        free_file(file);
    else
        *out = file;
    return status;
}

lk_status lki_atomic_file_write(lki_atomic_file *file, const void *data, size_t nbytes)
{
    if (file->status != LK_OK) return file->status;
    if (file->used + nbytes > BUFFER_NBYTES) LKI_TRY(flush_buffer(file));
    if (nbytes > BUFFER_NBYTES) return write_all(file, data, nbytes);
    if (nbytes) memcpy(file->buffer + file->used, data, nbytes);
    file->used += nbytes;
    return LK_OK;
}

lk_status lki_atomic_file_printf(lki_atomic_file *file, const char *format, ...)
{
    char line[1024];
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int length = lki_vsnprintf(line, sizeof line, format, arguments);
    lk_status status = LK_OK;
    if (length < 0) {
        status = file->status = io_error(file->path, "format text for");
    } else if ((size_t)length < sizeof line) {
        status = lki_atomic_file_write(file, line, (size_t)length);
    } else {
        LKI_SCOPED char *text = lki_calloc((size_t)length + 1, "a line of text");
        status = text ? LK_OK : LK_ERR_NOMEM;
        if (text) lki_vsnprintf(text, (size_t)length + 1, format, again);
        if (text) status = lki_atomic_file_write(file, text, (size_t)length);
    }
    va_end(again);
    va_end(arguments);
    return status;
}

/* A rename lasts only once the folder is on the disk. File systems that cannot sync a folder say EINVAL. */
static lk_status sync_folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    LKI_SCOPED char *folder = slash ? lki_strndup(path, (size_t)(slash + 1 - path)) : lki_strdup(".");
    if (!folder) return LK_ERR_NOMEM;
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return io_error(folder, "open the folder");
    lk_status status = fsync(fd) == 0 || errno == EINVAL ? LK_OK : io_error(folder, "sync the folder");
    close(fd);
    return status;
}

static lk_status replace_target(lki_atomic_file *file)
{
    if (rename(file->temporary, file->target) == 0) return sync_folder_of(file->target);
    lk_status status = io_error(file->path, "replace");
    unlink(file->temporary);
    return status;
}

lk_status lki_atomic_file_commit(lki_atomic_file *file)
{
    lk_status status = file->status;
    if (status != LK_OK) goto out;
    LKI_TRY_OUT(flush_buffer(file));
    if (file->temporary && fsync(file->fd) != 0) {
        status = io_error(file->path, "sync");
        goto out;
    }
    int closed = close(file->fd); /* a network file system may report a full disk only here */
    file->fd = -1;
    if (closed != 0) {
        status = io_error(file->path, "write");
        if (file->temporary) unlink(file->temporary);
    } else if (file->temporary) {
        status = replace_target(file);
    }
out:
    discard(file);
    free_file(file);
    return status;
}

void lki_atomic_file_abort(lki_atomic_file *file)
{
    if (!file) return;
    discard(file);
    free_file(file);
}

lk_status lki_write_file_atomic(const char *path, const void *data, size_t nbytes)
{
    lki_atomic_file *file;
    LKI_TRY(lki_atomic_file_open(&file, path));
    lki_atomic_file_write(file, data, nbytes); /* commit reports a failure */
    return lki_atomic_file_commit(file);
}

static lk_status copy_file(const char *from, const char *to)
{
    LKI_SCOPED char *data = NULL;
    size_t nbytes;
    LKI_TRY(lki_read_file(&data, &nbytes, from));
    return lki_write_file_atomic(to, data, nbytes);
}

bool lki_is_same_file(const char *a, const char *b)
{
    struct stat one, other;
    return stat(a, &one) == 0 && stat(b, &other) == 0 && one.st_dev == other.st_dev &&
           one.st_ino == other.st_ino;
}

lk_status lki_link_file_atomic(const char *from, const char *to)
{
    LKI_SCOPED char *temporary = temporary_beside(to);
    if (!temporary) return LK_ERR_NOMEM;
    /* A rename between two links to one file does nothing and would leave the temporary behind. */
    if (lki_is_same_file(from, to)) return LK_OK;
    unlink(temporary);
    if (link(from, temporary) != 0) {
        if (errno == ENOENT) return io_error(from, "link");
        LKI_TRY(copy_file(from, temporary)); /* not to `to` itself, which may be a link to another's file */
    }
    if (rename(temporary, to) != 0) {
        lk_status status = io_error(to, "replace");
        unlink(temporary);
        return status;
    }
    return sync_folder_of(to);
}

lk_status lki_make_folders(const char *path)
{
    LKI_SCOPED char *partial = lki_strdup(path);
    if (!partial) return LK_ERR_NOMEM;
    for (char *at = partial + (*partial != 0);; at++) {
        if (*at != '/' && *at != '\0') continue;
        char end = *at;
        *at = '\0';
        if (*partial && mkdir(partial, 0777) != 0 && errno != EEXIST)
            return io_error(partial, "make the folder");
        if (end == '\0') break;
        *at = end;
    }
    struct stat info;
    if (stat(path, &info) != 0) return io_error(path, "make the folder");
    return S_ISDIR(info.st_mode) ? LK_OK : lki_fail(LK_ERR_IO, "%s: exists and is no folder", path);
}

lk_status lki_read_file(char **out, size_t *nbytes, const char *path)
{
    char *data = NULL;
    size_t used = 0, capacity = 0;
    lk_status status = LK_OK;
    *out = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? lki_fail(LK_ERR_NOT_FOUND, "%s: no such file", path)
                               : io_error(path, "open");
    for (;;) {
        if (capacity - used < 2) {
            capacity = capacity ? capacity * 2 : 4096;
            char *grown = lki_realloc(data, capacity, "a file's contents");
            if (!grown) {
                status = LK_ERR_NOMEM;
                break;
            }
            data = grown;
        }
        ssize_t got = read(fd, data + used, capacity - used - 1);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) status = io_error(path, "read");
        if (got <= 0) break;
        used += (size_t)got;
    }
    close(fd);
    if (status != LK_OK) {
        lki_free(data);
        return status;
    }
    data[used] = '\0';
    *out = data;
    *nbytes = used;
    return LK_OK;
}
