/* Setting a run up, and undoing it. */
#ifndef LKI_RUN_SETUP_H
#define LKI_RUN_SETUP_H

#include <lockstep/runner.h>

/* What lk_train was given. */
typedef struct lki_run_given {
    char *logdir, *valid_loader, *valid_metric, *device, *resume;
    lk_train_options options; /* plain values only: everything owned has been taken out of it */
} lki_run_given;

/* Undoes an earlier run, and says that this one runs. A runner that does so already is left as it is, and
 * what was handed over is freed; likewise if `taken`, what came of taking the options, is a failure. */
lk_status lki_run_begin(lk_runner *runner, const lk_train_options *options, lk_status taken);
lk_status lki_run_setup(lk_runner *runner, lk_train_options *options);
/* Frees loaders, callbacks and loggers; the model stays. */
void lki_run_teardown(lk_runner *runner);

#endif
