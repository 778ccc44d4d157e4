/* A training config as a workload of cli/bench/scaling.h. */
#ifndef LKI_CLI_BENCH_MEASURE_CONFIG_H
#define LKI_CLI_BENCH_MEASURE_CONFIG_H

#include "cli/bench/scaling.h"
#include "cli/bench/step_ops.h"
#include "config/run_config.h"

/* Of a built plan, on one rank with so many threads (0: all cores), for about `seconds`, and its ops for half
 * as long if `ops` is not NULL. */
lk_status lki_config_measure(lk_config *config, lki_plan *plan, lki_workload *out, lki_step_ops *ops,
                             const char *name, int thread_count, double seconds);

#endif
