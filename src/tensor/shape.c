#include <lockstep/tensor.h>

#include <stdio.h>

lk_shape lk_scalar_shape(void)
{
    return (lk_shape){0};
}

int64_t lk_shape_count(lk_shape shape)
{
    int64_t count = 1;
    for (int i = 0; i < shape.rank; i++) count *= shape.dim[i];
    return count;
}

bool lk_shape_equal(lk_shape a, lk_shape b)
{
    if (a.rank != b.rank) return false;
    for (int i = 0; i < a.rank; i++)
        if (a.dim[i] != b.dim[i]) return false;
    return true;
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
