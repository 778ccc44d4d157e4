/* A training config as a workload of cli/bench/scaling.h. */
#ifndef LKI_CLI_BENCH_MEASURE_CONFIG_H
#define LKI_CLI_BENCH_MEASURE_CONFIG_H

#include "cli/bench/scaling.h"
#include "cli/bench/step_ops.h"
#include "config/run_config.h"

/* How a config's call of train is run for a look at it. It writes nothing. */
typedef struct lki_trial_run {
    int thread_count;            /* of each rank; 0: all cores */
    int ranks;                   /* 0: this process alone, with the loaders of the config as they are */
    int64_t global_batch;        /* with ranks: which they divide among themselves; it trains alone */
    double minutes;              /* when the run ends; 0: at the callback's failure */
    lk_callback *callback_owned; /* the only one */
} lki_trial_run;
lk_status lki_config_run_trial(lk_config *config, lki_plan *plan, const lki_trial_run *trial);

/* The ranks that a built plan's call of train asks for, at least 1, and its train loader's batch_size on
 * each. The plan's parts are used up. */
lk_status lki_config_batch(lk_config *config, lki_plan *plan, int *ranks, int64_t *batch_size);

/* Of a built plan, on one rank with so many threads (0: all cores), for about `seconds`, and its ops for half
 * as long if `ops` is not NULL. */
lk_status lki_config_measure(lk_config *config, lki_plan *plan, lki_workload *out, lki_step_ops *ops,
                             const char *name, int thread_count, double seconds);

#endif
