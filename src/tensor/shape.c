#include <lockstep/tensor.h>

#include "tensor/layout.h"

#include <stdio.h>

lk_shape lk_scalar_shape(void)
{
    return (lk_shape){0};
}

int64_t lk_shape_count(lk_shape shape)
{
    return lki_shape_count(&shape);
}

bool lk_shape_equal(lk_shape a, lk_shape b)
{
    return lki_shape_equal(&a, &b);
}

const char *lk_shape_format(char *text, size_t capacity, lk_shape shape)
{
    size_t used = (size_t)snprintf(text, capacity, "(");
    for (int i = 0; i < shape.rank && used < capacity; i++)
        used +=
            (size_t)snprintf(text + used, capacity - used, i ? ", %lld" : "%lld", (long long)shape.dim[i]);
    if (used < capacity) snprintf(text + used, capacity - used, shape.rank == 1 ? ",)" : ")");
    return text;
}
