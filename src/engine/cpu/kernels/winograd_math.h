/* The three small linear maps of Winograd's algorithm F(4, 3) in one dimension, and their transposes.
 *
 * For a signal d of 6, a kernel g of 3 and the points 0, +-a, +-b and infinity:
 *
 *     y = A^T ((G g) * (B^T d))
 *
 * with A^T holding powers of the points, G powers divided by the products of differences, and B^T the
 * polynomials that vanish at all points but one. a = 5/8 and b = 3/2 keep the rounding error near 1e-6 of the
 * largest result; whole numbers would be five times worse. The algorithm is linear in d and in g, so its
 * gradients are its transposes, over the same numbers:
 *
 *     dd = B ((G g) * (A dy))        dg = G^T ((A dy) * (B^T d)) */
#ifndef LKI_CPU_KERNELS_WINOGRAD_MATH_H
#define LKI_CPU_KERNELS_WINOGRAD_MATH_H

#include "engine/cpu/kernels.h"
#include "engine/cpu/kernels/simd.h"

#if LKI_SIMD == 512

static const float WA = 0.625f, WB = 1.5f;
#define WA2 (0.625f * 0.625f)
#define WB2 (1.5f * 1.5f)
#define WA3 (WA2 * 0.625f)
#define WB3 (WB2 * 1.5f)
#define WFA (2 * WA2 * (WA2 - WB2))
#define WFB (2 * WB2 * (WB2 - WA2))

/* t = B^T d */
INLINE void wino_bt(v t[6], const v d[6])
{
    const v a = v_set(WA), b = v_set(WB), a2 = v_set(-WA2), b2 = v_set(-WB2), s = v_set(-(WA2 + WB2)),
            p = v_set(WA2 * WB2);
    v even_a = v_fma(b2, d[2], d[4]), odd_a = v_fma(b2, d[1], d[3]);
    v even_b = v_fma(a2, d[2], d[4]), odd_b = v_fma(a2, d[1], d[3]);
    t[0] = v_fma(p, d[0], v_fma(s, d[2], d[4]));
    t[1] = v_fma(a, odd_a, even_a);
    t[2] = v_fma(-a, odd_a, even_a);
    t[3] = v_fma(b, odd_b, even_b);
    t[4] = v_fma(-b, odd_b, even_b);
    t[5] = v_fma(p, d[1], v_fma(s, d[3], d[5]));
}

/* d = B t */
INLINE void wino_b(v d[6], const v t[6])
{
    const v a2 = v_set(-WA2), b2 = v_set(-WB2), s = v_set(-(WA2 + WB2)), p = v_set(WA2 * WB2);
    v sum_a = t[1] + t[2], difference_a = v_set(WA) * (t[1] - t[2]);
    v sum_b = t[3] + t[4], difference_b = v_set(WB) * (t[3] - t[4]);
    d[0] = p * t[0];
    d[1] = v_fma(b2, difference_a, v_fma(a2, difference_b, p * t[5]));
    d[2] = v_fma(b2, sum_a, v_fma(a2, sum_b, s * t[0]));
    d[3] = v_fma(s, t[5], difference_a + difference_b);
    d[4] = t[0] + (sum_a + sum_b);
    d[5] = t[5];
}

/* y = A^T m */
INLINE void wino_at(v y[4], const v m[6])
{
    v sum_a = m[1] + m[2], difference_a = m[1] - m[2], sum_b = m[3] + m[4], difference_b = m[3] - m[4];
    y[0] = m[0] + (sum_a + sum_b);
    y[1] = v_fma(v_set(WA), difference_a, v_set(WB) * difference_b);
    y[2] = v_fma(v_set(WA2), sum_a, v_set(WB2) * sum_b);
    y[3] = v_fma(v_set(WA3), difference_a, v_fma(v_set(WB3), difference_b, m[5]));
}

/* m = A y */
INLINE void wino_a(v m[6], const v y[4])
{
    v even_a = v_fma(v_set(WA2), y[2], y[0]), odd_a = v_fma(v_set(WA2), y[3], y[1]);
    v even_b = v_fma(v_set(WB2), y[2], y[0]), odd_b = v_fma(v_set(WB2), y[3], y[1]);
    m[0] = y[0];
    m[1] = v_fma(v_set(WA), odd_a, even_a);
    m[2] = v_fma(v_set(-WA), odd_a, even_a);
    m[3] = v_fma(v_set(WB), odd_b, even_b);
    m[4] = v_fma(v_set(-WB), odd_b, even_b);
    m[5] = y[3];
}

/* t = G g */
INLINE void wino_g(v t[6], const v g[3])
{
    v even_a = v_fma(v_set(WA2), g[2], g[0]), even_b = v_fma(v_set(WB2), g[2], g[0]);
    t[0] = g[0] * v_set(1 / (WA2 * WB2));
    t[1] = v_fma(v_set(WA), g[1], even_a) * v_set(1 / WFA);
    t[2] = v_fma(v_set(-WA), g[1], even_a) * v_set(1 / WFA);
    t[3] = v_fma(v_set(WB), g[1], even_b) * v_set(1 / WFB);
    t[4] = v_fma(v_set(-WB), g[1], even_b) * v_set(1 / WFB);
    t[5] = g[2];
}

/* g = G^T t */
INLINE void wino_gt(v g[3], const v t[6])
{
    v sum_a = (t[1] + t[2]) * v_set(1 / WFA), difference_a = (t[1] - t[2]) * v_set(1 / WFA);
    v sum_b = (t[3] + t[4]) * v_set(1 / WFB), difference_b = (t[3] - t[4]) * v_set(1 / WFB);
    g[0] = v_fma(v_set(1 / (WA2 * WB2)), t[0], sum_a + sum_b);
    g[1] = v_fma(v_set(WA), difference_a, v_set(WB) * difference_b);
    g[2] = v_fma(v_set(WA2), sum_a, v_fma(v_set(WB2), sum_b, t[5]));
}

/* U = G g G^T of the 3 x 3 kernels g, whose element (row, column, tap) lies at w[row * row_stride + column *
 * column_stride + tap]; for the layout of U see kernels.h. */
static void wino_weights(float *u, const float *w, int64_t rows, int64_t columns, int64_t row_stride,
                         int64_t column_stride)
{
    for (int64_t c = 0; c < columns; c += VN) {
        int64_t n = columns - c < VN ? columns - c : VN;
        float *panel = u + c / LKI_WINOGRAD_PANEL * 36 * rows * LKI_WINOGRAD_PANEL + c % LKI_WINOGRAD_PANEL;
        for (int64_t r = 0; r < rows; r++) {
            float lane[9][VN] = {{0}};
            for (int64_t i = 0; i < n; i++)
                for (int tap = 0; tap < 9; tap++)
                    lane[tap][i] = w[r * row_stride + (c + i) * column_stride + tap];
            v half[6][3];
            for (int x = 0; x < 3; x++) {
                v g[3], t[6];
                for (int y = 0; y < 3; y++) g[y] = v_load(lane[y * 3 + x]);
                wino_g(t, g);
                for (int i = 0; i < 6; i++) half[i][x] = t[i];
            }
            for (int i = 0; i < 6; i++) {
                v t[6];
                wino_g(t, half[i]);
                for (int j = 0; j < 6; j++)
                    v_store(panel + ((i * 6 + j) * rows + r) * LKI_WINOGRAD_PANEL, t[j]);
            }
        }
    }
}

/* dw (rows, columns, 3, 3) = G^T U G of the summed products U (36, rows, columns). */
static void wino_weights_back(float *dw, const float *u, int64_t rows, int64_t columns)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c += VN) {
            int64_t n = columns - c < VN ? columns - c : VN;
            v half[3][6];
            for (int x = 0; x < 6; x++) {
                v m[6], y[3];
                for (int i = 0; i < 6; i++) m[i] = v_load_n(u + ((i * 6 + x) * rows + r) * columns + c, n);
                wino_gt(y, m);
                for (int i = 0; i < 3; i++) half[i][x] = y[i];
            }
            for (int i = 0; i < 3; i++) {
                float lane[3][VN];
                v y[3];
                wino_gt(y, half[i]);
                for (int j = 0; j < 3; j++) v_store(lane[j], y[j]);
                for (int64_t k = 0; k < n; k++)
                    for (int j = 0; j < 3; j++) dw[(r * columns + c + k) * 9 + i * 3 + j] = lane[j][k];
            }
        }
}

#endif
#endif
