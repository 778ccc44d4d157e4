#include "data/multinomial.h"

#include "base/memory.h"
#include "base/status.h"

#include <math.h>
#include <stdlib.h>

lk_status lki_multinomial_check(const double *weights, int64_t count, int64_t draws, bool replacement)
{
    if (count < 1 || !weights) return lki_fail(LK_ERR_INVALID, "weighted sampler: no weights");
    if (draws < 1)
        return lki_fail(LK_ERR_INVALID, "weighted sampler: num_samples: expected at least 1, found %lld",
                        (long long)draws);
    int64_t positive = 0;
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(weights[i]) || weights[i] < 0)
            return lki_fail(LK_ERR_INVALID, "weighted sampler: weight %lld is %g", (long long)i, weights[i]);
        positive += weights[i] > 0;
    }
    if (positive == 0) return lki_fail(LK_ERR_INVALID, "weighted sampler: all weights are 0");
    if (!replacement && draws > positive)
        return lki_fail(LK_ERR_INVALID,
                        "weighted sampler: %lld draws without replacement, but %lld positive weights",
                        (long long)draws, (long long)positive);
    return LK_OK;
}

/* The first index whose cumulative weight is not below u. */
static int64_t search(const double *cumulative, int64_t count, double u)
{
    int64_t left = 0, right = count;
    while (right > left) {
        int64_t middle = left + (right - left) / 2;
        if (cumulative[middle] < u)
            left = middle + 1;
        else
            right = middle;
    }
    return left;
}

static lk_status draw_with_replacement(const double *weights, int64_t count, int64_t draws,
                                       lk_generator *generator, int64_t *out)
{
    double *cumulative = LKI_NEW_ARRAY(double, count);
    if (!cumulative) return LK_ERR_NOMEM;
    double sum = 0;
    for (int64_t i = 0; i < count; i++) cumulative[i] = sum += weights[i];
    for (int64_t i = 0; i < count; i++) cumulative[i] /= sum;
    cumulative[count - 1] = 1;
    for (int64_t i = 0; i < draws; i++) out[i] = search(cumulative, count, lk_generator_f64(generator));
    lki_free(cumulative);
    return LK_OK;
}

typedef struct keyed {
    double key;
    int64_t index;
} keyed;

static int by_falling_key(const void *left, const void *right)
{
    const keyed *a = left, *b = right;
    if (a->key != b->key) return a->key < b->key ? 1 : -1;
    return a->index < b->index ? -1 : a->index > b->index;
}

/* One of tensor.exponential_(), in doubles. */
static double exponential(lk_generator *generator)
{
    return -log(1 - lk_generator_f64(generator));
}

/* The largest of weight / Exp(1): the first of them is drawn with its weight, the next with its share of the
 * rest. */
static lk_status draw_by_exponentials(const double *weights, int64_t count, int64_t draws,
                                      lk_generator *generator, int64_t *out)
{
    keyed *keys = LKI_NEW_ARRAY(keyed, count);
    if (!keys) return LK_ERR_NOMEM;
    for (int64_t i = 0; i < count; i++) {
        double divisor = exponential(generator); /* drawn for a weight of 0 too, which never wins */
        keys[i] = (keyed){weights[i] > 0 ? weights[i] / divisor : 0, i};
    }
    qsort(keys, (size_t)count, sizeof *keys, by_falling_key);
    for (int64_t i = 0; i < draws; i++) out[i] = keys[i].index;
    lki_free(keys);
    return LK_OK;
}

lk_status lki_multinomial(const double *weights, int64_t count, int64_t draws, bool replacement,
                          lk_generator *generator, int64_t *out)
{
    if (!replacement) return draw_by_exponentials(weights, count, draws, generator, out);
    return draw_with_replacement(weights, count, draws, generator, out);
}
