/* The step inside, for the runner: what it saves and restores. */
#ifndef LKI_TRAIN_STEP_H
#define LKI_TRAIN_STEP_H

#include <lockstep/step.h>

#include "graph/plan.h"
#include "train/flat.h"
#include "train/replicas.h"
#include "train/update.h"

enum { LKI_MAX_STEP_FIELDS = 16 };

/* A plan and the batch that it fits. */
typedef struct lki_step_plan {
    lki_plan *plan;
    bool training;
    int field_count;
    lk_dtype dtypes[LKI_MAX_STEP_FIELDS];
    lk_shape shapes[LKI_MAX_STEP_FIELDS];
    const char *names[LKI_MAX_STEP_FIELDS]; /* the plan's own */
    const lk_tensor *loss;                  /* NULL where there is none */
} lki_step_plan;

struct lk_step {
    lk_step_options options;
    lk_engine *engine, *own_engine;
    lki_workspace *workspace;
    lk_param_list params; /* of the model, with full names */
    lki_flat flat;
    lki_update update;
    lki_replicas replicas;
    lki_step_plan *plans;
    int plan_count;
    uint64_t generation; /* of the parameters' places when the plans were compiled */
    lki_step_plan *current;
    double loss;
    bool has_loss, update_due;
};

#endif
