#include <lockstep/data.h>

#include <string.h>

lk_tensor *lk_batch_get(const lk_batch *batch, const char *name)
{
    for (int f = 0; batch && name && f < batch->field_count; f++)
        if (strcmp(batch->fields[f].name, name) == 0) return &batch->fields[f].tensor;
    return NULL;
}
