/* Numbers that a callback sets by itself are each rank's own, and what is reported is rank 0's. Where the
 * ranks differ, somebody has forgotten to join them: that is said once. */
#ifndef LKI_RUN_COMPARE_METRICS_H
#define LKI_RUN_COMPARE_METRICS_H

#include <lockstep/runner.h>

/* Every rank calls it with what its callbacks have set; `what` is "loader" or "epoch". Times ("_timer/...")
 * may differ, and so may names that rank 0 alone has. One small message where all is well. */
lk_status lki_compare_metrics(lk_runner *runner, const lk_metrics *metrics, const char *what);

#endif
