/* The newest runner checkpoint, written by a thread while the training goes on.
 *
 * What is saved is copied first, so the run may change everything at once. One file is under way at a time:
 * who starts the next one waits for the one before it. A failure is told by the call that waits. */
#ifndef LKI_CALLBACKS_LATE_SAVE_H
#define LKI_CALLBACKS_LATE_SAVE_H

#include <lockstep/checkpoint.h>

typedef struct lki_late_save lki_late_save;

/* Ages the runners of `folder`, of which `keep` stay, and writes `state` as the newest. *save is NULL or what
 * an earlier call has left. */
lk_status lki_late_save_start(lki_late_save **save, const char *folder, int keep, const lk_state_dict *state);
/* Waits until the file is there, and says whether it is. *save becomes NULL. */
lk_status lki_late_save_finish(lki_late_save **save);
/* The same file, before the call returns. */
lk_status lki_save_newest_runner(const char *folder, int keep, const lk_state_dict *state);

#endif
