#include <lockstep/data.h>

#include "data/rows.h"

#include <string.h>

/* The slot of the ring has room for it, whoever fills it. */
static void gather(const lk_batch *batch, lk_batch_field *field)
{
    lki_rows rows = lki_rows_of(field->rows, field->tensor.dtype);
    lki_rows_gather(&rows, batch->indices, batch->count, field->tensor.data);
    field->rows = NULL;
}

lk_tensor *lk_batch_get(const lk_batch *batch, const char *name)
{
    for (int f = 0; batch && name && f < batch->field_count; f++) {
        lk_batch_field *field = &batch->fields[f];
        if (strcmp(field->name, name) != 0) continue;
        if (field->rows) gather(batch, field);
        return &field->tensor;
    }
    return NULL;
}
