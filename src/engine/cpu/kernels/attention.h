/* The inner loops of attention: rows of scores, and operands of its products. */
#ifndef LKI_CPU_KERNELS_ATTENTION_H
#define LKI_CPU_KERNELS_ATTENTION_H

#include "engine/cpu/kernels/gemm.h"
#include "engine/cpu/kernels/math.h"

enum { ATTENTION_PANEL = LKI_GEMM_PANEL };

/* Columns [0, columns) of B into a panel. */
INLINE void attention_pack_panel(float *panel, const float *b, int64_t k, int64_t columns, int64_t row,
                                 int64_t column)
{
    if (column == 1) {
        for (int64_t p = 0; p < k; p++, panel += ATTENTION_PANEL, b += row) {
            for (int64_t j = 0; j < ATTENTION_PANEL; j += VN) {
                int64_t left = columns - j;
                v_store(panel + j, left >= VN ? v_load(b + j) : left > 0 ? v_load_n(b + j, left) : v_set(0));
            }
        }
        return;
    }
#if LKI_SIMD == 512
    for (int64_t half = 0; half < ATTENTION_PANEL; half += 16) {
        int64_t rows = columns - half < 0 ? 0 : columns - half > 16 ? 16 : columns - half;
        for (int64_t p = 0; p < k; p += 16)
            transpose_16(panel + p * ATTENTION_PANEL + half, ATTENTION_PANEL, b + half * column + p, column,
                         rows, k - p < 16 ? k - p : 16);
    }
#else
    for (int64_t j = 0; j < ATTENTION_PANEL; j++)
        for (int64_t p = 0; p < k; p++)
            panel[p * ATTENTION_PANEL + j] = j < columns ? b[p * row + j * column] : 0;
#endif
}

static void attention_pack(float *panels, const float *b, int64_t k, int64_t n, int64_t row, int64_t column)
{
    for (int64_t j = 0; j < n; j += ATTENTION_PANEL, panels += k * ATTENTION_PANEL)
        attention_pack_panel(panels, b + j * column, k, n - j < ATTENTION_PANEL ? n - j : ATTENTION_PANEL,
                             row, column);
}

INLINE v attention_scored(v s, const float *first, const float *second, v scale, int64_t i, int64_t left)
{
    s *= scale;
    if (first) s += v_load_n(first + i, left);
    if (second) s += v_load_n(second + i, left);
    return s;
}

static float attention_score(float *s, const float *first, const float *second, float scale, int64_t n)
{
    v factor = v_set(scale), most = v_set(-INFINITY);
    int64_t i = 0;
    for (; i + VN <= n; i += VN) {
        v a = v_load(s + i) * factor;
        if (first) a += v_load(first + i);
        if (second) a += v_load(second + i);
        v_store(s + i, a);
        most = v_max(a, most);
    }
    float largest = v_largest(most);
    if (i < n) {
        v_store_n(s + i, attention_scored(v_load_n(s + i, n - i), first, second, factor, i, n - i), n - i);
        for (; i < n; i++) largest = s[i] > largest ? s[i] : largest;
    }
    return largest;
}

static float attention_exponentials(float *s, float largest, int64_t n)
{
    v shift = v_set(largest), sum = v_set(0);
    int64_t i = 0;
    for (; i + VN <= n; i += VN) {
        v e = v_exp(v_load(s + i) - shift);
        v_store(s + i, e);
        sum += e;
    }
    float total = v_sum(sum);
    if (i < n) {
        v_store_n(s + i, v_exp(v_load_n(s + i, n - i) - shift), n - i);
        for (; i < n; i++) total += s[i];
    }
    return total;
}

static void attention_back(float *s, float *d, const float *first, const float *second, const float *kept,
                           float scale, float log_sum, float delta, int64_t n)
{
    v factor = v_set(scale), shift = v_set(log_sum), less = v_set(delta);
    for (int64_t i = 0; i < n; i += VN) {
        int64_t left = n - i < VN ? n - i : VN;
        v p = v_exp(attention_scored(v_load_n(s + i, left), first, second, factor, i, left) - shift);
        v gradient = v_load_n(d + i, left), weight = p;
        if (kept) {
            v k = v_load_n(kept + i, left);
            weight *= k;
            gradient *= k;
        }
        v_store_n(s + i, weight, left);
        v_store_n(d + i, p * (gradient - less) * factor, left);
    }
}

static void attention_multiply(float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i += VN) {
        int64_t left = n - i < VN ? n - i : VN;
        v_store_n(a + i, v_load_n(a + i, left) * v_load_n(b + i, left), left);
    }
}

static void attention_scale(float *a, float factor, int64_t n)
{
    for (int64_t i = 0; i < n; i += VN) {
        int64_t left = n - i < VN ? n - i : VN;
        v_store_n(a + i, v_load_n(a + i, left) * v_set(factor), left);
    }
}

static const lki_attention_kernels attention_kernels = {
    .pack = attention_pack,
    .score = attention_score,
    .exponentials = attention_exponentials,
    .back = attention_back,
    .multiply = attention_multiply,
    .scale = attention_scale,
};

#endif
