/* The loop of a run: epochs over loaders over batches. */
#ifndef LKI_RUN_LOOP_H
#define LKI_RUN_LOOP_H

#include <lockstep/runner.h>

lk_status lki_run_loop(lk_runner *runner);
/* The start of the experiment, and what can be judged once all callbacks have started. */
lk_status lki_run_call_start(lk_runner *runner);
/* One pass of the callbacks and handle_batch over a loader; the loader's metrics are in
 * runner->loader_metrics after it. */
lk_status lki_run_one_loader(lk_runner *runner, int index);

/* Between epochs, and before the first: the number of whole epochs, and whether there is one to begin or to
 * go on with. */
int64_t lki_run_epochs_done(const lk_runner *runner);
bool lki_run_has_epochs_left(const lk_runner *runner);

#endif
