/* Whether a run goes on, has ended or has died. A run holds LOGDIR/.lock while it trains, with its process
 * and host in it, and removes the file when it ends in any way that it knows of. */
#ifndef LKI_BOARD_RUN_STATE_H
#define LKI_BOARD_RUN_STATE_H

#include <stdint.h>

typedef enum lki_run_state {
    LKI_RUN_RUNNING,  /* its process is there */
    LKI_RUN_DIED,     /* its lock is there, but its process is not */
    LKI_RUN_SILENT,   /* its process is on another host, and it has written nothing for five minutes */
    LKI_RUN_FINISHED, /* all its epochs are done */
    LKI_RUN_STOPPED,  /* it ended before its last epoch: stopped early, interrupted or failed */
    LKI_RUN_ENDED,    /* nobody writes, and nothing says how many epochs there should be */
} lki_run_state;

/* `epochs` of `num_epochs` are logged (0: not known); `updated` is when it last wrote, in seconds since the
 * epoch. The lock is looked at, never taken: a run that starts just now must get it. */
lki_run_state lki_board_run_state(const char *logdir, int64_t epochs, int64_t num_epochs, int64_t updated);

const char *lki_board_run_state_name(lki_run_state state);

#endif
