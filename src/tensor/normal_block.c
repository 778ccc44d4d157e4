/* PyTorch fills 16 and more normal numbers with a vector kernel whose log, sine and cosine are
 * single-precision polynomials (Cephes') and whose products are contracted into fused multiply-adds where its
 * compiler saw a chance. Random weights are to have the same bits here, so each step below rounds exactly
 * where that kernel rounds: an fmaf is one rounding, a product followed by a sum are two. Do not rearrange.
 * Checked against millions of live numbers; see tests/oracle. */
#include "tensor/normal_block.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The logarithm of a number in (0, 1]: x = m 2^e with m in [sqrt(1/2), sqrt(2)), a polynomial in m - 1, and e
 * log 2 in two pieces. */
static float log_f32(float x)
{
    static const float p[9] = {7.0376836292E-2f,  -1.1514610310E-1f, 1.1676998740E-1f,
                               -1.2420140846E-1f, 1.4249322787E-1f,  -1.6668057665E-1f,
                               2.0000714765E-1f,  -2.4999993993E-1f, 3.3333331174E-1f};
    uint32_t bits = bits_of(x);
    float e = (float)((int32_t)(bits >> 23) - 126);
    float m = float_of((bits & 0x007fffffu) | 0x3f000000u);
    float t = m - 1;
    if (m < 0.707106781186547524f) {
        e -= 1;
        t += m;
    }
    float z = t * t, y = p[0];
    for (int i = 1; i < 9; i++) y = fmaf(y, t, p[i]);
    y *= t;
    y = fmaf(y, z, e * -2.12194440e-4f);
    y = fmaf(-z, 0.5f, y);
    return fmaf(e, 0.693359375f, t + y);
}

/* Both of a number in [0, 2 pi]: j is the octant rounded up to even, x what is left in [-pi/4, pi/4]; the
 * octant says which polynomial is whose and the signs. */
static void sincos_f32(float x, float *sine, float *cosine)
{
    int32_t j = ((int32_t)(x * 1.27323954473516f) + 1) & ~1;
    float octant = (float)j;
    x = fmaf(octant, -0.78515625f, x);
    x = fmaf(octant, -2.4187564849853515625e-4f, x);
    x = fmaf(octant, -3.77489497744594108e-8f, x);
    float z = x * x;
    float even = fmaf(2.443315711809948E-005f, z, -1.388731625493765E-003f);
    even = fmaf(even, z, 4.166664568298827E-002f) * z;
    even = fmaf(even, z, -(z * 0.5f)) + 1;
    float odd = fmaf(-1.9515295891E-4f, z, 8.3321608736E-3f);
    odd = fmaf(odd, z, -1.6666654611E-1f) * z;
    odd = fmaf(odd, x, x);
    uint32_t sine_sign = (uint32_t)(j & 4) << 29, cosine_sign = (uint32_t)(~(j - 2) & 4) << 29;
    *sine = float_of(bits_of(j & 2 ? even : odd) ^ sine_sign);
    *cosine = float_of(bits_of(j & 2 ? odd : even) ^ cosine_sign);
}

void lki_normal_block_f32(float *d, float mean, float std)
{
    const float two_pi = 6.283185307179586f;
    for (int j = 0; j < 8; j++) {
        float radius = sqrtf(-2 * log_f32(1 - d[j])), sine, cosine;
        sincos_f32(two_pi * d[j + 8], &sine, &cosine);
        d[j] = fmaf(radius * cosine, std, mean);
        d[j + 8] = fmaf(radius * sine, std, mean);
    }
}
