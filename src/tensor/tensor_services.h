/* What plug-ins that make tensors use of the library, beyond base/plugin.h. In them, the usual names are
 * given by tensor/tensor_inside_plugin.c. */
#ifndef LKI_TENSOR_TENSOR_SERVICES_H
#define LKI_TENSOR_TENSOR_SERVICES_H

#include <lockstep/tensor.h>

typedef struct lki_tensor_services {
    __typeof__(&lk_tensor_create) create;
    __typeof__(&lk_tensor_free) free;
} lki_tensor_services;

extern const lki_tensor_services lki_tensor_services_table;

#endif
