/* The batches of a loader. Between two of them a run can stop: a signal sets a flag, and the ranks agree on
 * the batch to stop at. */
#ifndef LKI_RUN_BATCHES_H
#define LKI_RUN_BATCHES_H

#include <lockstep/runner.h>

typedef struct lki_run_stop {
    volatile int *flag; /* set by a signal: save, and stop at the next batch */
    bool stopped;       /* at the same place on all ranks */
    bool meets_again;   /* stopped between epochs to take in ranks that have come back */
    bool
        save_due; /* save_every_minutes have passed: said to all ranks at once, for the checkpoint callback */
    int64_t saved_ns; /* rank 0's: when that was last so */
    bool time_is_up;  /* max_minutes have passed: said to all ranks at once */
    /* When the ranks next ask each other whether to stop: the same on all of them but for the clock. */
    struct {
        int64_t batches, batches_left; /* between two looks; until the next */
        int64_t ns;                    /* of the last look */
    } look;
} lki_run_stop;

/* All batches of the loader that has begun. */
lk_status lki_run_batches(lk_runner *runner);

#endif
