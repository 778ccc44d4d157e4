/* One batch of supervised training: the step that does it, and what callbacks see of it. */
#ifndef LKI_RUN_BATCH_H
#define LKI_RUN_BATCH_H

#include <lockstep/runner.h>

enum { LKI_MAX_MADE = 16, LKI_MAX_ACCUMULATION_CHANGES = 16 };

/* A tensor that a callback has made of the batch, borrowed until the next one. */
typedef struct lki_made {
    const char *key;
    const lk_tensor *tensor;
} lki_made;

/* From an epoch on: how many batches an update takes. */
typedef struct lki_accumulation_change {
    int64_t epoch;
    int steps;
} lki_accumulation_change;

typedef struct lki_run_batch {
    lk_step_options step_options; /* what the optimizer callback asks for: accumulation, clipping */
    lk_state_dict *kept;          /* what runner->optimizer knows while it has no step: kept_optimizer.h */
    const lk_batch *under_way;    /* launched, and nobody has looked at it yet; NULL for none */
    lki_made made[LKI_MAX_MADE];
    int made_count;
    lki_made outputs[LKI_MAX_MADE]; /* of the step, that somebody has asked for: batch_tensor.h */
    int output_count;
    uint64_t outputs_of; /* number of the step's batch that they are of */
    lki_accumulation_change changes[LKI_MAX_ACCUMULATION_CHANGES]; /* by rising epochs */
    int change_count, first_steps; /* before the first of them; step_options has the most of all */
    bool restarts_groups;          /* of accumulated batches, with each epoch */
    bool nan_ends_run;  /* a loss that is not a number ends the run in order instead of failing it */
    bool said_diverged; /* a loss was so large that the user was warned */
} lki_run_batch;

/* Makes the runner's step, unless the one it has fits. */
lk_status lki_run_prepare_step(lk_runner *runner);
/* Adds this batch's number to a mean metric: the loss of the runner's step sample by sample if it is known so
 * (sample_losses.h), anything else as one number for the samples that count. */
lk_status lki_run_add_loss(lk_runner *runner, const char *name, lk_metric *metric);

/* One batch ahead: whether this one can be launched while another is under way, doing so, and waiting for the
 * oldest; see lki_step_land. */
bool lki_run_may_launch_batch(lk_runner *runner, const lk_batch *batch);
lk_status lki_run_launch_batch(lk_runner *runner, const lk_batch *batch);
lk_status lki_run_land_batch(lk_runner *runner, bool *lost);

#endif
