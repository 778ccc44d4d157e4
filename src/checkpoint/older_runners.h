/* The runner checkpoints before the newest: runner.last.1, runner.last.2 and so on, each older than the one
 * before it. They are links to files that were the newest once, so keeping them writes nothing. */
#ifndef LKI_CHECKPOINT_OLDER_RUNNERS_H
#define LKI_CHECKPOINT_OLDER_RUNNERS_H

#include <lockstep/status.h>

/* Makes room for a new runner.last, of which `count` are kept with the older ones. Until it is written, the
 * newest has two names. */
lk_status lki_age_runners(const char *folder, int count);

/* The path of the one before: NULL for a file that is no runner.last, or without memory. lki_free it. */
char *lki_older_runner(const char *path);

/* Renames a damaged runner.last of this folder, so that it does not push out a good one at the next save. The
 * user may want to look at it. */
void lki_put_damaged_aside(const char *folder, const char *path);

#endif
