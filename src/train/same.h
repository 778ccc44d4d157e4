/* Whether ranks that are about to train together do the same: replicas that are updated differently would
 * come apart, and nobody would hear of it. */
#ifndef LKI_TRAIN_SAME_H
#define LKI_TRAIN_SAME_H

#include <lockstep/step.h>

/* Collective. Fails on every rank, with the same sentence, where one has another model than rank 0 (names,
 * dtypes, shapes, what is frozen) or another way to train it (the optimizer, its numbers, accumulation,
 * clipping, precision). */
lk_status lki_check_same_training(const lk_step_options *options, const lk_param_list *params);

#endif
