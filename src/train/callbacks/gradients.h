/* The gradients that the coming update will use: summed over the accumulated batches. */
#ifndef LKI_TRAIN_CALLBACKS_GRADIENTS_H
#define LKI_TRAIN_CALLBACKS_GRADIENTS_H

#include "train/step.h"

/* *data stays NULL where no update follows this batch. The sum holds `scale` batches. */
static inline lk_status lki_gradients(lk_step *step, float **data, double *scale)
{
    *data = NULL;
    if (!step || !step->update_due || step->flat.dtype != LK_F32) return LK_OK;
    float *gradients = lki_buffer_data(step->flat.sums ? step->flat.sums : step->flat.grads);
    lk_status status = lki_mirror_pull_block(step->mirror, gradients);
    if (status != LK_OK) return status;
    *data = gradients;
    *scale = step->update.accumulation_steps;
    return LK_OK;
}

#endif
