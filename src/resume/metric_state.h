/* What metrics have seen of a pass, in the checkpoint of a run that stops inside of it. */
#ifndef LKI_RESUME_METRIC_STATE_H
#define LKI_RESUME_METRIC_STATE_H

#include <lockstep/checkpoint.h>
#include <lockstep/metric.h>
#include <lockstep/runner.h>

/* Under names that start with `prefix`. */
lk_status lki_metric_save(lk_metric *metric, lk_state_dict *state, const char *prefix);
lk_status lki_metric_restore(lk_metric *metric, const lk_state_dict *state, const char *prefix);
/* Adds what another rank has seen. */
lk_status lki_metric_restore_more(lk_metric *metric, const lk_state_dict *state, const char *prefix);

/* Those of the user's own code (pass_metrics.h): "own_metric.<name>…". */
lk_status lki_own_metrics_save(const lk_runner *runner, lk_state_dict *state);
lk_status lki_own_metrics_restore(lk_runner *runner, const lk_state_dict *state);

#endif
