#include "data/identical_layout.h"

#include "base/memory.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Files with more than this around the array hold other arrays too, which will differ. */
enum { MAX_AROUND = 1 << 16 };

static bool read_at(int fd, void *data, int64_t nbytes, int64_t offset)
{
    for (char *at = data; nbytes > 0;) {
        ssize_t got = pread(fd, at, (size_t)nbytes, (off_t)offset);
        if (got <= 0) return false;
        at += got;
        offset += got;
        nbytes -= got;
    }
    return true;
}

static bool read_around(int fd, const lki_twin *twin, char *around)
{
    int64_t end = twin->place.offset + twin->place.nbytes;
    return read_at(fd, around, twin->place.offset, 0) &&
           read_at(fd, around + twin->place.offset, twin->file_nbytes - end, end);
}

static int open_regular(const char *path, int64_t *nbytes)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) {
        *nbytes = info.st_size;
        return fd;
    }
    close(fd);
    return -1;
}

static char *remember(const lki_twin *twin, int fd)
{
    int64_t around = twin->file_nbytes - twin->place.nbytes;
    bool inside = twin->place.offset >= 0 && twin->place.offset + twin->place.nbytes <= twin->file_nbytes;
    if (!inside || around > MAX_AROUND) return NULL;
    char *bytes = lki_calloc((size_t)around, "what is around an array");
    if (!bytes || read_around(fd, twin, bytes)) return bytes;
    lki_free(bytes);
    return NULL;
}

void lki_twin_init(lki_twin *twin, const char *path, const lki_hdf5_place *place)
{
    *twin = (lki_twin){.place = *place};
    if (place->offset < 0) return;
    int fd = open_regular(path, &twin->file_nbytes);
    if (fd < 0) return;
    twin->around = remember(twin, fd);
    close(fd);
}

void lki_twin_fini(lki_twin *twin)
{
    lki_free(twin->around);
    twin->around = NULL;
}

bool lki_twin_read(const lki_twin *twin, const char *path, void *data)
{
    char around[MAX_AROUND];
    int64_t nbytes = 0;
    if (!twin->around) return false;
    int fd = open_regular(path, &nbytes);
    if (fd < 0) return false;
    size_t around_nbytes = (size_t)(twin->file_nbytes - twin->place.nbytes);
    bool whole = nbytes == twin->file_nbytes && read_around(fd, twin, around) &&
                 memcmp(around, twin->around, around_nbytes) == 0 &&
                 read_at(fd, data, twin->place.nbytes, twin->place.offset);
    close(fd);
    return whole;
}

bool lki_place_read(const lki_hdf5_place *place, const char *path, void *data)
{
    int64_t nbytes;
    int fd = open_regular(path, &nbytes);
    if (fd < 0) return false;
    bool whole = read_at(fd, data, place->nbytes, place->offset);
    close(fd);
    return whole;
}
