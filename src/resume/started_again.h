/* A run that its launcher has started again after a rank died: what rank 0 knows of the attempts before it.
 *
 * Ranks that were started one by one may not see each other's folders. Each of them only knows that this is
 * a later attempt; which checkpoints the earlier ones have written, rank 0 knows. Set before the run, from
 * one thread. */
#ifndef LKI_RESUME_STARTED_AGAIN_H
#define LKI_RESUME_STARTED_AGAIN_H

#include <lockstep/status.h>

#include <stdbool.h>

/* On every rank. */
void lki_started_again(void);
bool lki_is_started_again(void);

/* On rank 0: the run has written this runner checkpoint itself. */
lk_status lki_started_again_from(const char *path);
bool lki_goes_on_from(const char *path);

#endif
