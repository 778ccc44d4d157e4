#include "board/tail.h"

#include "base/memory.h"
#include "board/inside.h"

#include <errno.h>
#include <unistd.h>

enum { FIRST_CHUNK = 1 << 20, MOST_CHUNK = 1 << 28 };

static bool is_replaced(const lki_tail *tail, const struct stat *info)
{
    if (tail->inode == 0) return false;
    return info->st_ino != tail->inode || info->st_dev != tail->device || info->st_size < tail->seen;
}

lki_tail_news lki_tail_look(const lki_tail *tail, const char *folder)
{
    struct stat info;
    int fd = lki_inside_open(folder, tail->below, &info);
    if (fd < 0) return LKI_TAIL_GONE;
    close(fd);
    if (tail->inode == 0) return LKI_TAIL_GREW;
    if (is_replaced(tail, &info)) return LKI_TAIL_REPLACED;
    bool is_same = info.st_size == tail->seen && info.st_mtim.tv_sec == tail->changed.tv_sec &&
                   info.st_mtim.tv_nsec == tail->changed.tv_nsec;
    return is_same ? LKI_TAIL_SAME : LKI_TAIL_GREW;
}

void lki_tail_rewind(lki_tail *tail)
{
    tail->done = 0;
    tail->inode = 0;
    tail->seen = 0;
}

/* Reads from `done` on in pieces. A piece that holds no whole entry is read again, twice as long. */
static lk_status read_pieces(lki_tail *tail, int fd, off_t end, lki_tail_read read, void *context)
{
    size_t capacity = FIRST_CHUNK;
    while (tail->done < end && capacity <= MOST_CHUNK) {
        size_t wanted = (size_t)(end - tail->done) < capacity ? (size_t)(end - tail->done) : capacity;
        LKI_SCOPED char *bytes = lki_calloc(wanted + 1, "a piece of a log");
        if (!bytes) return LK_ERR_NOMEM;
        size_t got = 0;
        while (got < wanted) {
            ssize_t piece = pread(fd, bytes + got, wanted - got, tail->done + (off_t)got);
            if (piece < 0 && errno == EINTR) continue;
            if (piece <= 0) break;
            got += (size_t)piece;
        }
        size_t taken = got ? read(context, bytes, got) : 0;
        tail->done += (off_t)taken;
        if (taken == 0 && (got < capacity || got == 0)) return LK_OK; /* a torn end */
        if (taken == 0) capacity *= 2;
    }
    return LK_OK;
}

lk_status lki_tail_follow(lki_tail *tail, const char *folder, lki_tail_read read, void *context)
{
    struct stat info;
    int fd = lki_inside_open(folder, tail->below, &info);
    if (fd < 0) return LK_OK; /* gone meanwhile */
    if (is_replaced(tail, &info)) return close(fd), LK_OK;
    tail->device = info.st_dev;
    tail->inode = info.st_ino;
    tail->seen = info.st_size;
    tail->changed = info.st_mtim;
    lk_status status = read_pieces(tail, fd, info.st_size, read, context);
    close(fd);
    return status;
}
