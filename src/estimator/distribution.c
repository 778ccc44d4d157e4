/* How the values of fields are distributed: errors, histograms, distribution functions and their distance. */
#include "estimator/estimator.h"

#include "base/memory.h"
#include "base/status.h"

#include <math.h>
#include <stdlib.h>

/* All values as doubles, the caller's; the field must have some, and all of them finite. */
static double *values_of(const lk_tensor *field)
{
    int64_t count = field ? lk_tensor_count(field) : 0;
    if (count < 1) return lki_fail_null(LK_ERR_SHAPE, "a field without values has no distribution");
    lk_tensor *wide = lk_tensor_cast(field, LK_F64);
    double *values = wide ? LKI_NEW_ARRAY(double, count) : NULL;
    for (int64_t i = 0; values && i < count; i++) {
        values[i] = ((const double *)wide->data)[i];
        if (isfinite(values[i])) continue;
        lki_fail(LK_ERR_NAN, "the field holds %f at element %lld", values[i], (long long)i);
        lki_free(values);
        values = NULL;
    }
    lk_tensor_free(wide);
    return values;
}

double lk_mean_squared_error(const lk_tensor *a, const lk_tensor *b)
{
    LKI_SCOPED double *x = values_of(a);
    LKI_SCOPED double *y = x ? values_of(b) : NULL;
    if (!x || !y) return NAN;
    int64_t count = lk_tensor_count(a);
    if (count != lk_tensor_count(b)) {
        lki_fail(LK_ERR_SHAPE, "mean squared error: %lld values against %lld", (long long)count,
                 (long long)lk_tensor_count(b));
        return NAN;
    }
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += (x[i] - y[i]) * (x[i] - y[i]);
    return sum / (double)count;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double *sorted_values_of(const lk_tensor *field)
{
    double *values = values_of(field);
    if (values) qsort(values, (size_t)lk_tensor_count(field), sizeof *values, compare_doubles);
    return values;
}

/* Both functions step at their own values; equal values step together. */
double lk_ks_statistic(const lk_tensor *a, const lk_tensor *b)
{
    LKI_SCOPED double *x = sorted_values_of(a);
    LKI_SCOPED double *y = x ? sorted_values_of(b) : NULL;
    if (!x || !y) return NAN;
    int64_t n = lk_tensor_count(a), m = lk_tensor_count(b), i = 0, j = 0;
    double largest = 0;
    while (i < n && j < m) {
        double at = x[i] < y[j] ? x[i] : y[j];
        while (i < n && x[i] == at) i++;
        while (j < m && y[j] == at) j++;
        largest = fmax(largest, fabs((double)i / (double)n - (double)j / (double)m));
    }
    return largest;
}

void lk_distribution_free(lk_distribution *distribution)
{
    lk_tensor_free(distribution->edges);
    lk_tensor_free(distribution->density);
    *distribution = (lk_distribution){0};
}

/* numpy.histogram's bins: equal ones over [min, max], the last one closed; a field of one value gets a range
 * of one around it. Rounding may put a value beside its bin: it is moved to where the edges say. */
lk_status lk_pdf(const lk_tensor *field, int bins, lk_distribution *out)
{
    *out = (lk_distribution){0};
    if (bins == 0) bins = 100;
    if (bins < 1) return lki_fail(LK_ERR_INVALID, "pdf: expected at least one bin, found %d", bins);
    LKI_SCOPED double *values = values_of(field);
    if (!values) return lki_last_status();
    int64_t count = lk_tensor_count(field);
    double low = values[0], high = values[0];
    for (int64_t i = 1; i < count; i++) {
        low = fmin(low, values[i]);
        high = fmax(high, values[i]);
    }
    if (low == high) {
        low -= 0.5;
        high += 0.5;
    }
    out->edges = lk_tensor_create(LK_F64, LK_SHAPE(bins + 1));
    out->density = lk_tensor_create(LK_F64, LK_SHAPE(bins));
    if (!out->edges || !out->density) {
        lk_distribution_free(out);
        return LK_ERR_NOMEM;
    }
    double *edges = out->edges->data, *density = out->density->data, step = (high - low) / bins;
    for (int i = 0; i <= bins; i++) edges[i] = low + i * step;
    edges[bins] = high;
    for (int64_t i = 0; i < count; i++) {
        int bin = (int)((values[i] - low) / (high - low) * bins);
        if (bin >= bins) bin = bins - 1;
        if (values[i] < edges[bin])
            bin--;
        else if (bin < bins - 1 && values[i] >= edges[bin + 1])
            bin++;
        density[bin]++;
    }
    for (int i = 0; i < bins; i++) density[i] /= (edges[i + 1] - edges[i]) * (double)count;
    return LK_OK;
}

lk_status lk_cdf(const lk_tensor *field, lk_tensor **values, lk_tensor **fractions)
{
    *values = *fractions = NULL;
    LKI_SCOPED double *sorted = sorted_values_of(field);
    if (!sorted) return lki_last_status();
    int64_t count = lk_tensor_count(field);
    *values = lk_tensor_from(LK_F64, LK_SHAPE(count), sorted);
    *fractions = lk_tensor_create(LK_F64, LK_SHAPE(count));
    if (!*values || !*fractions) {
        lk_tensor_free(*values);
        lk_tensor_free(*fractions);
        *values = *fractions = NULL;
        return LK_ERR_NOMEM;
    }
    for (int64_t i = 0; i < count; i++) ((double *)(*fractions)->data)[i] = (double)(i + 1) / (double)count;
    return LK_OK;
}
