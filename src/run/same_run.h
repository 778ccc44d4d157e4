/* What ranks tell each other before the first batch: what they are, and what they were told to do. */
#ifndef LKI_RUN_SAME_RUN_H
#define LKI_RUN_SAME_RUN_H

#include <lockstep/runner.h>

/* Collective, before the engine is opened: ranks of different builds or architectures are
 * refused, and all take the widest vector level that every one of them has (lki_run.cpu_level). */
lk_status lki_agree_on_kernels(lk_runner *runner);

/* Collective, once the engine is open: fails like lki_check_same_training if the ranks were told different
 * things (seed, epochs, device, precision, loaders) or read different data. */
lk_status lki_check_same_run(lk_runner *runner);

#endif
