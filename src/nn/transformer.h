/* The layers of transformers, for the stacks of them. */
#ifndef LKI_NN_TRANSFORMER_H
#define LKI_NN_TRANSFORMER_H

#include "nn/module.h"

bool lki_is_encoder_layer(const lk_module *module);
bool lki_is_decoder_layer(const lk_module *module);

/* lk_module_call for one output; NULL if it fails. */
lk_value *lki_call_for_one(lk_module *module, lk_value *const *inputs, int count);

#endif
