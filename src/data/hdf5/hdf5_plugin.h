/* liblockstep_hdf5.so: base/plugin.h. Its services are tensor/tensor_services.h. */
#ifndef LKI_DATA_HDF5_HDF5_PLUGIN_H
#define LKI_DATA_HDF5_HDF5_PLUGIN_H

#include <lockstep/data.h>

#include "base/plugin.h"
#include "data/hdf5.h"

typedef struct lki_hdf5_functions {
    __typeof__(&lk_hdf5_read) read;
    __typeof__(&lki_hdf5_find_place) find_place;
    __typeof__(&lki_hdf5_last_label) last_label;
} lki_hdf5_functions;

extern lki_plugin lki_hdf5; /* the library's side */

#endif
