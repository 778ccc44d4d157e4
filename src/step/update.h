/* The update half of a step: clipping, accumulation and the optimizer's rule as prepared calls over the flat
 * buffers.
 *
 * Neighbouring parameters of one group are updated by one call (LAMB wants one a parameter). Those that were
 * frozen meanwhile (lki_slice.since) have seen fewer updates than the others: their rule counts for itself,
 * as PyTorch's does. So it is with parameters that the losses of some batches do not reach
 * (lki_slice.unreached_by): an update whose batches all miss them leaves them and their state as they are.
 * Nothing here allocates after lki_update_init and lki_update_regroup. */
#ifndef LKI_STEP_UPDATE_H
#define LKI_STEP_UPDATE_H

#include "optim/optimizer.h"
#include "step/backend.h"
#include "step/flat.h"
#include "step/loss_scaler.h"

#include <lockstep/sys/engine.h>

/* What the rule goes by for parameters of a group that it has updated less often. */
typedef struct lki_late {
    int group;
    int64_t since;
    uint64_t unreached_by;
    lk_hyper hyper;
} lki_late;

/* What the batches of an update miss: the sets that each of them does not reach. */
typedef struct lki_missed {
    uint64_t sets;
    bool nothing; /* one of them reaches everything */
} lki_missed;

enum { LKI_KEPT_MISSES = 64 }; /* more than the batches that can be under way */

typedef struct lki_update_options {
    int accumulation_steps;
    double clip_norm, clip_value;
    const lki_scaler *scaler; /* borrowed; without numbers nothing is scaled */
    int part, part_count;     /* applies the rule to this of so many parts; 0 parts: to all */
} lki_update_options;

typedef struct lki_update {
    lk_engine *engine;
    lki_flat *flat;
    lki_backend *backend;
    lk_optimizer *optimizer;
    const lki_scaler *scaler;
    lk_call *calls; /* [accumulate] [unscale] [clip_norm] [clip_value] update... */
    lk_attr *attrs;
    lk_tensor *operands;
    int *layouts;
    lki_late *late;
    int late_count;
    int *call_late;                     /* the entry of `late` that a call goes by; -1: none */
    lki_missed missed;                  /* by the batches since the last update */
    lki_missed misses[LKI_KEPT_MISSES]; /* by those of the last updates, by their number */
    int call_count;
    int accumulate, unscale, clip_norm, clip_value, first_rule; /* where each stands; -1 for none */
    lk_hyper accumulate_hyper, norm_hyper, value_hyper;
    void *scratch;
    lki_update_options options;
    int accumulation_steps, accumulated;
    bool carries, carried; /* the sums hold gradients from before a restart; did so before the last update */
    int64_t step_count;    /* updates made */
    int part, part_count;
} lki_update;

/* Whether the rule can be applied to any part of the parameters by itself. */
bool lki_update_divides(const lk_optimizer *optimizer);

lk_status lki_update_init(lki_update *update, lki_backend *backend, lki_flat *flat, lk_optimizer *optimizer,
                          lki_update_options options);
void lki_update_fini(lki_update *update);
/* After slices have become part of another set: makes the calls anew. Counts and states stay. */
lk_status lki_update_regroup(lki_update *update);
/* A number for what the update that is due leaves out; 0: nothing. */
uint64_t lki_update_skips(const lki_update *update);

/* An update has two sides: the numbers it goes by, which change on the host before the calls are made or a
 * recording of them is replayed, and the calls.
 *
 * Before a batch's gradients are added up: counts the batch, whose loss does not reach the parameters of a
 * set
 * (-1: it reaches all); true when it is time to update. */
bool lki_update_count(lki_update *update, int unreached);
/* The count of the batches of a group starts anew; the gradients that are there already stay. */
void lki_update_restart(lki_update *update);
/* Before an update: counts it, and sets what the rule goes by. */
void lki_update_advance(lki_update *update);
/* Takes the last count and, where it led to one, the advance back: the batch was not used. */
void lki_update_retreat(lki_update *update);

lk_status lki_update_accumulate(lki_update *update); /* adds the batch's gradients up */
/* Whether the gradients are clipped after every batch, not only before an update: Catalyst clips after each
 * backward. With a loss scale they are clipped once per update, because only then are they unscaled. */
bool lki_update_clips_each(const lki_update *update);
lk_status lki_update_clip(lki_update *update);
lk_status lki_update_apply(lki_update *update); /* unscales, clips and applies the rule */
/* The first half of that, then the rule call by call: parameters [*data, *data + *nbytes) are new. */
lk_status lki_update_prepare(lki_update *update);
lk_status lki_update_apply_call(lki_update *update, int index, void **data, size_t *nbytes);

#endif
