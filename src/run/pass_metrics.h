/* The metrics of one pass over a loader: those of callbacks, and what the user's own code puts into
 * batch_metrics. Both are joined with the other ranks' when the loader ends; the latter are averaged over the
 * samples. */
#ifndef LKI_RUN_PASS_METRICS_H
#define LKI_RUN_PASS_METRICS_H

#include <lockstep/metric.h>
#include <lockstep/runner.h>

enum { LKI_MAX_PASS_METRICS = 64, LKI_MAX_OWN_METRICS = 64 };

/* The average of something that the user's own code reports of batches. */
typedef struct lki_own_metric {
    char *name;
    lk_metric *metric;
    bool is_seen; /* in this pass, on some rank once it has ended */
} lki_own_metric;

typedef struct lki_pass_metrics {
    lk_metric *metrics[LKI_MAX_PASS_METRICS]; /* of the callbacks, borrowed */
    int count;
    lki_own_metric own[LKI_MAX_OWN_METRICS]; /* sorted by name */
    int own_count;
} lki_pass_metrics;

/* A metric of a callback's; borrowed. */
lk_status lki_run_register_metric(lk_runner *runner, lk_metric *metric);
/* When a loader starts: forgets its last pass unless it goes on in the middle of one. */
lk_status lki_pass_metrics_start(lk_runner *runner);
/* After the callbacks have seen a batch, if somebody may report what was not declared. */
lk_status lki_own_metrics_update(lk_runner *runner);
/* Before the callbacks see the end of a loader. Collective. */
lk_status lki_own_metrics_report(lk_runner *runner);
void lki_pass_metrics_fini(lki_pass_metrics *pass);

/* The metric of that name, made if there is none yet. */
lk_status lki_own_metric_find(lki_pass_metrics *pass, const char *name, lki_own_metric **out);

/* Those of the user's own code begin anew. */
void lki_own_metrics_forget(lki_pass_metrics *pass);

/* A metric's values over the whole pass, by their names. */
lk_status lki_metric_report(lk_metric *metric, lk_metrics *out);

#endif
