/* A log that grows: hands out what was written since the last look. What it hands out is a whole number of
 * entries, as the reader counts them; a half-written end waits for the rest. Not thread-safe. */
#ifndef LKI_BOARD_TAIL_H
#define LKI_BOARD_TAIL_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

typedef struct lki_tail {
    char *below; /* the file, below its run's folder */
    off_t done;  /* bytes that were read */
    dev_t device;
    ino_t inode;
    off_t seen;              /* its size at the last look */
    struct timespec changed; /* and when it was written */
} lki_tail;

/* Takes entries from the bytes and returns how many bytes it took. */
typedef size_t (*lki_tail_read)(void *context, const char *bytes, size_t nbytes);

typedef enum lki_tail_news {
    LKI_TAIL_SAME,
    LKI_TAIL_GREW,
    LKI_TAIL_REPLACED, /* another file, or shorter: what was read of it no longer holds */
    LKI_TAIL_GONE,
} lki_tail_news;

/* What has happened to the file since it was last read. Reads nothing. */
lki_tail_news lki_tail_look(const lki_tail *tail, const char *folder);

/* Reads what is new. Reads nothing of a file that was replaced since the look; the next look says so. */
lk_status lki_tail_follow(lki_tail *tail, const char *folder, lki_tail_read read, void *context);

/* The next look reads the file from its beginning. */
void lki_tail_rewind(lki_tail *tail);

#endif
