/* Kernel ridge regression: (K + alpha) w = y with K_ij = exp(-gamma |x_i - x_j|^2), solved by LAPACK. A row
 * is one point of a field: its channels are the features, the targets' channels at that point the values. */
#include "estimator/estimator.h"

#include "base/library.h"
#include "base/memory.h"
#include "base/status.h"
#include "data/dataset.h"

#include <limits.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#if LOCKSTEP_HAVE_BLAS
/* LAPACK's dposv from OpenBLAS, which is loaded when a regression is first solved. */
typedef void (*dposv_function)(const char *uplo, const int *n, const int *columns, double *a, const int *lda,
                               double *b, const int *ldb, int *info);

static lk_status solve(double *kernel, double *values, int n, int columns)
{
    void *library = lki_library_open("libopenblas.so.0", LOCKSTEP_OPENBLAS_PATH);
    dposv_function dposv = NULL;
    int info = 0;
    if (!library) return lki_last_status();
    if (!lki_library_function(library, "dposv_", &dposv))
        return lki_fail(LK_ERR_UNSUPPORTED, "%s has no LAPACK in it", LOCKSTEP_OPENBLAS_PATH);
    dposv("L", &n, &columns, kernel, &n, values, &n, &info);
    if (info == 0) return LK_OK;
    return lki_fail(LK_ERR_RANGE,
                    "the kernel matrix is not positive definite: points repeat, use a larger alpha");
}
#else
static lk_status solve(double *kernel, double *values, int n, int columns)
{
    (void)kernel, (void)values, (void)n, (void)columns;
    return lki_fail(LK_ERR_UNSUPPORTED, "this build has no LAPACK (no OpenBLAS)");
}
#endif

void lki_krr_free(lki_krr *krr)
{
    lki_free(krr->points);
    lki_free(krr->weights);
    *krr = (lki_krr){0};
}

/* ---- Fields as rows ---- */

static lk_status row_sizes(const lk_estimator *estimator, int64_t *points, lki_krr *krr)
{
    krr->features = estimator->features.dim[0];
    *points = lk_shape_count(estimator->features) / krr->features;
    krr->targets = lk_shape_count(estimator->targets) / *points;
    if (krr->targets >= 1 && krr->targets * *points == lk_shape_count(estimator->targets)) return LK_OK;
    return lki_fail(LK_ERR_SHAPE, "the targets do not lie on the points of the features");
}

/* from (samples, channels, points) f32 -> rows (samples * points, channels), or columns of it. */
static void to_rows(double *rows, const float *from, int64_t samples, int64_t channels, int64_t points,
                    bool columns)
{
    for (int64_t s = 0; s < samples; s++)
        for (int64_t c = 0; c < channels; c++)
            for (int64_t p = 0; p < points; p++) {
                int64_t row = s * points + p;
                rows[columns ? c * samples * points + row : row * channels + c] = *from++;
            }
}

static double distance_squared(const double *a, const double *b, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += (a[i] - b[i]) * (a[i] - b[i]);
    return sum;
}

/* ---- Fitting ---- */

/* The kernel of n points must fit into half of the machine's memory. */
static lk_status check_memory(int64_t n)
{
    double nbytes = (double)n * (double)n * sizeof(double);
    double machine = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    char text[16];
    if (n < INT_MAX && nbytes < machine / 2) return LK_OK;
    return lki_fail(LK_ERR_NOMEM, "the kernel of %lld points takes %s: sample the fields to fewer",
                    (long long)n, lki_format_nbytes(text, sizeof text, (uint64_t)nbytes));
}

static lk_status gather(const lk_estimator *estimator, int64_t points, lki_krr *krr)
{
    lk_dataset *dataset = lk_loader_dataset(estimator->loaders[0].loader);
    int64_t samples = lk_dataset_length(dataset);
    lk_tensor *x = NULL, *y = NULL;
    lk_status status;
    LKI_TRY(lki_dataset_check_length(dataset, "KRR"));
    krr->count = samples * points;
    LKI_TRY(check_memory(krr->count));
    LKI_TRY_OUT(lki_gather_samples(dataset, &x, &y));
    krr->points = LKI_NEW_ARRAY(double, krr->count * krr->features);
    krr->weights = LKI_NEW_ARRAY(double, krr->count * krr->targets);
    LKI_TRY_OUT(krr->points && krr->weights ? LK_OK : LK_ERR_NOMEM);
    if (x->dtype != LK_F32 || y->dtype != LK_F32)
        LKI_TRY_OUT(lki_fail(LK_ERR_DTYPE, "expected features and targets of float32"));
    to_rows(krr->points, x->data, samples, krr->features, points, false);
    to_rows(krr->weights, y->data, samples, krr->targets, points, true);
out:
    lk_tensor_free(x);
    lk_tensor_free(y);
    return status;
}

static lk_status fit(lk_estimator *estimator, lki_krr *krr)
{
    int64_t points, n;
    double alpha = estimator->config.alpha;
    LKI_TRY(row_sizes(estimator, &points, krr));
    LKI_TRY(gather(estimator, points, krr));
    n = krr->count;
    krr->gamma = estimator->config.gamma > 0 ? estimator->config.gamma : 1.0 / (double)krr->features;
    LKI_SCOPED double *kernel = LKI_NEW_ARRAY(double, n *n);
    if (!kernel) return LK_ERR_NOMEM;
    for (int64_t i = 0; i < n; i++) /* the lower half, in LAPACK's order of columns */
        for (int64_t j = i; j < n; j++)
            kernel[i * n + j] =
                exp(-krr->gamma * distance_squared(krr->points + i * krr->features,
                                                   krr->points + j * krr->features, krr->features));
    for (int64_t i = 0; i < n; i++) kernel[i * n + i] += alpha;
    LKI_TRY(solve(kernel, krr->weights, (int)n, (int)krr->targets));
    double sum = 0; /* y - K w = alpha w */
    for (int64_t i = 0; i < n * krr->targets; i++) sum += krr->weights[i] * krr->weights[i];
    estimator->loss = alpha * alpha * sum / (double)(n * krr->targets);
    return LK_OK;
}

lk_status lki_krr_fit(lk_estimator *estimator)
{
    lki_krr fresh = {0};
    lk_status status = fit(estimator, &fresh);
    if (status) {
        lki_krr_free(&fresh);
        return status;
    }
    lki_krr_free(&estimator->krr);
    estimator->krr = fresh;
    estimator->epoch = 1;
    return LK_OK;
}

/* ---- Predicting ---- */

static void predict_row(const lki_krr *krr, const double *row, double *out)
{
    memset(out, 0, sizeof *out * (size_t)krr->targets);
    for (int64_t i = 0; i < krr->count; i++) {
        double k = exp(-krr->gamma * distance_squared(row, krr->points + i * krr->features, krr->features));
        for (int64_t t = 0; t < krr->targets; t++) out[t] += k * krr->weights[t * krr->count + i];
    }
}

lk_tensor *lki_krr_predict(const lk_estimator *estimator, const lk_tensor *features)
{
    const lki_krr *krr = &estimator->krr;
    int64_t samples = features->shape.dim[0];
    if (!krr->weights) return lki_fail_null(LK_ERR_INVALID, "%s: it has not been trained", estimator->name);
    int64_t points = lk_shape_count(estimator->features) / krr->features;
    lk_shape shape = {.rank = estimator->targets.rank + 1, .dim = {samples}};
    memcpy(shape.dim + 1, estimator->targets.dim, sizeof *shape.dim * (size_t)estimator->targets.rank);
    lk_tensor *values = lk_tensor_cast(features, LK_F32),
              *out = values ? lk_tensor_create(LK_F32, shape) : NULL;
    LKI_SCOPED double *rows = out ? LKI_NEW_ARRAY(double, samples *points * krr->features) : NULL;
    LKI_SCOPED double *row = rows ? LKI_NEW_ARRAY(double, krr->targets) : NULL;
    if (!row) {
        lk_tensor_free(out);
        out = NULL;
    } else {
        to_rows(rows, values->data, samples, krr->features, points, false);
    }
    for (int64_t i = 0; out && i < samples * points; i++) {
        predict_row(krr, rows + i * krr->features, row);
        for (int64_t t = 0; t < krr->targets; t++)
            ((float *)out->data)[(i / points * krr->targets + t) * points + i % points] = (float)row[t];
    }
    lk_tensor_free(values);
    return out;
}

/* ---- On disk ---- */

lk_status lki_krr_save(const lki_krr *krr, lk_state_dict *state)
{
    if (!krr->weights) return lki_fail(LK_ERR_INVALID, "KRR: it has not been trained");
    LKI_TRY(lk_state_dict_put(state, "X_fit_",
                              lk_tensor_from(LK_F64, LK_SHAPE(krr->count, krr->features), krr->points)));
    LKI_TRY(lk_state_dict_put(state, "dual_coef_",
                              lk_tensor_from(LK_F64, LK_SHAPE(krr->targets, krr->count), krr->weights)));
    return lk_state_dict_put_f64(state, "gamma", krr->gamma);
}

static double *copy_numbers(const lk_tensor *tensor)
{
    double *numbers = LKI_NEW_ARRAY(double, lk_tensor_count(tensor));
    if (numbers) memcpy(numbers, tensor->data, lk_tensor_nbytes(tensor));
    return numbers;
}

static lk_status check_shapes(const lk_estimator *estimator, lk_shape points, lk_shape weights)
{
    lki_krr expected;
    int64_t count;
    LKI_TRY(row_sizes(estimator, &count, &expected));
    if (points.dim[1] == expected.features && weights.dim[0] == expected.targets) return LK_OK;
    return lki_fail(LK_ERR_SHAPE,
                    "KRR: it has %lld features and %lld targets per point, expected %lld and %lld",
                    (long long)points.dim[1], (long long)weights.dim[0], (long long)expected.features,
                    (long long)expected.targets);
}

lk_status lki_krr_load(lk_estimator *estimator, const lk_state_dict *state)
{
    const lk_tensor *points = lk_state_dict_get(state, "X_fit_");
    const lk_tensor *weights = points ? lk_state_dict_get(state, "dual_coef_") : NULL;
    lki_krr loaded = {0};
    if (!weights) return lki_last_status();
    if (points->dtype != LK_F64 || weights->dtype != LK_F64 || points->shape.rank != 2 ||
        weights->shape.rank != 2 || points->shape.dim[0] != weights->shape.dim[1] || points->shape.dim[0] < 1)
        return lki_fail(LK_ERR_FORMAT, "KRR: X_fit_ and dual_coef_ do not belong together");
    LKI_TRY(check_shapes(estimator, points->shape, weights->shape));
    LKI_TRY(lk_state_dict_get_f64(state, "gamma", &loaded.gamma));
    loaded.count = points->shape.dim[0];
    loaded.features = points->shape.dim[1];
    loaded.targets = weights->shape.dim[0];
    loaded.points = copy_numbers(points);
    loaded.weights = copy_numbers(weights);
    if (!loaded.points || !loaded.weights) {
        lki_krr_free(&loaded);
        return LK_ERR_NOMEM;
    }
    lki_krr_free(&estimator->krr);
    estimator->krr = loaded;
    return LK_OK;
}

static lk_status check_device(const char *device)
{
    static const char *const fit[] = {"auto", "cpu", "ref"};
    for (size_t i = 0; i < sizeof fit / sizeof *fit; i++)
        if (!strcmp(device, fit[i])) return LK_OK;
    return lki_fail(LK_ERR_CONFIG, "KRR: device: it is solved on the CPU, expected auto or cpu, found \"%s\"",
                    device);
}

lk_estimator *lk_krr_with(lk_loader_list loaders, const lk_estimator_config *config)
{
    lk_estimator *estimator = lki_estimator_new("KRR", loaders, config);
    if (!estimator) return NULL;
    estimator->is_krr = true;
    if (check_device(estimator->config.device) == LK_OK) return estimator;
    lk_estimator_free(estimator);
    return NULL;
}
