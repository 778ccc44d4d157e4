/* lk_exact_sum inside: what reductions and checkpoints need of it. The sum itself is public, in
 * <lockstep/sys/metric.h>. */
#ifndef LKI_METRIC_EXACT_H
#define LKI_METRIC_EXACT_H

#include <lockstep/sys/metric.h>

#include <string.h>

/* A superaccumulator: the sum of any doubles as one long fixed-point number, so that no addition rounds.
 *
 * Word i (of WORDS) holds bits 32 i .. 32 i + 31 of the sum in units of 2^-1074, the smallest double. A word
 * has 64 bits: additions leave their carries in the upper half, which is passed on every 2^29 additions.
 * Behind the words stand counts of +inf, -inf and NaN, and the number of additions since the carries were
 * passed on. */
enum {
    LKI_EXACT_WORDS = 68,
    LKI_EXACT_PLUS_INF = LKI_EXACT_WORDS,
    LKI_EXACT_MINUS_INF,
    LKI_EXACT_NAN_COUNT,
    LKI_EXACT_PENDING,
    LKI_EXACT_LIMIT = 1 << 29
};

_Static_assert(LKI_EXACT_PENDING + 1 == sizeof(lk_exact_sum) / sizeof(int64_t),
               "the public struct has room for all");

/* Carries what the words hold beyond 32 bits: equal sums have equal words afterwards, and the words of up to
 * 2^30 ranks may be added as integers. */
void lki_exact_normalize(lk_exact_sum *sum);

/* As lk_exact_sum_add, for loops over samples. */
static inline void lki_exact_add(lk_exact_sum *sum, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    int exponent = (int)(bits >> 52) & 0x7ff;
    uint64_t mantissa = bits & 0xfffffffffffff;
    if (exponent == 0x7ff) {
        sum->words[value != value ? LKI_EXACT_NAN_COUNT
                   : value > 0    ? LKI_EXACT_PLUS_INF
                                  : LKI_EXACT_MINUS_INF]++;
        return;
    }
    if (exponent) mantissa |= (uint64_t)1 << 52;
    int place = exponent ? exponent - 1 : 0, shift = place & 31;
    int64_t *words = &sum->words[place >> 5];
    uint64_t low = (mantissa & 0xffffffff) << shift, high = (mantissa >> 32) << shift;
    int64_t sign = bits >> 63 ? -1 : 1;
    words[0] += sign * (int64_t)(low & 0xffffffff);
    words[1] += sign * (int64_t)((low >> 32) + (high & 0xffffffff));
    words[2] += sign * (int64_t)(high >> 32);
    if (++sum->words[LKI_EXACT_PENDING] == LKI_EXACT_LIMIT) lki_exact_normalize(sum);
}

/* The sum as hi + lo: hi is rounded to the nearest double, lo is the rest, rounded likewise. lo is 0 where
 * hi is not finite. */
void lki_exact_split(const lk_exact_sum *sum, double *hi, double *lo);

/* sum((y - mean)^2) = sum(y^2) - sum(y)^2 / count, in twice the precision of a double, so that nothing is
 * lost where the spread is small beside the mean. Never below 0. */
double lki_exact_square_deviations(const lk_exact_sum *values, const lk_exact_sum *squares, double count);

#endif
