/* What the other readers of HDF5 files ask for, beside lk_hdf5_read. */
#ifndef LKI_DATA_HDF5_H
#define LKI_DATA_HDF5_H

#include <stddef.h>

/* The label that lk_hdf5_read(path, NULL) reads, for messages; "" where there is none. */
void lki_hdf5_last_label(const char *path, char *label, size_t capacity);

#endif
