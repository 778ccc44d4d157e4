/* The fields of a batch, for code that asks for them at every batch. */
#ifndef LKI_DATA_BATCH_FIELDS_H
#define LKI_DATA_BATCH_FIELDS_H

#include <lockstep/data.h>

#include <string.h>

/* As lk_batch_get, without a call for a field that was gathered already. */
static inline lk_tensor *lki_batch_get(const lk_batch *batch, const char *name)
{
    for (int f = 0; batch && name && f < batch->field_count; f++)
        if (strcmp(batch->fields[f].name, name) == 0)
            return batch->fields[f].rows ? lk_batch_get(batch, name) : &batch->fields[f].tensor;
    return NULL;
}

#endif
