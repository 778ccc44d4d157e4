/* The inner loops of normalisation. */
#ifndef LKI_CPU_KERNELS_NORM_H
#define LKI_CPU_KERNELS_NORM_H

#include "engine/cpu/kernels.h"
#include "engine/cpu/kernels/simd.h"

/* sum of dy (x - mean) */
static double sum_centered_products(const float *dy, const float *x, float mean, int64_t n)
{
    vdouble total = {0};
    v m = v_set(mean);
    int64_t i = 0;
    for (; i + 2 * VN <= n; i += 2 * VN) {
        v a = v_load(dy + i) * (v_load(x + i) - m);
        total += v_widen(v_fma(v_load(dy + i + VN), v_load(x + i + VN) - m, a));
    }
    double rest = 0;
    for (; i < n; i++) rest += (double)dy[i] * ((double)x[i] - mean);
    return v_sum_double(total) + rest;
}

/* out = a dy + b (x - mean) + c; out may lie over dy. With b mean in c, large means would cost digits. */
static void blend(float *out, const float *dy, const float *x, float a, float b, float mean, float c,
                  int64_t n)
{
    v va = v_set(a), vb = v_set(b), vm = v_set(mean), vc = v_set(c);
    int64_t i = 0;
    for (; i + VN <= n; i += VN)
        v_store(out + i, v_fma(va, v_load(dy + i), v_fma(vb, v_load(x + i) - vm, vc)));
    if (i < n)
        v_store_n(out + i, v_fma(va, v_load_n(dy + i, n - i), v_fma(vb, v_load_n(x + i, n - i) - vm, vc)),
                  n - i);
}

/* y = (x - mean) scale + shift */
static void center_scale(float *y, const float *x, float mean, float scale, float shift, int64_t n)
{
    v m = v_set(mean), s = v_set(scale), t = v_set(shift);
    int64_t i = 0;
    for (; i + VN <= n; i += VN) v_store(y + i, v_fma(v_load(x + i) - m, s, t));
    if (i < n) v_store_n(y + i, v_fma(v_load_n(x + i, n - i) - m, s, t), n - i);
}

/* y = ((x - mean) istd + shift) w + b, with a weight and a bias for each element of the row. */
static void norm_row(float *y, const float *x, float mean, float istd, float shift, const float *w,
                     const float *b, int64_t n)
{
    v m = v_set(mean), s = v_set(istd), t = v_set(shift);
    for (int64_t i = 0; i < n; i += VN) {
        int64_t left = n - i < VN ? n - i : VN;
        v a = v_fma(v_load_n(x + i, left) - m, s, t);
        if (w) a *= v_load_n(w + i, left);
        if (b) a += v_load_n(b + i, left);
        v_store_n(y + i, a, left);
    }
}

/* With xh = (x - mean) istd and g = dy w: dx = istd (g - mean(g) - xh mean(g xh)); dw += dy xh; db += dy. dx,
 * dw and db may be NULL, and dx may lie over dy. */
static void norm_grad_row(float *dx, const float *dy, const float *x, const float *w, float mean, float istd,
                          float *dw, float *db, int64_t n)
{
    v m = v_set(mean), s = v_set(istd);
    vdouble sum = {0}, product = {0};
    for (int64_t i = 0; i < n; i += VN) {
        int64_t left = n - i < VN ? n - i : VN;
        v d = v_load_n(dy + i, left), xh = (v_load_n(x + i, left) - m) * s,
          g = w ? d * v_load_n(w + i, left) : d;
        if (dw) v_store_n(dw + i, v_fma(d, xh, v_load_n(dw + i, left)), left);
        if (db) v_store_n(db + i, d + v_load_n(db + i, left), left);
        sum += v_widen(g);
        product += v_widen(g * xh);
    }
    if (dx && n == 1) dx[0] = 0; /* exactly: d * w - mean_g below may be contracted, which leaves rounding */
    if (!dx || n == 1) return;
    v mean_g = v_set((float)(v_sum_double(sum) / (double)n)),
      mean_product = v_set((float)(v_sum_double(product) / (double)n));
    for (int64_t i = 0; i < n; i += VN) {
        int64_t left = n - i < VN ? n - i : VN;
        v d = v_load_n(dy + i, left), xh = (v_load_n(x + i, left) - m) * s,
          g = w ? d * v_load_n(w + i, left) : d;
        v_store_n(dx + i, s * (g - mean_g - xh * mean_product), left);
    }
}

#endif
