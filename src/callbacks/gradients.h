/* The gradients that the coming update will use: summed over the batches so far and, if an update follows
 * this batch, averaged over the ranks; in f16 multiplied with the loss scale. */
#ifndef LKI_CALLBACKS_GRADIENTS_H
#define LKI_CALLBACKS_GRADIENTS_H

#include "step/step.h"

/* What the loss was multiplied with. The number may be newer where the engine works. */
static inline lk_status lki_gradients_loss_scale(lk_step *step, double *scale)
{
    *scale = 1;
    if (!step->scaler.numbers) return LK_OK;
    lk_status status = lki_backend_pull_block(step->backend, lki_buffer_data(step->scaler.numbers));
    if (status == LK_OK) *scale = lki_scaler_get(&step->scaler, LK_SCALER_SCALE);
    return status;
}

/* *data, of the flat buffers' dtype, stays NULL if there are none. They are `scale` times those of the loss.
 */
static inline lk_status lki_gradients(lk_step *step, void **data, double *scale)
{
    *data = NULL;
    if (!step) return LK_OK;
    void *gradients = lki_buffer_data(step->flat.sums ? step->flat.sums : step->flat.grads);
    lk_status status = lki_backend_pull_block(step->backend, gradients);
    if (status == LK_OK) status = lki_gradients_loss_scale(step, scale);
    if (status != LK_OK) return status;
    *data = gradients;
    return LK_OK;
}

#endif
