/* Files that differ in nothing but an array's numbers.
 *
 * A simulation writes the same file at every checkpoint: all that HDF5 says about the array is the same, byte
 * for byte, only the numbers are not. Where that is so, the numbers lie where they lie in the first file, and
 * can be read from there without asking HDF5, whose opening of a file costs more than the reading of a small
 * one. A twin is what is remembered of the first file. */
#ifndef LKI_DATA_FIELDS_TWIN_H
#define LKI_DATA_FIELDS_TWIN_H

#include "data/hdf5.h"

typedef struct lki_twin {
    lki_hdf5_place place;
    int64_t file_nbytes;
    char *around; /* the bytes before the array, then those behind it; NULL: the file cannot have twins */
} lki_twin;

/* Remembers a file; one that cannot have twins gives an empty one. */
void lki_twin_init(lki_twin *twin, const char *path, const char *label);
void lki_twin_fini(lki_twin *twin);

/* The array of a file that is a twin; NULL where it is none (without an error). */
lk_tensor *lki_twin_read(const lki_twin *twin, const char *path);

#endif
