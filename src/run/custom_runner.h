/* What a custom runner brings by its functions if the options lack it. */
#ifndef LKI_RUN_CUSTOM_RUNNER_H
#define LKI_RUN_CUSTOM_RUNNER_H

#include <lockstep/runner.h>

/* Asks for loaders, model, criterion, optimizer and scheduler; to train also for callbacks and loggers. */
lk_status lki_run_ask_custom_runner(lk_runner *runner, lk_train_options *options);

#endif
