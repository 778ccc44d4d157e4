/* Which weights of a tensor are the least important: the methods of torch.nn.utils.prune. */
#ifndef LKI_CALLBACKS_PRUNE_H
#define LKI_CALLBACKS_PRUNE_H

#include <lockstep/tensor.h>

#include "data/keyed.h"

typedef struct lki_prune {
    bool structured; /* whole slices along `dim` */
    bool random;     /* else the smallest by their size, or by the norm of the slice */
    int dim;
    double l_norm;
} lki_prune;

/* By PyTorch's name: "l1_unstructured", "random_unstructured", "ln_structured" or "random_structured". dim
 * and l_norm are 0 where they were not given (LK_ZERO: 0); it is an error if the method needs them, or has no
 * use for them. */
lk_status lki_prune_read(lki_prune *out, const char *pruning_fn, double dim, double l_norm);

/* Whether a tensor of this shape can be pruned so. */
lk_status lki_prune_check(const lki_prune *how, lk_shape shape, double amount);

/* Clears more of the mask (u8, the shape of `weights`): `amount` of the weights or slices that are left, a
 * share if it is below 1. */
lk_status lki_prune_mask(const lki_prune *how, double amount, const lk_tensor *weights, lk_tensor *mask,
                         lki_keyed *random);

#endif
