/* Fourier transforms of fields, by FFTW in double precision. Its planner is not safe to call from two
 * threads: plans are made under one lock, and run outside of it. */
#include "data/fftw/fftw_plugin.h"

#include "base/memory.h"
#include "base/plugin.h"
#include "base/status.h"

#include <fftw3.h>
#include <pthread.h>
#include <string.h>

static pthread_mutex_t planner_lock = PTHREAD_MUTEX_INITIALIZER;

/* One real array and the half of its transform that says it all. */
typedef struct transform {
    double *real;            /* (x, y, z) */
    fftw_complex *modes;     /* (x, y, z / 2 + 1) */
    fftw_plan forward, back; /* over these two */
    int64_t points;
} transform;

static void end_transform(transform *transform)
{
    pthread_mutex_lock(&planner_lock);
    if (transform->forward) fftw_destroy_plan(transform->forward);
    if (transform->back) fftw_destroy_plan(transform->back);
    pthread_mutex_unlock(&planner_lock);
    lki_free(transform->real);
    lki_free(transform->modes);
}

static lk_status begin_transform(transform *transform, const lki_box *box)
{
    const int64_t *n = box->size;
    transform->points = n[0] * n[1] * n[2];
    transform->real = lki_calloc_aligned(sizeof(double) * (size_t)transform->points, "a field's transform");
    transform->modes = lki_calloc_aligned(sizeof(fftw_complex) * (size_t)(n[0] * n[1] * (n[2] / 2 + 1)),
                                          "a field's transform");
    if (!transform->real || !transform->modes) {
        end_transform(transform);
        return LK_ERR_NOMEM;
    }
    pthread_mutex_lock(&planner_lock);
    transform->forward = fftw_plan_dft_r2c_3d((int)n[0], (int)n[1], (int)n[2], transform->real,
                                              transform->modes, FFTW_ESTIMATE);
    transform->back = fftw_plan_dft_c2r_3d((int)n[0], (int)n[1], (int)n[2], transform->modes, transform->real,
                                           FFTW_ESTIMATE);
    pthread_mutex_unlock(&planner_lock);
    if (transform->forward && transform->back) return LK_OK;
    end_transform(transform);
    return lki_fail(LK_ERR_UNSUPPORTED, "FFTW cannot transform a field of this size");
}

static void multiply_modes(const transform *transform, const lki_box *box, lki_fft_factor factor,
                           void *context)
{
    fftw_complex *mode = transform->modes;
    double scale = 1.0 / (double)transform->points;
    int64_t k[LK_MAX_SPATIAL];
    for (k[0] = 0; k[0] < box->size[0]; k[0]++)
        for (k[1] = 0; k[1] < box->size[1]; k[1]++)
            for (k[2] = 0; k[2] <= box->size[2] / 2; k[2]++, mode++) {
                double f[2];
                factor(k, f, context);
                double re = (*mode)[0], im = (*mode)[1];
                (*mode)[0] = scale * (re * f[0] - im * f[1]);
                (*mode)[1] = scale * (re * f[1] + im * f[0]);
            }
}

static lk_status multiply(double *values, int64_t rows, const lki_box *box, lki_fft_factor factor,
                          void *context)
{
    transform transform = {0};
    LKI_TRY(begin_transform(&transform, box));
    size_t nbytes = sizeof(double) * (size_t)transform.points;
    for (int64_t row = 0; row < rows; row++, values += transform.points) {
        memcpy(transform.real, values, nbytes);
        fftw_execute(transform.forward);
        multiply_modes(&transform, box, factor, context);
        fftw_execute(transform.back);
        memcpy(values, transform.real, nbytes);
    }
    end_transform(&transform);
    return LK_OK;
}

static lk_status add_power(double *power, const double *values, const lki_box *box)
{
    transform transform = {0};
    const int64_t *n = box->size;
    LKI_TRY(begin_transform(&transform, box));
    memcpy(transform.real, values, sizeof(double) * (size_t)transform.points);
    fftw_execute(transform.forward);
    double scale = 1.0 / ((double)transform.points * (double)transform.points);
    for (int64_t x = 0; x < n[0]; x++)
        for (int64_t y = 0; y < n[1]; y++)
            for (int64_t z = 0; z < n[2]; z++) {
                /* The other half are the conjugates of the opposite modes. */
                bool half = z <= n[2] / 2;
                int64_t a = half ? x : (n[0] - x) % n[0], b = half ? y : (n[1] - y) % n[1],
                        c = half ? z : n[2] - z;
                const double *mode = transform.modes[(a * n[1] + b) * (n[2] / 2 + 1) + c];
                *power++ += scale * (mode[0] * mode[0] + mode[1] * mode[1]);
            }
    end_transform(&transform);
    return LK_OK;
}

LKI_PLUGIN_EXPORT(fftw, lki_fftw_functions, char, .multiply = multiply, .add_power = add_power);
