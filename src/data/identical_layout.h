/* Files that differ in nothing but an array's numbers.
 *
 * A simulation writes the same file at every checkpoint: all that HDF5 says about the array is the same, byte
 * for byte, only the numbers are not. Where that is so, the numbers lie where they lie in the first file, and
 * can be read from there without asking HDF5, whose opening of a file costs more than the reading of a small
 * one. A twin is what is remembered of the first file. */
#ifndef LKI_DATA_IDENTICAL_LAYOUT_H
#define LKI_DATA_IDENTICAL_LAYOUT_H

#include "data/hdf5.h"

typedef struct lki_twin {
    lki_hdf5_place place;
    int64_t file_nbytes;
    char *around; /* the bytes before the array, then those behind it; NULL: the file cannot have twins */
} lki_twin;

/* Remembers a file and where its array lies; one that cannot have twins gives an empty one. */
void lki_twin_init(lki_twin *twin, const char *path, const lki_hdf5_place *place);
void lki_twin_fini(lki_twin *twin);

/* Reads the array of a file that is a twin (the first one is, too) into place.nbytes of memory. False where
 * it is none; without an error. */
bool lki_twin_read(const lki_twin *twin, const char *path, void *data);

/* Reads an array from where it lies; false where the file is shorter. */
bool lki_place_read(const lki_hdf5_place *place, const char *path, void *data);

#endif
