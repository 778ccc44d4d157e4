/* Datasets over NumPy's .npy files. */
#include <lockstep/data.h>

#include "base/status.h"
#include "data/memory_dataset.h"
#include "tensor/npy.h"

lk_tensor *lk_npy_read(const char *path)
{
    return lki_npy_read(path);
}

lk_dataset *lk_npy_dataset_with(const lk_named_file *files, int count)
{
    if (count < 1 || count > LK_MAX_FIELDS)
        return lki_fail_null(LK_ERR_INVALID, "a dataset has 1 to %d fields, not %d", LK_MAX_FIELDS, count);
    lki_memory_field fields[LK_MAX_FIELDS];
    for (int i = 0; i < count; i++) {
        lk_tensor *tensor = lk_npy_read(files[i].path);
        if (!tensor) {
            while (--i >= 0) lk_tensor_free(fields[i].tensor);
            return NULL;
        }
        fields[i] = lki_memory_field_of(files[i].name, tensor);
    }
    return lki_memory_dataset_create(fields, count);
}
