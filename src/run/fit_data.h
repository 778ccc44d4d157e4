/* What the loaders hold becomes what model and criterion need, and labels mean the same in all of them. */
#ifndef LKI_RUN_FIT_DATA_H
#define LKI_RUN_FIT_DATA_H

#include <lockstep/runner.h>

/* Before any fork: forked ranks share what was converted. */
lk_status lki_run_fit_data(lk_runner *runner);
/* Converts one tensor in the same way, into a copy; NULL if the model takes no dtype that it can become. */
lk_status lki_run_fit_input(const lk_runner *runner, const lk_tensor *features, lk_tensor **out);

#endif
