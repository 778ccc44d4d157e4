/* The step inside, for the runner: what it saves and restores. */
#ifndef LKI_STEP_STEP_H
#define LKI_STEP_STEP_H

#include <lockstep/step.h>

#include "graph/mirror.h"
#include "graph/plan.h"
#include "step/flat.h"
#include "step/loss_scaler.h"
#include "step/replicas.h"
#include "step/resident.h"
#include "step/sample_losses.h"
#include "step/update.h"

/* A step keeps the plans of this many shapes, those that it has used last. */
enum { LKI_MAX_STEP_FIELDS = 16, LKI_MAX_STEP_PLANS = 64 };

/* What a recorded program of a plan does. */
typedef enum lki_program_kind {
    LKI_PROGRAM_EVALUATE,
    LKI_PROGRAM_ACCUMULATE, /* trains, without an update */
    LKI_PROGRAM_UPDATE,     /* trains, with one */
    LKI_PROGRAM_COUNT
} lki_program_kind;

/* A plan and the batch that it fits. */
typedef struct lki_step_plan {
    lki_plan *plan;
    bool training;
    int field_count;
    lk_dtype dtypes[LKI_MAX_STEP_FIELDS];
    lk_shape shapes[LKI_MAX_STEP_FIELDS];
    const char *names[LKI_MAX_STEP_FIELDS]; /* the plan's own */
    bool has_loss;
    lki_samples_wanted samples; /* that it was recorded for */
    lki_sample_rule sample_rule;
    int unreached; /* which set of parameters its loss does not reach (lki_slice.unreached_by); -1: none */
    uint64_t last_used;                           /* the batch that used it last, counted from the first */
    bool has_room, lacks_room;                    /* for the batch after this one; once it was looked for */
    bool has_run;                                 /* once call by call: kernels have warmed up */
    bool lacks_program;                           /* there was no room for one */
    void *programs[LKI_LANES][LKI_PROGRAM_COUNT]; /* the engine's recordings; NULL before they are made */
    uint64_t versions[LKI_LANES][LKI_PROGRAM_COUNT]; /* of the plan when each was made */
    uint64_t skips[LKI_LANES][LKI_PROGRAM_COUNT];    /* of the update then (lki_update_skips) */
} lki_step_plan;

/* A batch under way that others may follow before it is waited for. */
typedef struct lki_flight {
    int plan, lane; /* plans[plan] */
    bool training, draws;
    lk_generator before; /* where the generator stood when it was launched; only of one that draws */
} lki_flight;

struct lk_step {
    lk_step_options options;
    lk_engine *engine, *own_engine;
    lki_workspace *workspace;
    lki_mirror *mirror;        /* the parameters on the engine's device; NULL on the host */
    lki_mirror *borrowed;      /* copies of parameters that live on another engine; NULL: there are none */
    uint64_t borrowed_version; /* of the mirrors that they live in, all together; 0: not copied yet */
    lk_watched *watched;       /* where such an engine writes the losses, one a lane */
    lk_param_list params;      /* of the model, with full names */
    lki_flat flat;
    lki_scaler scaler;
    lki_update update;
    lki_replicas replicas;
    lki_residents residents; /* datasets whose rows are the batches */
    lki_step_plan *plans;
    int plan_count;
    uint64_t batch_count; /* batches begun */
    int set_count;        /* sets of parameters that some plan's loss does not reach */
    uint64_t generation;  /* of the parameters' places when the plans were compiled */
    lk_generator spare;   /* what batches without random numbers draw from */
    lki_step_plan *current;
    uint64_t run_number; /* of the run whose comm the step has taken by itself; 0: it has not */
    double loss;
    bool has_loss, update_due;
    lki_samples_wanted samples; /* of the batches that follow: sample_losses.h */
    lki_sample_losses sample_losses;
    lki_sample_rule recorded_rule; /* of the graph that is being recorded */
    int in_flight;                 /* recorded steps that were started and not waited for */
    int lane;                      /* of the batch that begins */
    lki_flight flights[LKI_LANES]; /* the oldest first */
    int flight_count;
};

/* device.c: steps on engines with memory of their own, and those that can be recorded. */

/* Gives every parameter a place where the engine reaches it. */
lk_status lki_step_place_params(lk_step *step);
/* Before a batch: the engine sees what others have made of the parameters since. */
lk_status lki_step_refresh_params(lk_step *step);
/* After the step has trained: others see what has become of them. */
lk_status lki_step_params_changed(lk_step *step);
void lki_step_release_params(lk_step *step);
/* Whether the whole step can be one program. */
bool lki_step_records(const lk_step *step);
/* Starts the step as one program; waits for it unless the step is asynchronous. */
lk_status lki_step_run_recorded(lk_step *step, bool training);
lk_status lki_step_finish(lk_step *step);
/* The last `count` training batches that were started count as never started. */
void lki_step_take_back(lk_step *step, int count);
void lki_step_free_programs(lk_step *step, lki_step_plan *plan);
void lki_step_free_lane(lk_step *step, lki_step_plan *plan, int lane);

/* Starts what was begun in the step's lane; `training` or not. */
lk_status lki_step_start(lk_step *step, bool training);

/* flight.c: one batch ahead. */

/* Whether a batch can be launched while another is under way: not one that must be compiled first, or without
 * a loss to watch, or of several ranks. */
bool lki_step_may_launch(lk_step *step, const lk_input *fields, int count, bool training);
/* Gives back what running ahead takes of the device's memory, from now on; false where that is nothing. */
bool lki_step_leave_lanes(lk_step *step);
/* Starts a batch without waiting for it; at most LKI_LANES are under way. */
lk_status lki_step_launch(lk_step *step, const lk_input *fields, int count, bool training);
/* Waits for the oldest batch under way: its loss and its outputs are the step's from here on. *lost: it went
 * wrong; it and those behind it have changed nothing, count as never launched, and are to be made again one
 * by one, so that what went wrong is found and said as ever. */
lk_status lki_step_land(lk_step *step, bool *lost);

/* step.c's, for the others. */
/* lk_step_train and lk_step_update without lki_step_show_params, for runs: those show parameters when they
 * call the program. */
lk_status lki_step_train(lk_step *step, const lk_input *fields, int count);
lk_status lki_step_update(lk_step *step);
/* Brings the parameters that the program holds, and their gradients, up to date with the device's copies. */
lk_status lki_step_show_params(lk_step *step);
/* For slices that have become late ones (lki_slice.since). The optimizer's state and counts start anew. */
lk_status lki_step_remake_update(lk_step *step);
lk_status lki_step_begin_in_lane(lk_step *step, const lk_input *fields, int count, bool training, int lane,
                                 bool ahead);
lki_step_plan *lki_step_find_plan(lk_step *step, const lk_input *fields, int count, bool training);
lk_status lki_step_check_loss(lk_step *step);
void lki_step_count_batches(lk_step *step, int count);
lk_generator *lki_step_generator(const lk_step *step);
/* Where a device takes the draws of the batch that begins: one that needs none does not move the step's
 * generator, whatever other plans the engine has. */
lk_generator *lki_step_source(lk_step *step);

#endif
