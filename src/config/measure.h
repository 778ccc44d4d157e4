/* A training config as a workload of train/scaling.h. */
#ifndef LKI_CONFIG_MEASURE_H
#define LKI_CONFIG_MEASURE_H

#include "config/run.h"
#include "train/scaling.h"

/* Of a built plan, on one rank with so many threads (0: all cores), for about `seconds`. */
lk_status lki_config_measure(lk_config *config, lki_plan *plan, lki_workload *out, const char *name,
                             int thread_count, double seconds);

#endif
