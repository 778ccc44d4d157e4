/* Fourier transforms of fields. What computes them is a plug-in. */
#include "data/fields.h"

#include "base/plugin.h"
#include "base/status.h"
#include "data/fftw/fftw_plugin.h"

lki_plugin lki_fftw = {
    .name = "fftw",
    .library = "FFTW",
    .package = "libfftw3-dev",
    .functions_nbytes = sizeof(lki_fftw_functions),
};

lk_status lki_fft_multiply(double *values, int64_t rows, const lki_box *box, lki_fft_factor factor,
                           void *context)
{
    const lki_fftw_functions *fftw = lki_plugin_open(&lki_fftw);
    return fftw ? fftw->multiply(values, rows, box, factor, context) : LK_ERR_UNSUPPORTED;
}

lk_status lki_fft_add_power(double *power, const double *values, const lki_box *box)
{
    const lki_fftw_functions *fftw = lki_plugin_open(&lki_fftw);
    return fftw ? fftw->add_power(power, values, box) : LK_ERR_UNSUPPORTED;
}
