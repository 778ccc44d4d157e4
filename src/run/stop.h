/* How a run stops before its end: a signal sets a flag, and the ranks agree on the batch to stop at. */
#ifndef LKI_RUN_STOP_H
#define LKI_RUN_STOP_H

#include <lockstep/runner.h>

typedef struct lki_run_stop {
    volatile int *flag; /* set by a signal: save, and stop at the next batch */
    bool stopped;       /* at the same place on all ranks */
    /* When the ranks next ask each other whether to stop: the same on all of them but for the clock. */
    struct {
        int64_t batches, batches_left; /* between two looks; until the next */
        int64_t ns;                    /* of the last look */
    } look;
} lki_run_stop;

/* Whether any rank was asked to stop. Costs a message, so it is asked every few batches, about four times per
 * second if they are slow, and `at_end` of a train loader. */
lk_status lki_stop_asked(lk_runner *runner, bool at_end, bool *out);

/* At the end of a run: a signal that one rank has not stopped at is every rank's. */
lk_status lki_stop_share_signal(lk_runner *runner);

/* After a stop that the ranks have agreed on: returns when all of them have saved what they have to. */
lk_status lki_stop_leave_together(lk_runner *runner);

#endif
