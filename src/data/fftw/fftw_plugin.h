/* liblockstep_fftw.so: base/plugin.h. */
#ifndef LKI_DATA_FFTW_FFTW_PLUGIN_H
#define LKI_DATA_FFTW_FFTW_PLUGIN_H

#include "base/plugin.h"
#include "data/fields.h"

typedef struct lki_fftw_functions {
    __typeof__(&lki_fft_multiply) multiply;
    __typeof__(&lki_fft_add_power) add_power;
} lki_fftw_functions;

extern lki_plugin lki_fftw; /* the library's side */

#endif
