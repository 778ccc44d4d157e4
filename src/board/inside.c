#include "board/inside.h"

#include "base/memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Opens `below` one name at a time, so that a link anywhere in it is noticed. */
static int open_below(const char *folder, const char *below, bool is_folder)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (const char *at = below; fd >= 0 && *at;) {
        char name[256];
        size_t length = strcspn(at, "/");
        bool is_last = at[length] == 0;
        int next = -1;
        if (length > 0 && length < sizeof name && *at != '.') {
            memcpy(name, at, length);
            name[length] = 0;
            int type = is_last && !is_folder ? O_NONBLOCK : O_DIRECTORY;
            next = openat(fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | type);
        }
        close(fd);
        fd = next;
        if (is_last) break;
        at += length + 1;
        if (!*at) { /* "folder/" */
            if (fd >= 0) close(fd);
            return -1;
        }
    }
    return fd;
}

int lki_inside_open(const char *folder, const char *below, struct stat *info)
{
    struct stat own;
    if (!info) info = &own;
    if (!*below) return -1;
    int fd = open_below(folder, below, false);
    if (fd < 0) return -1;
    if (fstat(fd, info) == 0 && S_ISREG(info->st_mode)) return fd;
    close(fd);
    return -1;
}

char *lki_inside_read(const char *folder, const char *below, size_t most, size_t *nbytes)
{
    struct stat info;
    int fd = lki_inside_open(folder, below, &info);
    if (fd < 0) return NULL;
    size_t size = (size_t)info.st_size < most ? (size_t)info.st_size : most;
    off_t begin = info.st_size - (off_t)size;
    char *text = lki_calloc(size + 1, "a file of a logdir");
    size_t done = 0;
    while (text && done < size) {
        ssize_t got = pread(fd, text + done, size - done, begin + (off_t)done);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        done += (size_t)got;
    }
    close(fd);
    if (text) text[done] = 0;
    if (nbytes) *nbytes = done;
    return text;
}

typedef struct entry {
    char *name;
    bool is_folder;
} entry;

static int compare(const void *a, const void *b)
{
    return strcmp(((const entry *)a)->name, ((const entry *)b)->name);
}

static bool keep_entry(entry **entries, int *count, const char *name, bool is_folder)
{
    if ((*count & (*count + 1)) == 0) { /* 0, 1, 3, 7 …: the array is full */
        size_t nbytes = sizeof **entries * (2 * (size_t)*count + 2);
        entry *grown = lki_realloc(*entries, nbytes, "the names in a folder");
        if (!grown) return false;
        *entries = grown;
    }
    char *copy = lki_strdup(name);
    if (!copy) return false;
    (*entries)[(*count)++] = (entry){copy, is_folder};
    return true;
}

void lki_inside_list(const char *folder, const char *below, lki_inside_visit visit, void *context)
{
    entry *entries = NULL;
    int count = 0;
    int fd = open_below(folder, below, true);
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    if (!directory) {
        if (fd >= 0) close(fd);
        return;
    }
    for (struct dirent *found; (found = readdir(directory));) {
        struct stat info;
        if (found->d_name[0] == '.' || fstatat(dirfd(directory), found->d_name, &info, AT_SYMLINK_NOFOLLOW))
            continue;
        if (!S_ISDIR(info.st_mode) && !S_ISREG(info.st_mode)) continue;
        if (!keep_entry(&entries, &count, found->d_name, S_ISDIR(info.st_mode))) break;
    }
    closedir(directory);
    if (count) qsort(entries, (size_t)count, sizeof *entries, compare);
    for (int i = 0; i < count; i++) {
        visit(context, entries[i].name, entries[i].is_folder);
        lki_free(entries[i].name);
    }
    lki_free(entries);
}
