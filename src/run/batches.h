/* The batches of a loader. */
#ifndef LKI_RUN_BATCHES_H
#define LKI_RUN_BATCHES_H

#include <lockstep/runner.h>

/* All batches of the loader that has begun. */
lk_status lki_run_batches(lk_runner *runner);

#endif
