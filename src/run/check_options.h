/* What a run is asked for, judged before anything is opened: an option works, or is refused in one line that
 * says what to write instead. */
#ifndef LKI_RUN_CHECK_OPTIONS_H
#define LKI_RUN_CHECK_OPTIONS_H

#include <lockstep/runner.h>

/* The options by themselves. */
lk_status lki_check_train_options(const lk_train_options *options, lk_dtype precision);
/* What they mean together with the runner's parts and callbacks, before the defaults are added. */
lk_status lki_check_run(const lk_runner *runner);

#endif
