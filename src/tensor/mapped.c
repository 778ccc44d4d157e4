#include "tensor/mapped.h"

#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void unmap(void *data, void *context)
{
    if (data) munmap(data, (size_t)(uintptr_t)context);
}

static lk_status map_descriptor(lk_buffer **out, int fd, const char *path)
{
    struct stat info;
    void *data = NULL;
    if (fstat(fd, &info) != 0) return lki_fail(LK_ERR_IO, "%s: could not read: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode)) return lki_fail(LK_ERR_IO, "%s: is no regular file", path);
    size_t nbytes = (size_t)info.st_size;
    if (nbytes) {
        data = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED) return lki_fail(LK_ERR_IO, "%s: could not map: %s", path, strerror(errno));
    }
    *out = lki_buffer_adopt(data, nbytes, unmap, (void *)(uintptr_t)nbytes);
    if (*out) return LK_OK;
    unmap(data, (void *)(uintptr_t)nbytes);
    return LK_ERR_NOMEM;
}

lk_status lki_map_file(lk_buffer **out, const char *path)
{
    *out = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) return lki_fail(LK_ERR_NOT_FOUND, "%s: no such file", path);
    if (fd < 0) return lki_fail(LK_ERR_IO, "%s: could not open: %s", path, strerror(errno));
    lk_status status = map_descriptor(out, fd, path);
    close(fd);
    return status;
}
