/* Whether ranks that are about to train together do the same: replicas that are updated differently would
 * come apart, and nobody would hear of it. */
#ifndef LKI_STEP_SAME_TRAINING_H
#define LKI_STEP_SAME_TRAINING_H

#include "nn/module.h"

#include <lockstep/step.h>
#include <lockstep/sys/comm.h>

/* Collective. Fails on every rank, with the same sentence, if one has another model than rank 0 (names,
 * dtypes, shapes, what is frozen) or another way to train it (the engine and its kernels, the optimizer, its
 * numbers, accumulation, clipping, precision). `options` name the engine. */
lk_status lki_check_same_training(const lk_step_options *options, const lk_param_list *params);

/* Collective, of any texts: `ours` has a line per thing that has to be the same. Fails on every rank with
 * `what` and the first line in which a rank differs from rank 0. */
lk_status lki_check_same_text(lk_comm *comm, const char *what, const char *ours);

#endif
