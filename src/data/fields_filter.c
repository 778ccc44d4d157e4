/* Filters of periodic fields, and turbulence made up: each is a factor for every Fourier mode. */
#include "data/fields.h"

#include "base/memory.h"
#include "base/status.h"

#include <math.h>
#include <string.h>

/* ---- A filter along one axis, the same for all axes ---- */

typedef struct axis_factors {
    double *axis[LK_MAX_SPATIAL]; /* (size, 2): real and imaginary part for every place */
} axis_factors;

static void product_of_axes(const int64_t k[LK_MAX_SPATIAL], double factor[2], void *context)
{
    const axis_factors *factors = context;
    double re = 1, im = 0;
    for (int i = 0; i < LK_MAX_SPATIAL; i++) {
        const double *f = factors->axis[i] + 2 * k[i];
        double next = re * f[0] - im * f[1];
        im = re * f[1] + im * f[0];
        re = next;
    }
    factor[0] = re;
    factor[1] = im;
}

/* What a filter is on an axis of n points: its transform into `out` (n, 2). */
typedef void (*axis_filter)(double *out, int64_t n, double size);

static lk_status apply(double *values, int64_t rows, const lki_box *box, axis_filter filter, double size)
{
    axis_factors factors = {0};
    lk_status status = LK_OK;
    for (int i = 0; i < LK_MAX_SPATIAL && !status; i++) {
        factors.axis[i] = LKI_NEW_ARRAY(double, 2 * box->size[i]);
        if (!factors.axis[i])
            status = LK_ERR_NOMEM;
        else if (i < LK_MAX_SPATIAL - box->dims)
            factors.axis[i][0] = 1; /* an axis that the field does not have */
        else
            filter(factors.axis[i], box->size[i], size);
    }
    if (!status) status = lki_fft_multiply(values, rows, box, product_of_axes, &factors);
    for (int i = 0; i < LK_MAX_SPATIAL; i++) lki_free(factors.axis[i]);
    return status;
}

static lk_tensor *filtered(const lk_tensor *field, int dims, axis_filter filter, double size)
{
    lki_box box;
    int64_t samples, channels;
    if (!field) return NULL;
    if (lki_field_axes(field, dims, &box, &samples, &channels)) return NULL;
    lk_tensor *wide = lk_tensor_cast(field, LK_F64), *out = NULL;
    if (wide && apply(wide->data, samples * channels, &box, filter, size) == LK_OK)
        out = field->dtype == LK_F64 ? lk_tensor_view(wide) : lk_tensor_cast(wide, field->dtype);
    lk_tensor_free(wide);
    return out;
}

/* ---- The three filters ---- */

static void spectral_axis(double *out, int64_t n, double modes)
{
    for (int64_t k = 0; k < n; k++) out[2 * k] = fabs((double)lki_wave_number(k, n)) < modes;
}

/* The transform of a kernel that is given around point 0: kernel[i] belongs to the point i - before. */
static void transform_kernel(double *out, int64_t n, const double *kernel, int64_t count, int64_t before)
{
    for (int64_t k = 0; k < n; k++)
        for (int64_t i = 0; i < count; i++) {
            /* The exponent modulo n, exactly. */
            int64_t turns = (((i - before) * k) % n + n) % n;
            double angle = -2 * M_PI * (double)turns / (double)n;
            out[2 * k] += kernel[i] * cos(angle);
            out[2 * k + 1] += kernel[i] * sin(angle);
        }
}

/* y[i] = mean of x[i - width/2] ... x[i - width/2 + width - 1]: a correlation, so offsets are turned round.
 */
static void box_axis(double *out, int64_t n, double width)
{
    int64_t count = (int64_t)width, before = count - 1 - count / 2;
    for (int64_t i = 0; i < count; i++) transform_kernel(out, n, &(double){1 / width}, 1, before - i);
}

static void gaussian_axis(double *out, int64_t n, double sigma)
{
    int64_t radius = (int64_t)(4 * sigma + 0.5);
    double sum = 0;
    for (int64_t i = -radius; i <= radius; i++) sum += exp(-0.5 * (double)(i * i) / (sigma * sigma));
    for (int64_t i = -radius; i <= radius; i++) {
        double weight = exp(-0.5 * (double)(i * i) / (sigma * sigma)) / sum;
        transform_kernel(out, n, &weight, 1, -i);
    }
}

lk_tensor *lk_filter_spectral(const lk_tensor *field, int dims, double modes)
{
    if (!(modes > 0))
        return lki_fail_null(LK_ERR_INVALID, "spectral filter: expected some modes, found %g", modes);
    return filtered(field, dims, spectral_axis, modes);
}

lk_tensor *lk_filter_box(const lk_tensor *field, int dims, double width)
{
    if (!(width >= 1 && width < 1e6) || width != floor(width))
        return lki_fail_null(LK_ERR_INVALID, "box filter: expected a whole number of points, found %g",
                             width);
    return filtered(field, dims, box_axis, width);
}

lk_tensor *lk_filter_gaussian(const lk_tensor *field, int dims, double sigma)
{
    if (!(sigma > 0 && sigma < 1e6))
        return lki_fail_null(LK_ERR_INVALID, "Gaussian filter: expected a sigma above 0, found %g", sigma);
    return filtered(field, dims, gaussian_axis, sigma);
}

/* ---- Turbulence made up ---- */

typedef struct slope_context {
    const lki_box *box;
    double power; /* of |k|, for an amplitude */
} slope_context;

static void slope_factor(const int64_t k[LK_MAX_SPATIAL], double factor[2], void *context)
{
    const slope_context *slope = context;
    double squared = 0;
    for (int i = 0; i < LK_MAX_SPATIAL; i++) {
        double number = (double)lki_wave_number(k[i], slope->box->size[i]);
        squared += number * number;
    }
    factor[0] = squared > 0 ? pow(squared, slope->power / 2) : 0;
    factor[1] = 0;
}

static void normalize(double *values, int64_t count)
{
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < count; i++) sum += values[i];
    for (int64_t i = 0; i < count; i++) {
        values[i] -= sum / (double)count;
        squares += values[i] * values[i];
    }
    double scale = squares > 0 ? 1 / sqrt(squares / (double)count) : 0;
    for (int64_t i = 0; i < count; i++) values[i] *= scale;
}

/* A shell of radius k has ~ k^(dims - 1) modes, so each has the energy k^(slope - dims + 1). */
lk_tensor *lk_synthetic_turbulence(int64_t channels, int dims, const int64_t *size, double slope,
                                   lk_generator *generator)
{
    lki_box box;
    int64_t samples, found;
    if (dims < 1 || dims > LK_MAX_SPATIAL || channels < 1)
        return lki_fail_null(LK_ERR_INVALID, "turbulence: expected channels in one to three dimensions");
    if (!isfinite(slope))
        return lki_fail_null(LK_ERR_INVALID, "turbulence: slope: expected a finite number, found %g", slope);
    lk_shape shape = {.rank = dims + 1, .dim = {channels}};
    memcpy(shape.dim + 1, size, sizeof *size * (size_t)dims);
    lk_tensor *noise = lk_tensor_create(LK_F64, shape), *out = NULL;
    if (!noise || lki_field_axes(noise, dims, &box, &samples, &found)) goto out;
    slope_context context = {.box = &box, .power = ((slope != 0 ? slope : -5.0 / 3.0) - dims + 1) / 2};
    if (lk_normal(noise, 0, 1, generator ? generator : lk_default_generator())) goto out;
    if (lki_fft_multiply(noise->data, channels, &box, slope_factor, &context)) goto out;
    int64_t points = lk_tensor_count(noise) / channels;
    for (int64_t c = 0; c < channels; c++) normalize((double *)noise->data + c * points, points);
    out = lk_tensor_cast(noise, LK_F32);
out:
    lk_tensor_free(noise);
    return out;
}
