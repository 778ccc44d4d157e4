/* Modules with several inputs, inside the library. */
#ifndef LKI_NN_NODES_H
#define LKI_NN_NODES_H

#include "nn/module.h"
#include <lockstep/nodes.h>

/* Whether a module may get more than one value. */
bool lki_module_takes_several(const lk_module *module);
bool lki_is_attention(const lk_module *module);

#endif
