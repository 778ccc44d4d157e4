/* How a run fares besides its metrics: samples per second, where each rank's time goes, and memory. Points go
 * to LOGDIR/system.jsonl, as values per batch of a loader "system": at the end of each train loader, and
 * about every ten seconds in between. A run without a logdir measures nothing. */
#ifndef LKI_RUN_VITALS_H
#define LKI_RUN_VITALS_H

#include <lockstep/runner.h>

#include "base/clock.h"

typedef struct lki_vitals {
    lk_logger *logger; /* on the master; NULL: somebody else writes that file, or nobody does */
    bool is_on;        /* in a train loader of a run with a logdir; the same on all ranks */
    /* Since the last point, or the start of the loader. */
    int64_t begin_ns, loader_ns, comm_ns;
    int64_t batches, samples;
    int64_t all_loader_ns; /* since the run began */
    int64_t agreed_ns;     /* how long it is by the slowest rank's clock, as all ranks know it */
} lki_vitals;

/* Makes the logger, on the master. */
lk_status lki_vitals_open(lk_runner *runner);
lk_status lki_vitals_close(lki_vitals *vitals);

/* Around a pass over a loader; end on all ranks of a train loader. */
void lki_vitals_begin_pass(lk_runner *runner);
lk_status lki_vitals_end_pass(lk_runner *runner);

/* After each train batch of the pass; collective where a point is due. */
lk_status lki_vitals_after_batch(lk_runner *runner);

/* Around the wait for the next batch. */
static inline int64_t lki_vitals_begin_wait(void)
{
    return lki_now_ns();
}

static inline void lki_vitals_end_wait(lki_vitals *vitals, int64_t begin_ns)
{
    int64_t waited_ns = lki_now_ns() - begin_ns;
    vitals->loader_ns += waited_ns;
    vitals->all_loader_ns += waited_ns;
}

#endif
