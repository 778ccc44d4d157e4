/* What a supervised batch computes and minimises: the criteria of the CriterionCallbacks, sums of them
 * (MetricAggregationCallback), and the one of these that the backward half begins with.
 *
 * Callbacks add their part when the experiment starts; what they give is borrowed until the run is torn down.
 * As long as that is one criterion over the runner's own keys, the step is the plain supervised one. */
#ifndef LKI_RUN_OBJECTIVE_H
#define LKI_RUN_OBJECTIVE_H

#include <lockstep/runner.h>

enum { LKI_MAX_CRITERIA = 16 };

/* criterion(inputs, targets), reported as metric_key. A key may be several, with commas between them. */
typedef struct lki_criterion_term {
    const char *input_key, *target_key, *metric_key;
    const char *criterion_key; /* NULL: the run's criterion */
    lk_criterion *criterion;   /* found when the run starts */
} lki_criterion_term;

/* sum(w x) of earlier terms and sums, divided by sum(w) for a mean. */
typedef struct lki_sum {
    const char *metric_key;
    char *const *names;    /* NULL: of all metrics, which nothing can be minimised by */
    const double *weights; /* one per name; NULL: all 1 */
    bool divides;
} lki_sum;

typedef struct lki_objective {
    lki_criterion_term terms[LKI_MAX_CRITERIA];
    lki_sum sums[LKI_MAX_CRITERIA];
    int term_count, sum_count;
    const char *minimized, *said_by; /* the metric, and who named it; NULL: the runner's loss_key */
    const lk_runner *runner;
    bool is_special;  /* more than the runner's own criterion over its own keys */
    bool has_step;    /* the runner's step was made for it */
    bool has_several; /* several losses are to be minimised, which only a handle_batch can do */
} lki_objective;

/* For the callbacks, at the start of the experiment. */
lk_status lki_objective_add_term(lk_runner *runner, lki_criterion_term term);
lk_status lki_objective_add_sum(lk_runner *runner, lki_sum sum);
lk_status lki_objective_minimize(lk_runner *runner, const char *who, const char *metric_key);

/* When all have started: finds the criteria, and refuses a loss that is nobody's. */
lk_status lki_objective_settle(lk_runner *runner);

/* The name of the loss. */
static inline const char *lki_objective_key(const lki_objective *objective, const lk_runner *runner)
{
    return objective->minimized ? objective->minimized : runner->loss_key;
}
/* Fails if the runner's own step cannot do what the callbacks ask for. */
lk_status lki_objective_check_step(const lk_runner *runner);
/* Makes the step record the objective. */
void lki_objective_apply(lk_runner *runner, lk_step_options *options);
/* Whether the step records what it should. */
static inline bool lki_objective_is_of(const lki_objective *objective, const lk_step_options *made)
{
    return objective->is_special ? objective->has_step : made->function == NULL;
}
/* The criteria's values of the last batch, into batch_metrics, if it is special. */
lk_status lki_objective_report(lk_runner *runner);

#endif
