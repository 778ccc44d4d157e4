/* The step inside, for the runner: what it saves and restores. */
#ifndef LKI_STEP_STEP_H
#define LKI_STEP_STEP_H

#include <lockstep/step.h>

#include "base/status.h"
#include "graph/plan.h"
#include "step/announced_rows.h"
#include "step/backend.h"
#include "step/flat.h"
#include "step/loss_scaler.h"
#include "step/packed_fields.h"
#include "step/replicas.h"
#include "step/sample_losses.h"
#include "step/shards.h"
#include "step/uneven.h"
#include "step/update.h"
#include "tensor/element.h"

/* A step keeps the plans of this many shapes, those that it has used last. */
enum { LKI_MAX_STEP_FIELDS = 16, LKI_MAX_STEP_PLANS = 64 };

/* A plan and the batch that it fits. */
typedef struct lki_step_plan {
    lki_plan *plan;
    bool training;
    int field_count;
    lk_dtype dtypes[LKI_MAX_STEP_FIELDS];
    lk_shape shapes[LKI_MAX_STEP_FIELDS];
    const char *names[LKI_MAX_STEP_FIELDS]; /* the plan's own */
    const lk_tensor *loss;                  /* where the engine has it; NULL: the plan computes none */
    lki_samples_wanted samples;             /* that it was recorded for */
    lki_sample_rule sample_rule;
    int unreached; /* which set of parameters its loss does not reach (lki_slice.unreached_by); -1: none */
    uint64_t last_used; /* the batch that used it last, counted from the first */
    int in_flight;      /* batches that were launched with it and have not landed */
} lki_step_plan;

struct lk_step {
    lk_step_options options;
    lk_engine *engine, *own_engine;
    lki_workspace *workspace;
    lki_backend *backend; /* how batches are replayed, and where the numbers live */
    lk_param_list params; /* of the model, with full names */
    lki_flat flat;
    lki_scaler scaler;
    lki_update update;
    lki_replicas replicas;
    lki_shards shards;
    lki_announcements rows; /* fields of the next batch that are rows of something larger */
    lki_step_plan *plans;
    int plan_count;
    uint64_t batch_count; /* batches begun */
    int set_count;        /* sets of parameters that some plan's loss does not reach */
    uint64_t generation;  /* of the parameters' places when the plans were compiled */
    lki_step_plan *current;
    uint64_t run_number; /* of the run whose comm the step has taken by itself; 0: it has not */
    double loss;
    bool has_loss, update_due;
    lki_samples_wanted samples; /* of the batches that follow: sample_losses.h */
    lki_sample_losses sample_losses;
    lki_sample_rule recorded_rule; /* of the graph that is being recorded */
    lki_packed_fields packed;      /* copies of fields that were not contiguous */
    lki_uneven uneven;             /* how much this rank's batch counts */
};

/* One batch ahead, for backends that can (lki_engine_runs_ahead). */

/* Whether a batch can be launched while another is in flight: not one that must be compiled first, or without
 * a loss to watch, or of several ranks. */
static inline bool lki_step_may_launch(lk_step *step, const lk_input *fields, int count, bool training)
{
    const lki_backend_ops *ops = step->backend->ops;
    return ops->may_launch && ops->may_launch(step, fields, count, training);
}

/* Starts a batch without waiting for it, after may_launch. */
static inline lk_status lki_step_launch(lk_step *step, const lk_input *fields, int count, bool training)
{
    return step->backend->ops->launch(step, fields, count, training);
}

/* Waits for the oldest batch in flight: its loss and its outputs are the step's from here on. *lost: it went
 * wrong; it and those behind it have changed nothing, count as never launched, and are to be made again one
 * by one, so that what went wrong is found and said as ever. */
static inline lk_status lki_step_land(lk_step *step, bool *lost)
{
    return step->backend->ops->land(step, lost);
}

/* Before a batch: the engine sees what others have made of the parameters. On the host those are newer that
 * live with a step of another engine. */
static inline lk_status lki_step_refresh_params(lk_step *step)
{
    if (step->backend->ops->refresh_params) return step->backend->ops->refresh_params(step);
    for (int i = 0; i < step->params.count; i++) LKI_TRY(lki_param_pull(step->params.items[i].param));
    return LK_OK;
}

/* After the step has trained: others see what has become of them. */
static inline lk_status lki_step_params_changed(lk_step *step)
{
    if (step->backend->ops->params_changed) return step->backend->ops->params_changed(step);
    for (int i = 0; i < step->params.count; i++) lki_param_push(step->params.items[i].param);
    return LK_OK;
}

/* Of the plan's last replay, into step->loss. */
static inline lk_status lki_step_read_loss(lk_step *step)
{
    const lk_tensor *loss = step->current->loss;
    if (step->backend->ops->read_loss) return step->backend->ops->read_loss(step);
    if (loss) step->loss = lki_load(loss->dtype, loss->data, 0);
    return LK_OK;
}

/* Waits for batches that were started and not waited for, and reports their errors. */
static inline lk_status lki_step_finish(lk_step *step)
{
    return step->backend->ops->finish ? step->backend->ops->finish(step) : LK_OK;
}

/* Whether the whole step is one program. */
static inline bool lki_step_records(const lk_step *step)
{
    return step->backend->ops->records && step->backend->ops->records(step);
}

/* step.c's, for the others. */
/* lk_step_train and lk_step_update without lki_step_show_params, for runs: those show parameters when they
 * call the program. */
lk_status lki_step_train(lk_step *step, const lk_input *fields, int count);
lk_status lki_step_update(lk_step *step);
/* Brings the parameters that the program holds, and their gradients, up to date with what the engine has. */
lk_status lki_step_pull_shown(lk_step *step);
static inline lk_status lki_step_show_params(lk_step *step)
{
    return step->backend->ops->on_host ? LK_OK : lki_step_pull_shown(step);
}
/* For slices that have become late ones (lki_slice.since). The optimizer's state and counts start anew. */
lk_status lki_step_remake_update(lk_step *step);
/* As lk_step_begin, whatever is in flight. */
lk_status lki_step_begin(lk_step *step, const lk_input *fields, int count, bool training);
/* One shard's batch, once it has begun: up to its loss, and the gradients. */
lk_status lki_step_run_to_loss(lk_step *step);
lk_status lki_step_run_backward(lk_step *step);
lk_status lki_step_check_fields(const lk_step *step, const lk_input *fields, int count);
lki_step_plan *lki_step_find_plan(lk_step *step, const lk_input *fields, int count, bool training);
lk_status lki_step_check_loss(lk_step *step);
lk_generator *lki_step_generator(const lk_step *step);

#endif
