/* Running a job of local ranks again when one of them has died.
 *
 * Each attempt is a process of its own, forked from this one, so that it starts from nothing but what it
 * reads: also the death of rank 0 is survived. This process only waits, passes on SIGINT, SIGTERM,
 * SIGUSR1 and SIGTSTP, and counts. Call it from the main thread, before other threads exist. */
#ifndef LKI_LAUNCH_RESTART_H
#define LKI_LAUNCH_RESTART_H

#include <lockstep/status.h>

enum { LKI_EXIT_PEER = 75 }; /* another rank has died: the process that ends with it is well itself */

/* Does the work of one attempt, numbered from 0, and returns its exit code; LKI_EXIT_PEER asks for another
 * attempt. */
typedef int (*lki_attempt)(void *context, int number);

/* *exit_code is the last attempt's. LK_ERR_PEER where that was killed itself: the sentence says by what. An
 * attempt that ends after this process was told to stop is the last one. */
lk_status lki_run_with_restarts(int *exit_code, lki_attempt attempt, void *context, int max_restarts);

#endif
