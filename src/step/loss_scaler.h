/* Loss scaling for f16: small gradients become zero in f16, so the loss's gradient starts with a large factor
 * that the update takes out again. As PyTorch's GradScaler: an update whose gradients are not finite is
 * skipped and the factor becomes smaller; after enough good ones it becomes larger.
 *
 * Its numbers (lk_scaler_field) lie where the gradients do and are changed by ops alone, so that a recorded
 * step needs no host. Life: between lki_scaler_init and lki_scaler_fini, inside of the step that owns it. One
 * thread. */
#ifndef LKI_STEP_LOSS_SCALER_H
#define LKI_STEP_LOSS_SCALER_H

#include <lockstep/step.h>

#include "tensor/buffer.h"

typedef struct lki_scaler {
    lk_buffer *numbers; /* LK_SCALER_COUNT of the parameters' dtype; NULL: the step scales nothing */
    lk_dtype dtype;
    lk_param *scale; /* the first of them, for the graph */
    lk_scaler_options options;
} lki_scaler;

lk_status lki_scaler_init(lki_scaler *scaler, lk_dtype dtype, lk_scaler_options options);
void lki_scaler_fini(lki_scaler *scaler);

/* Makes the backward half of `graph` begin with the scale instead of 1. */
lk_status lki_scaler_seed(const lki_scaler *scaler, lk_graph *graph, const lk_value *loss);

/* On the host's copy. */
double lki_scaler_get(const lki_scaler *scaler, lk_scaler_field field);
void lki_scaler_set(lki_scaler *scaler, lk_scaler_field field, double value);

#endif
