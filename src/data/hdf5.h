/* What the other readers of HDF5 files ask for, beside lk_hdf5_read. */
#ifndef LKI_DATA_HDF5_H
#define LKI_DATA_HDF5_H

#include <lockstep/tensor.h>

#include <stddef.h>
#include <stdint.h>

/* The label that lk_hdf5_read(path, NULL) reads, for messages; "" where there is none. */
void lki_hdf5_last_label(const char *path, char *label, size_t capacity);

/* What an array is, and where it lies in its file as plain numbers of this machine: `offset` is -1 where it
 * does not (chunks, compression, another byte order). Label and errors as of lk_hdf5_read. */
typedef struct lki_hdf5_place {
    int64_t offset, nbytes;
    lk_dtype dtype;
    lk_shape shape;
} lki_hdf5_place;
lk_status lki_hdf5_find_place(const char *path, const char *label, lki_hdf5_place *out);

#endif
