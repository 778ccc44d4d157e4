/* A dataset over rows in memory: what MNIST, tensors, .npy, .safetensors, CSV, HDF5 and drawn digits all
 * become.
 *
 * It owns one tensor a field, whose buffer may be allocated or mapped from a file. */
#ifndef LKI_DATA_MEMORY_DATASET_H
#define LKI_DATA_MEMORY_DATASET_H

#include <lockstep/sys/dataset.h>

/* One field: its tensor (samples, ...), contiguous, and what its values become in a batch. */
typedef struct lki_memory_field {
    const char *name;
    lk_tensor *tensor; /* owned by the dataset from the call on, also when the call fails */
    lk_dtype dtype;
    lk_shape shape;           /* of one sample; its count must be the tensor's */
    float divisor, mean, std; /* 0, 0, 0 means: as stored */
} lki_memory_field;

lk_dataset *lki_memory_dataset_create(const lki_memory_field *fields, int field_count);

/* A field of the tensor's own dtype and shape. */
lki_memory_field lki_memory_field_of(const char *name, lk_tensor *tensor);

#endif
