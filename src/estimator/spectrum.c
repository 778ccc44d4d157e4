/* Profiles and power spectra. */
#include "estimator/estimator.h"

#include "base/memory.h"
#include "base/status.h"
#include "data/fields.h"

#include <math.h>

lk_tensor *lk_profile(const lk_tensor *field, int dims, int axis)
{
    lki_box box;
    int64_t samples, channels;
    if (lki_field_axes(field, dims, &box, &samples, &channels)) return NULL;
    if (axis < 0 || axis >= dims)
        return lki_fail_null(LK_ERR_RANGE, "profile: axis %d of a field in %d dimensions", axis, dims);
    int along = LK_MAX_SPATIAL - dims + axis;
    lk_tensor *wide = lk_tensor_cast(field, LK_F64);
    lk_tensor *out = wide ? lk_tensor_create(LK_F64, LK_SHAPE(samples * channels, box.size[along])) : NULL;
    const double *value = wide ? wide->data : NULL;
    int64_t at[LK_MAX_SPATIAL], points = box.size[0] * box.size[1] * box.size[2];
    for (int64_t row = 0; out && row < samples * channels; row++) {
        double *means = (double *)out->data + row * box.size[along];
        for (at[0] = 0; at[0] < box.size[0]; at[0]++)
            for (at[1] = 0; at[1] < box.size[1]; at[1]++)
                for (at[2] = 0; at[2] < box.size[2]; at[2]++) means[at[along]] += *value++;
        for (int64_t i = 0; i < box.size[along]; i++) means[i] /= (double)(points / box.size[along]);
    }
    lk_tensor_free(wide);
    return out;
}

/* The power of each mode goes to the shell that is nearest to its wave number. */
static void sum_shells(double *energy, int64_t shells, const double *power, const lki_box *box)
{
    int64_t k[LK_MAX_SPATIAL];
    for (k[0] = 0; k[0] < box->size[0]; k[0]++)
        for (k[1] = 0; k[1] < box->size[1]; k[1]++)
            for (k[2] = 0; k[2] < box->size[2]; k[2]++, power++) {
                double squared = 0;
                for (int i = 0; i < LK_MAX_SPATIAL; i++) {
                    double number = (double)lki_wave_number(k[i], box->size[i]);
                    squared += number * number;
                }
                int64_t shell = (int64_t)floor(sqrt(squared) + 0.5);
                if (shell >= 1 && shell <= shells) energy[shell - 1] += 0.5 * *power;
            }
}

static lk_status add_powers(double *power, const lk_tensor *field, int64_t rows, const lki_box *box)
{
    lk_status status = LK_OK;
    lk_tensor *wide = lk_tensor_cast(field, LK_F64);
    if (!wide) return lki_last_status();
    int64_t points = box->size[0] * box->size[1] * box->size[2];
    for (int64_t row = 0; row < rows && !status; row++)
        status = lki_fft_add_power(power, (const double *)wide->data + row * points, box);
    lk_tensor_free(wide);
    return status;
}

lk_status lk_power_spectrum(const lk_tensor *field, int dims, lk_tensor **wave_numbers, lk_tensor **energy)
{
    lki_box box;
    int64_t samples, channels;
    *wave_numbers = *energy = NULL;
    LKI_TRY(lki_field_axes(field, dims, &box, &samples, &channels));
    int64_t shells = INT64_MAX;
    for (int i = LK_MAX_SPATIAL - dims; i < LK_MAX_SPATIAL; i++)
        if (box.size[i] / 2 < shells) shells = box.size[i] / 2;
    if (shells < 1) return lki_fail(LK_ERR_SHAPE, "power spectrum: an axis of one point has no waves");
    LKI_SCOPED double *power = LKI_NEW_ARRAY(double, box.size[0] * box.size[1] * box.size[2]);
    if (!power) return LK_ERR_NOMEM;
    LKI_TRY(add_powers(power, field, samples * channels, &box));
    *wave_numbers = lk_tensor_create(LK_F64, LK_SHAPE(shells));
    *energy = lk_tensor_create(LK_F64, LK_SHAPE(shells));
    if (!*wave_numbers || !*energy) {
        lk_tensor_free(*wave_numbers);
        lk_tensor_free(*energy);
        *wave_numbers = *energy = NULL;
        return LK_ERR_NOMEM;
    }
    sum_shells((*energy)->data, shells, power, &box);
    for (int64_t i = 0; i < shells; i++) lk_tensor_set(*wave_numbers, i, (double)(i + 1));
    return LK_OK;
}
