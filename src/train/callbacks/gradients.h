/* The gradients that the coming update will use: summed over the accumulated batches. */
#ifndef LKI_TRAIN_CALLBACKS_GRADIENTS_H
#define LKI_TRAIN_CALLBACKS_GRADIENTS_H

#include "train/step.h"

/* False where no update follows this batch. The sum holds `scale` batches. */
static inline bool lki_gradients(lk_step *step, float **data, double *scale)
{
    if (!step || !step->update_due || step->flat.dtype != LK_F32) return false;
    *data = lki_buffer_data(step->flat.sums ? step->flat.sums : step->flat.grads);
    *scale = step->update.accumulation_steps;
    return true;
}

#endif
