/* What the layers' constructors draw their first weights with. A NULL param (and a module that failed) passes
 * through. */
#ifndef LKI_NN_INIT_H
#define LKI_NN_INIT_H

#include "nn/module.h"

/* PyTorch's default for Linear and the convolutions: kaiming_uniform with a = sqrt(5) for the weight, then
 * U(-1/sqrt(fan_in), 1/sqrt(fan_in)) for the bias. Either may be NULL. */
void lki_init_weight_and_bias(lk_module *module, lk_param *weight, lk_param *bias);

/* Whether lk_skip_init is on. */
bool lki_init_skipped(void);

/* Elements that one output sees, and that see one input: PyTorch's _calculate_fan_in_and_fan_out. */
lk_status lki_fans(const lk_param *param, double *fan_in, double *fan_out);

#endif
