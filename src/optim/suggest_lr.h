/* What a test of learning rates says: the rate at which the loss falls most steeply, over a logarithmic axis,
 * before it is at its lowest. Losses are smoothed, since each is one batch's. */
#ifndef LKI_OPTIM_SUGGEST_LR_H
#define LKI_OPTIM_SUGGEST_LR_H

#include <stdint.h>

/* NaN if there are fewer than eight steps, or the loss never falls. smoothed (count), if wanted, receives the
 * losses that were looked at. */
double lki_suggest_lr(const double *rates, const double *losses, int64_t count, double *smoothed);

#endif
