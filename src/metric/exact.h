/* lk_exact_sum inside: what reductions and checkpoints need of it. The sum itself is public, in
 * <lockstep/sys/metric.h>. */
#ifndef LKI_METRIC_EXACT_H
#define LKI_METRIC_EXACT_H

#include <lockstep/sys/metric.h>

/* Carries what the words hold beyond 32 bits: equal sums have equal words afterwards, and the words of up to
 * 2^30 ranks may be added as integers. */
void lki_exact_normalize(lk_exact_sum *sum);

/* The sum as hi + lo: hi is rounded to the nearest double, lo is the rest, rounded likewise. lo is 0 where
 * hi is not finite. */
void lki_exact_split(const lk_exact_sum *sum, double *hi, double *lo);

/* sum((y - mean)^2) = sum(y^2) - sum(y)^2 / count, in twice the precision of a double, so that nothing is
 * lost where the spread is small beside the mean. Never below 0. */
double lki_exact_square_deviations(const lk_exact_sum *values, const lk_exact_sum *squares, double count);

#endif
