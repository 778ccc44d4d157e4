/* A superaccumulator: the sum of any doubles as one long fixed-point number, so that no addition rounds.
 *
 * Word i (of WORDS) holds bits 32 i .. 32 i + 31 of the sum in units of 2^-1074, the smallest double. A word
 * has 64 bits: additions leave their carries in the upper half, which is passed on every 2^29 additions.
 * Behind the words stand counts of +inf, -inf and NaN, and the number of additions since the carries were
 * passed on. */
#include "metric/exact.h"

#include <math.h>
#include <string.h>

enum { WORDS = 68, PLUS_INF = WORDS, MINUS_INF, NAN_COUNT, PENDING, LIMIT = 1 << 29 };

_Static_assert(PENDING + 1 == sizeof(lk_exact_sum) / sizeof(int64_t), "the public struct has room for all");

void lki_exact_normalize(lk_exact_sum *sum)
{
    int64_t carry = 0;
    for (int i = 0; i < WORDS - 1; i++) {
        int64_t word = sum->words[i] + carry;
        sum->words[i] = word & 0xffffffff;
        carry = word >> 32; /* arithmetic: a negative word borrows from the next */
    }
    sum->words[WORDS - 1] += carry;
    sum->words[PENDING] = 0;
}

static void add_special(lk_exact_sum *sum, double value)
{
    sum->words[value != value ? NAN_COUNT : value > 0 ? PLUS_INF : MINUS_INF]++;
}

void lk_exact_sum_add(lk_exact_sum *sum, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    int exponent = (int)(bits >> 52) & 0x7ff;
    uint64_t mantissa = bits & 0xfffffffffffff;
    if (exponent == 0x7ff) {
        add_special(sum, value);
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
    if (++sum->words[PENDING] == LIMIT) lki_exact_normalize(sum);
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
    for (int i = 0; i <= PENDING; i++) sum->words[i] += copy.words[i];
    lki_exact_normalize(sum);
}

static void negate(lk_exact_sum *sum)
{
    for (int i = 0; i < WORDS; i++) sum->words[i] = -sum->words[i];
    lki_exact_normalize(sum);
}

/* A normalised sum of at least 0 to the nearest double, of two equally near ones to the even one. */
static double round_positive(const lk_exact_sum *sum)
{
    int top = WORDS - 1;
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
    if (words[NAN_COUNT] || (words[PLUS_INF] && words[MINUS_INF])) return NAN;
    return words[PLUS_INF] ? INFINITY : words[MINUS_INF] ? -INFINITY : 0;
}

double lk_exact_sum_value(const lk_exact_sum *sum)
{
    double special = special_value(sum);
    if (special != 0) return special;
    lk_exact_sum copy = *sum;
    lki_exact_normalize(&copy);
    if (copy.words[WORDS - 1] >= 0) return round_positive(&copy);
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
