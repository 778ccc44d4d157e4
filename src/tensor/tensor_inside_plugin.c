/* Compiled into plug-ins that make tensors: the names that they use of the library, over its table. */
#include "base/plugin.h"
#include "tensor/tensor_services.h"

static const lki_tensor_services *library(void)
{
    return lki_inside_plugin_services;
}

lk_tensor *lk_tensor_create(lk_dtype dtype, lk_shape shape)
{
    return library()->create(dtype, shape);
}

void lk_tensor_free(lk_tensor *tensor)
{
    library()->free(tensor);
}
