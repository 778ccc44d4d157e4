/* Files of a logdir, opened so that nothing outside of it can be reached: no part of the path below the
 * logdir may be "..", empty or a symbolic link, and only plain files and folders count. A logdir may hold
 * what somebody else has made. Thread-safe. */
#ifndef LKI_BOARD_INSIDE_H
#define LKI_BOARD_INSIDE_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

/* A file for reading; -1 if there is none that may be read. `info` may be NULL. */
int lki_inside_open(const char *folder, const char *below, struct stat *info);

/* At most `most` bytes from its end; freed with lki_free, and zero-terminated. NULL if there is no such file.
 */
char *lki_inside_read(const char *folder, const char *below, size_t most, size_t *nbytes);

/* Calls visit for each entry of a folder that is a plain file or a folder, hidden ones left out, in the order
 * of their names. `below` may be "". */
typedef void (*lki_inside_visit)(void *context, const char *name, bool is_folder);
void lki_inside_list(const char *folder, const char *below, lki_inside_visit visit, void *context);

#endif
