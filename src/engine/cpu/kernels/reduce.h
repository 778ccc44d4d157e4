/* Sums in doubles, maxima and softmax. */
#ifndef LKI_CPU_KERNELS_REDUCE_H
#define LKI_CPU_KERNELS_REDUCE_H

#include "engine/cpu/kernels.h"
#include "engine/cpu/kernels/math.h"

/* Four vectors are added in f32 before they meet the doubles: the error stays near one rounding, the work a
 * quarter. */
#define SUM_OF(name, parameters, term, load, tail_load)                                                      \
    static double name parameters                                                                            \
    {                                                                                                        \
        vdouble total = {0};                                                                                 \
        int64_t i = 0;                                                                                       \
        for (; i + 4 * VN <= n; i += 4 * VN) {                                                               \
            v part[4];                                                                                       \
            UNROLL for (int j = 0; j < 4; j++)                                                               \
            {                                                                                                \
                load(i + j * VN);                                                                            \
                part[j] = term;                                                                              \
            }                                                                                                \
            total += v_widen((part[0] + part[1]) + (part[2] + part[3]));                                     \
        }                                                                                                    \
        for (; i < n; i += VN) {                                                                             \
            int64_t left = n - i < VN ? n - i : VN;                                                          \
            tail_load(i);                                                                                    \
            total += v_widen(term);                                                                          \
        }                                                                                                    \
        return v_sum_double(total);                                                                          \
    }

#define ONE(at)      v a = v_load(x + (at))
#define ONE_TAIL(at) v a = v_load_n(x + (at), left)
#define TWO(at)      v a = v_load(x + (at)), b = v_load(y + (at))
#define TWO_TAIL(at) v a = v_load_n(x + (at), left), b = v_load_n(y + (at), left)

SUM_OF(sum, (const float *x, int64_t n), a, ONE, ONE_TAIL)
SUM_OF(sum_products, (const float *x, const float *y, int64_t n), a *b, TWO, TWO_TAIL)

/* Squares of f64: those of f32 would overflow above 1.8e19, and vanish below 1e-23. */
static double sum_squares(const float *x, int64_t n)
{
    vdouble total = {0}, other = {0};
    for (int64_t i = 0; i < n; i += VN) {
        union {
            v whole;
            vhalf half[2];
        } a = {n - i < VN ? v_load_n(x + i, n - i) : v_load(x + i)};
        vdouble first = __builtin_convertvector(a.half[0], vdouble),
                second = __builtin_convertvector(a.half[1], vdouble);
        total += first * first;
        other += second * second;
    }
    return v_sum_double(total + other);
}

static double sum_square_deviations(const float *x, int64_t n, float mean)
{
    vdouble total = {0};
    v m = v_set(mean);
    int64_t i = 0;
    for (; i + 2 * VN <= n; i += 2 * VN) {
        v a = v_load(x + i) - m, b = v_load(x + i + VN) - m;
        total += v_widen(v_fma(a, a, b * b));
    }
    double rest = 0;
    for (; i < n; i++) rest += ((double)x[i] - mean) * ((double)x[i] - mean);
    return v_sum_double(total) + rest;
}

static float largest(const float *x, int64_t n)
{
    float best = x[0];
    bool nan = best != best;
    int64_t i = 0;
    if (n >= VN) {
        v most = v_load(x), unordered = most;
        for (i = VN; i + VN <= n; i += VN) {
            v a = v_load(x + i);
            most = v_max(most, a);
            unordered += a - a; /* NaN for ever once a NaN (or an infinity) came by */
        }
        best = v_largest(most);
        float check = v_sum(unordered - unordered);
        nan = check != check;
    }
    for (; i < n; i++) {
        best = x[i] > best ? x[i] : best;
        nan |= x[i] != x[i];
    }
    if (!nan) return best;
    best = x[0];
    for (i = 1; i < n && best == best; i++) best = x[i] > best || x[i] != x[i] ? x[i] : best;
    return best;
}

INLINE vuint larger_bits(vuint a, vuint b)
{
    vuint less = (vuint)((vint)a < (vint)b); /* without signs these compare as integers do */
    return (less & b) | (~less & a);
}

/* The largest |x| as its bits, which are in the order of the magnitudes; those of infinities and NaNs come
 * last.
 */
static uint32_t magnitude(const float *x, int64_t n)
{
    vuint most = {0}, rest = {0};
    const vuint unsigned_bits = (vuint)v_set_int(0x7fffffff);
    int64_t i = 0;
    for (; i + 2 * VN <= n; i += 2 * VN) {
        vuint a = (vuint)v_load(x + i) & unsigned_bits, b = (vuint)v_load(x + i + VN) & unsigned_bits;
        most = larger_bits(most, a);
        rest = larger_bits(rest, b);
    }
    for (; i < n; i += VN) {
        vuint a = (vuint)v_load_n(x + i, n - i < VN ? n - i : VN) & unsigned_bits;
        most = larger_bits(most, a);
    }
    uint32_t largest = 0;
    for (int lane = 0; lane < VN; lane++) {
        if (most[lane] > largest) largest = most[lane];
        if (rest[lane] > largest) largest = rest[lane];
    }
    return largest;
}

static void add_to(float *total, const float *x, int64_t n)
{
    int64_t i = 0;
    for (; i + VN <= n; i += VN) v_store(total + i, v_load(total + i) + v_load(x + i));
    if (i < n) v_store_n(total + i, v_load_n(total + i, n - i) + v_load_n(x + i, n - i), n - i);
}

/* Rows are added in blocks of 64, then the blocks: the error grows with neither. */
INLINE void column_sums_of(const int vectors, float *out, const float *x, int64_t rows, int64_t row_stride,
                           int64_t left)
{
    v total[4] = {{0}};
    for (int64_t r = 0; r < rows; r += 64) {
        v part[4] = {{0}};
        int64_t end = r + 64 < rows ? r + 64 : rows;
        for (int64_t i = r; i < end; i++)
            UNROLL for (int j = 0; j < vectors; j++) part[j] +=
                vectors == 1 ? v_load_n(x + i * row_stride, left) : v_load(x + i * row_stride + j * VN);
        UNROLL for (int j = 0; j < vectors; j++) total[j] += part[j];
    }
    UNROLL for (int j = 0; j < vectors; j++)
    {
        if (vectors == 1)
            v_store_n(out, total[j], left);
        else
            v_store(out + j * VN, total[j]);
    }
}

static void column_sums(float *out, const float *x, int64_t rows, int64_t row_stride, int64_t n)
{
    int64_t i = 0;
    for (; i + 4 * VN <= n; i += 4 * VN) column_sums_of(4, out + i, x + i, rows, row_stride, VN);
    for (; i < n; i += VN) column_sums_of(1, out + i, x + i, rows, row_stride, n - i < VN ? n - i : VN);
}

/* In this order a NaN of x wins, and one already in best stays. */
INLINE v max_or_nan(v best, v x)
{
    return v_select(v_unequal(best, best), best, v_max(best, x));
}

static void max_to(float *best, const float *x, int64_t n)
{
    int64_t i = 0;
    for (; i + VN <= n; i += VN) v_store(best + i, max_or_nan(v_load(best + i), v_load(x + i)));
    if (i < n) v_store_n(best + i, max_or_nan(v_load_n(best + i, n - i), v_load_n(x + i, n - i)), n - i);
}

static void scale_shift(float *y, const float *x, float scale, float shift, int64_t n)
{
    v s = v_set(scale), t = v_set(shift);
    int64_t i = 0;
    for (; i + VN <= n; i += VN) v_store(y + i, v_fma(v_load(x + i), s, t));
    if (i < n) v_store_n(y + i, v_fma(v_load_n(x + i, n - i), s, t), n - i);
}

/* (x - first) - second. With a large `first` the sum of both would lose what `second` says. */
static void shift_twice(float *y, const float *x, float first, float second, int64_t n)
{
    v f = v_set(first), s = v_set(second);
    int64_t i = 0;
    for (; i + VN <= n; i += VN) v_store(y + i, (v_load(x + i) - f) - s);
    if (i < n) v_store_n(y + i, (v_load_n(x + i, n - i) - f) - s, n - i);
}

/* The first n lanes of a, `other` elsewhere. */
INLINE v first_or(v a, int64_t n, float other)
{
    float lane[VN];
    v_store(lane, a);
    for (int64_t i = n; i < VN; i++) lane[i] = other;
    return v_load(lane);
}

INLINE v load_or(const float *p, int64_t n, float other)
{
#if LKI_SIMD == 512
    return (v)_mm512_mask_loadu_ps(_mm512_set1_ps(other), (__mmask16)((1u << n) - 1), p);
#else
    return first_or(v_load_n(p, n), n, other);
#endif
}

/* A row of at most one vector. */
INLINE void softmax_short(float *y, const float *x, int64_t c, bool log)
{
    v a = load_or(x, c, -INFINITY);
    v shifted = a - v_set(v_largest(a)), e = v_exp(shifted);
    float total = v_sum(e);
    v_store_n(y, log ? shifted - v_set(logf(total)) : e / v_set(total), c);
}

static void softmax_row(float *y, const float *x, int64_t c, bool log)
{
    v top = v_set(largest(x, c));
    vdouble sums = {0};
    int64_t i = 0;
    for (; i < c; i += VN) {
        int64_t left = c - i < VN ? c - i : VN;
        v e = v_exp((left == VN ? v_load(x + i) : load_or(x + i, left, -INFINITY)) - top);
        if (!log) v_store_n(y + i, e, left);
        sums += v_widen(e);
    }
    double total = v_sum_double(sums);
    if (log)
        shift_twice(y, x, top[0], (float)__builtin_log(total), c);
    else
        scale_shift(y, y, (float)(1.0 / total), 0.0f, c);
}

/* VN columns (or `left` of them) of a (c, inner) plane at once. */
INLINE void softmax_columns(float *y, const float *x, int64_t c, int64_t inner, int64_t left, bool log)
{
    v top = v_load_n(x, left), total = v_set(0.0f);
    for (int64_t k = 1; k < c; k++) top = max_or_nan(top, v_load_n(x + k * inner, left));
    for (int64_t k = 0; k < c; k++) {
        v e = v_exp(v_load_n(x + k * inner, left) - top);
        if (!log) v_store_n(y + k * inner, e, left);
        total += e;
    }
    v last = log ? v_log(total) : v_set(1.0f) / total;
    for (int64_t k = 0; k < c; k++)
        v_store_n(y + k * inner,
                  log ? (v_load_n(x + k * inner, left) - top) - last : v_load_n(y + k * inner, left) * last,
                  left);
}

static void softmax(float *y, const float *x, int64_t outer, int64_t c, int64_t inner, bool log)
{
    for (int64_t o = 0; o < outer; o++, x += c * inner, y += c * inner) {
        if (inner == 1 && c <= VN)
            softmax_short(y, x, c, log);
        else if (inner == 1)
            softmax_row(y, x, c, log);
        else
            for (int64_t j = 0; j < inner; j += VN)
                softmax_columns(y + j, x + j, c, inner, inner - j < VN ? inner - j : VN, log);
    }
}

/* softmax: dx = y (dy - sum dy y); log softmax: dx = dy - exp(y) sum dy. */
INLINE v softmax_slope(v dy, v y, v total, bool log)
{
    return log ? dy - v_exp(y) * total : y * (dy - total);
}

static void softmax_grad_row(float *dx, const float *dy, const float *y, int64_t c, bool log)
{
    v total = v_set((float)(log ? sum(dy, c) : sum_products(dy, y, c)));
    for (int64_t i = 0; i < c; i += VN) {
        int64_t left = c - i < VN ? c - i : VN;
        v_store_n(dx + i, softmax_slope(v_load_n(dy + i, left), v_load_n(y + i, left), total, log), left);
    }
}

static void softmax_grad(float *dx, const float *dy, const float *y, int64_t outer, int64_t c, int64_t inner,
                         bool log)
{
    for (int64_t o = 0; o < outer; o++, dx += c * inner, dy += c * inner, y += c * inner) {
        if (inner == 1) {
            softmax_grad_row(dx, dy, y, c, log);
            continue;
        }
        for (int64_t j = 0; j < inner; j += VN) {
            int64_t left = inner - j < VN ? inner - j : VN;
            v total = v_set(0.0f);
            for (int64_t k = 0; k < c; k++) {
                v g = v_load_n(dy + k * inner + j, left);
                total += log ? g : g * v_load_n(y + k * inner + j, left);
            }
            for (int64_t k = 0; k < c; k++) {
                int64_t at = k * inner + j;
                v_store_n(dx + at, softmax_slope(v_load_n(dy + at, left), v_load_n(y + at, left), total, log),
                          left);
            }
        }
    }
}

static void scaled_exp(float *dx, const float *logp, float scale, int64_t n)
{
    v s = v_set(scale);
    int64_t i = 0;
    for (; i + VN <= n; i += VN) v_store(dx + i, s * v_exp(v_load(logp + i)));
    if (i < n) v_store_n(dx + i, s * v_exp(v_load_n(logp + i, n - i)), n - i);
}

#endif
