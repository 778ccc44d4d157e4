/* The running mean and spread of numbers that each stand for so many samples.
 *
 *     mean = sum(n v) / N         std = sqrt(sum(n (v - mean)^2) / (N - 1))       N = sum(n)
 *
 * Kept as (N, mean, sum of squares about the mean), which loses nothing when the spread is small beside the
 * mean, and which two ranks can put together. */
#ifndef LKI_METRIC_MOMENTS_H
#define LKI_METRIC_MOMENTS_H

#include <stdint.h>

typedef struct lki_moments {
    double count, mean, squares;
} lki_moments;

/* Adds a value that stands for `count` samples. */
static inline void lki_moments_add(lki_moments *moments, double value, double count)
{
    double total = moments->count + count, delta = value - moments->mean;
    moments->mean += delta * count / total;
    moments->squares += delta * (value - moments->mean) * count;
    moments->count = total;
}

/* Adds what another rank has seen. */
static inline void lki_moments_merge(lki_moments *moments, const lki_moments *other)
{
    double total = moments->count + other->count, delta = other->mean - moments->mean;
    if (other->count == 0) return;
    moments->mean += delta * other->count / total;
    moments->squares += other->squares + delta * delta * moments->count * other->count / total;
    moments->count = total;
}

/* mean.c */
/* NaN before the first value. */
double lki_moments_mean(const lki_moments *moments);
/* 0 for a single batch, as Catalyst has it; NaN before the first value. */
double lki_moments_std(const lki_moments *moments);

#endif
