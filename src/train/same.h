/* Whether ranks that are about to train together do the same: replicas that are updated differently would
 * come apart, and nobody would hear of it. */
#ifndef LKI_TRAIN_SAME_H
#define LKI_TRAIN_SAME_H

#include "train/run.h"

#include <lockstep/step.h>

/* Collective. Fails on every rank, with the same sentence, if one has another model than rank 0 (names,
 * dtypes, shapes, what is frozen) or another way to train it (the engine and its kernels, the optimizer, its
 * numbers, accumulation, clipping, precision). `options` name the engine. */
lk_status lki_check_same_training(const lk_step_options *options, const lk_param_list *params);

/* Collective, of any texts: `ours` has a line per thing that has to be the same. Fails on every rank with
 * `what` and the first line in which a rank differs from rank 0. */
lk_status lki_check_same_text(lk_comm *comm, const char *what, const char *ours);

/* same_run.c. Collective, before the engine is opened: ranks of different builds or architectures are
 * refused, and all take the widest vector level that every one of them has (lki_run.cpu_level). */
lk_status lki_agree_on_kernels(lk_runner *runner);

/* Collective, once the engine is open: fails like lki_check_same_training if the ranks were told different
 * things (seed, epochs, device, precision, loaders) or read different data. */
lk_status lki_check_same_run(lk_runner *runner);

#endif
