#include "metric/exact.h"

#include <math.h>
#include <string.h>

void lki_exact_normalize(lk_exact_sum *sum)
{
    int64_t carry = 0;
    for (int i = 0; i < LKI_EXACT_WORDS - 1; i++) {
        int64_t word = sum->words[i] + carry;
        sum->words[i] = word & 0xffffffff;
        carry = word >> 32; /* arithmetic: a negative word borrows from the next */
    }
    sum->words[LKI_EXACT_WORDS - 1] += carry;
    sum->words[LKI_EXACT_PENDING] = 0;
}

void lk_exact_sum_add(lk_exact_sum *sum, double value)
{
    lki_exact_add(sum, value);
}

void lk_exact_sum_add_product(lk_exact_sum *sum, double a, double b)
{
    double product = a * b;
    lk_exact_sum_add(sum, product);
    if (isfinite(product)) lk_exact_sum_add(sum, fma(a, b, -product));
}

void lk_exact_sum_merge(lk_exact_sum *sum, const lk_exact_sum *other)
{
    lk_exact_sum copy = *other;
    lki_exact_normalize(&copy);
    lki_exact_normalize(sum);
    for (int i = 0; i <= LKI_EXACT_PENDING; i++) sum->words[i] += copy.words[i];
    lki_exact_normalize(sum);
}

static void negate(lk_exact_sum *sum)
{
    for (int i = 0; i < LKI_EXACT_WORDS; i++) sum->words[i] = -sum->words[i];
    lki_exact_normalize(sum);
}

/* A normalised sum of at least 0 to the nearest double, of two equally near ones to the even one. */
static double round_positive(const lk_exact_sum *sum)
{
    int top = LKI_EXACT_WORDS - 1;
    while (top > 0 && sum->words[top] == 0) top--;
    if (top < 2) return ldexp((double)sum->words[1], 32 - 1074) + ldexp((double)sum->words[0], -1074);
    /* The highest three words, from which the highest 64 bits are taken: top >= 2, so there are more than 53.
     */
    unsigned __int128 head = ((unsigned __int128)(uint64_t)sum->words[top] << 64) |
                             ((unsigned __int128)(uint64_t)sum->words[top - 1] << 32) |
                             (uint64_t)sum->words[top - 2];
    int down = 64 - __builtin_clzll((uint64_t)sum->words[top]); /* bits above the lowest 64 */
    uint64_t leading = (uint64_t)(head >> down);
    bool rest = head << (128 - down) != 0;
    for (int i = 0; i < top - 2; i++) rest = rest || sum->words[i] != 0;
    enum { CUT = 11 }; /* 64 bits, of which a double keeps 53 */
    uint64_t kept = leading >> CUT, lost = leading & ((1 << CUT) - 1), half = 1 << (CUT - 1);
    if (lost > half || (lost == half && (rest || (kept & 1)))) kept++;
    int place = 32 * (top - 2) + down, cut = CUT;
    return ldexp((double)kept, place + cut - 1074);
}

static double special_value(const lk_exact_sum *sum)
{
    const int64_t *words = sum->words;
    if (words[LKI_EXACT_NAN_COUNT] || (words[LKI_EXACT_PLUS_INF] && words[LKI_EXACT_MINUS_INF])) return NAN;
    return words[LKI_EXACT_PLUS_INF] ? INFINITY : words[LKI_EXACT_MINUS_INF] ? -INFINITY : 0;
}

double lk_exact_sum_value(const lk_exact_sum *sum)
{
    double special = special_value(sum);
    if (special != 0) return special;
    lk_exact_sum copy = *sum;
    lki_exact_normalize(&copy);
    if (copy.words[LKI_EXACT_WORDS - 1] >= 0) return round_positive(&copy);
    negate(&copy);
    return -round_positive(&copy);
}

void lki_exact_split(const lk_exact_sum *sum, double *hi, double *lo)
{
    *hi = lk_exact_sum_value(sum);
    *lo = 0;
    if (!isfinite(*hi)) return;
    lk_exact_sum rest = *sum;
    lk_exact_sum_add(&rest, -*hi);
    *lo = lk_exact_sum_value(&rest);
}

/* (hi + lo) / count as hi + lo. */
static void divide(double *hi, double *lo, double count)
{
    double quotient = *hi / count, rest = fma(-quotient, count, *hi) + *lo;
    *hi = quotient;
    *lo = rest / count;
}

double lki_exact_square_deviations(const lk_exact_sum *values, const lk_exact_sum *squares, double count)
{
    double mean, mean_lo, sum, sum_lo;
    lk_exact_sum left = *squares;
    lki_exact_split(values, &sum, &sum_lo);
    mean = sum;
    mean_lo = sum_lo;
    if (!isfinite(sum) || count <= 0) return NAN;
    divide(&mean, &mean_lo, count);
    /* -sum * mean, in pieces whose own errors are of the fourth order. */
    lk_exact_sum_add_product(&left, -sum, mean);
    lk_exact_sum_add_product(&left, -sum, mean_lo);
    lk_exact_sum_add_product(&left, -sum_lo, mean);
    double deviations = lk_exact_sum_value(&left);
    return deviations < 0 ? 0 : deviations;
}
