#include "tensor/tensor_services.h"

const lki_tensor_services lki_tensor_services_table = {.create = lk_tensor_create, .free = lk_tensor_free};
