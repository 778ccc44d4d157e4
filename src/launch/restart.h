/* Running a job again when one of its ranks has died.
 *
 * Each attempt is a process of its own, forked from this one, so that it starts from nothing but what it
 * reads: also the death of rank 0 is survived. This process only waits, passes on SIGINT, SIGTERM,
 * SIGUSR1 and SIGTSTP, and counts. Call it from the main thread, before other threads exist.
 *
 * Ranks that were started one by one have such a process each. All attempts end when a rank dies, and the
 * ranks of the next attempts meet again. */
#ifndef LKI_LAUNCH_RESTART_H
#define LKI_LAUNCH_RESTART_H

#include <lockstep/status.h>

#include <stdbool.h>

enum {
    LKI_EXIT_PEER = 75,  /* another rank has died: the process that ends with it is well itself */
    LKI_EXIT_AGAIN = 76, /* the ranks meet again to take others in: no rank has died */
};

/* Does the work of one attempt and returns its exit code. LKI_EXIT_PEER asks for another attempt, which
 * counts as a restart; LKI_EXIT_AGAIN for one that does not. */
typedef struct lki_attempt_place {
    bool is_first;
    bool is_restart; /* the one before it ended with a death */
    int restarts;    /* so far, this one included */
} lki_attempt_place;
typedef int (*lki_attempt)(void *context, const lki_attempt_place *place);

/* Whether this process is an attempt that may be followed by another one: how often the ranks may meet again.
 * 0 in all other processes. */
int lki_restarts_allowed(void);
/* Whether this process is an attempt that follows another one. */
bool lki_is_restart(void);

/* Ranks that were started one by one end one by one. One that is killed when the others have left must not be
 * started again: nobody would come to meet it. So an attempt says when its work is done: after so many runs
 * have trained on all ranks (0: no number of them does), or by itself. A signal that kills it later ends the
 * job well. */
void lki_attempt_expect(int trainings);
void lki_attempt_has_trained(void);
void lki_attempt_is_done(void);

/* In an attempt: its run has been ended so that the ranks meet again (LKI_EXIT_AGAIN). */
void lki_ask_to_meet_again(void);
bool lki_is_to_meet_again(void);

/* Begins the reason that a rank gives the others if its own run has failed: no other attempt would help. */
#define LKI_RUN_FAILED "its run failed: "

/* *exit_code is the last attempt's. LK_ERR_PEER where that was killed itself: the sentence says by what, and
 * that it was `rank`. An attempt that ends after this process was told to stop is the last one. */
lk_status lki_run_with_restarts(int *exit_code, lki_attempt attempt, void *context, int max_restarts,
                                int rank);

#endif
