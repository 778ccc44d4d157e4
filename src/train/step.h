/* The step inside, for the runner: what it saves and restores. */
#ifndef LKI_TRAIN_STEP_H
#define LKI_TRAIN_STEP_H

#include <lockstep/step.h>

#include "graph/mirror.h"
#include "graph/plan.h"
#include "train/flat.h"
#include "train/replicas.h"
#include "train/resident.h"
#include "train/scaler.h"
#include "train/update.h"

enum { LKI_MAX_STEP_FIELDS = 16 };

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
    bool has_run;                         /* once call by call: kernels have warmed up */
    void *programs[LKI_PROGRAM_COUNT];    /* the engine's recordings; NULL before they are made */
    uint64_t versions[LKI_PROGRAM_COUNT]; /* of the plan when each was made */
} lki_step_plan;

struct lk_step {
    lk_step_options options;
    lk_engine *engine, *own_engine;
    lki_workspace *workspace;
    lki_mirror *mirror;   /* the parameters on the engine's device; NULL on the host */
    double *watched_loss; /* where such an engine writes the loss */
    lk_param_list params; /* of the model, with full names */
    lki_flat flat;
    lki_scaler scaler;
    lki_update update;
    lki_replicas replicas;
    lki_residents residents; /* datasets whose rows are the batches */
    lki_step_plan *plans;
    int plan_count;
    uint64_t generation; /* of the parameters' places when the plans were compiled */
    lki_step_plan *current;
    double loss;
    bool has_loss, update_due;
    bool in_flight; /* a recorded step was started and not waited for */
    bool in_flight_advanced;
};

/* device.c: steps on engines with memory of their own, and those that can be recorded. */

/* Gives every parameter a place where the engine reaches it. */
lk_status lki_step_place_params(lk_step *step);
void lki_step_release_params(lk_step *step);
/* Whether the whole step can be one program. */
bool lki_step_records(const lk_step *step);
/* Starts the step as one program; waits for it unless the step is asynchronous. */
lk_status lki_step_run_recorded(lk_step *step, bool training);
lk_status lki_step_finish(lk_step *step);
void lki_step_free_programs(lk_step *step, lki_step_plan *plan);

/* step.c's, for device.c. */
lk_status lki_step_check_loss(lk_step *step);
void lki_step_count_batches(lk_step *step);
lk_generator *lki_step_generator(const lk_step *step);

#endif
