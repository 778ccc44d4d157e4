/* exp, log, tanh, erf and the like on vectors, within 2 units in the last place (erf 3) where the machine has
 * FMA.
 *
 * The polynomials are minimax fits of relative error over the reduced ranges that each function names. */
#ifndef LKI_CPU_KERNELS_MATH_H
#define LKI_CPU_KERNELS_MATH_H

#include "engine/cpu/kernels/simd.h"

/* exp x = 2^n exp r with |r| <= ln 2 / 2, and exp r = 1 + r + r^2 P(r). */
INLINE v v_exp(v x)
{
    v clamped = v_min(v_max(x, v_set(-104.0f)), v_set(89.0f));
    v n = v_round(clamped * v_set(1.44269504f));
    v r = v_fma(n, v_set(-0.693359375f), clamped);
    r = v_fma(n, v_set(2.12194440e-4f), r);
    v p = v_set(1.381460228e-03f);
    p = v_fma(p, r, v_set(8.368715644e-03f));
    p = v_fma(p, r, v_set(4.166838899e-02f));
    p = v_fma(p, r, v_set(1.666652113e-01f));
    p = v_fma(p, r, v_set(4.999999404e-01f));
    v e = v_fma(p, r * r, r) + v_set(1.0f);
    return v_select(v_unequal(x, x), x, v_scale(e, n));
}

/* log x = n ln 2 + log(1 + f) with 1 + f in [sqrt 1/2, sqrt 2), and log(1 + f) = f - f^2 / 2 + f^3 P(f). */
INLINE v v_log(v x)
{
    vmask tiny = v_less(x, v_set(0x1p-126f));
    v scaled = v_select(tiny, x * v_set(0x1p23f), x);
    vint bits = (vint)((vuint)scaled - (vuint)v_set_int(0x3f3504f3));
    v n = __builtin_convertvector(bits >> 23, v) - v_and(tiny, v_set(23.0f));
    v f = (v)((bits & v_set_int(0x007fffff)) + v_set_int(0x3f3504f3)) - v_set(1.0f);
    v p = v_set(6.746640801e-02f);
    p = v_fma(p, f, v_set(-1.167565212e-01f));
    p = v_fma(p, f, v_set(1.188816205e-01f));
    p = v_fma(p, f, v_set(-1.240558922e-01f));
    p = v_fma(p, f, v_set(1.421955228e-01f));
    p = v_fma(p, f, v_set(-1.666799635e-01f));
    p = v_fma(p, f, v_set(2.000211924e-01f));
    p = v_fma(p, f, v_set(-2.500000894e-01f));
    p = v_fma(p, f, v_set(3.333331347e-01f));
    v square = f * f;
    v tail = v_fma(n, v_set(-2.12194440e-4f), p * f * square);
    v result = v_fma(square, v_set(-0.5f), tail) + f;
    result = v_fma(n, v_set(0.693359375f), result);
    result = v_select(v_equal(x, v_set(INFINITY)), x, result);
    result = v_select(v_equal(x, v_set(0.0f)), v_set(-INFINITY), result);
    return v_select(v_either(v_less(x, v_set(0.0f)), v_unequal(x, x)), v_set(NAN), result);
}

/* log(1 + x) for x in [0, 1]: log w * x / (w - 1) with w = 1 + x undoes the rounding of w. */
INLINE v v_log1p_unit(v x)
{
    v w = x + v_set(1.0f), d = w - v_set(1.0f);
    vmask vanished = v_equal(d, v_set(0.0f));
    return v_select(vanished, x, v_log(w) * x / v_select(vanished, v_set(1.0f), d));
}

/* exp(x) - 1 for x <= 0. Near 0 by its series, elsewhere nothing cancels much. */
INLINE v v_expm1_negative(v x)
{
    v p = v_set(1.0f / 5040);
    p = v_fma(p, x, v_set(1.0f / 720));
    p = v_fma(p, x, v_set(1.0f / 120));
    p = v_fma(p, x, v_set(1.0f / 24));
    p = v_fma(p, x, v_set(1.0f / 6));
    p = v_fma(p, x, v_set(0.5f));
    v series = v_fma(p, x * x, x);
    return v_select(v_less(x, v_set(-0.5f)), v_exp(x) - v_set(1.0f), series);
}

INLINE v v_sigmoid(v x)
{
    return v_set(1.0f) / (v_set(1.0f) + v_exp(-x));
}

/* tanh x = x + x^3 P(x^2) below 0.625, else 1 - 2 / (exp 2|x| + 1). */
INLINE v v_tanh(v x)
{
    v a = v_abs(x), s = x * x;
    v p = v_set(-5.704987328e-03f);
    p = v_fma(p, s, v_set(2.063908800e-02f));
    p = v_fma(p, s, v_set(-5.373971537e-02f));
    p = v_fma(p, s, v_set(1.333144158e-01f));
    p = v_fma(p, s, v_set(-3.333328068e-01f));
    v small = v_fma(p, s * x, x);
    v large = v_set(1.0f) - v_set(2.0f) / (v_exp(a + a) + v_set(1.0f));
    return v_select(v_less(a, v_set(0.625f)), small, v_copysign(large, x));
}

/* erf x = x + x P(x^2) below 0.92, else 1 - exp(-x Q(x)), which is 1 to the last bit from 4 on. */
INLINE v v_erf(v x)
{
    v a = v_abs(x), s = x * x, t = v_min(a, v_set(4.0f));
    v p = v_set(8.316787716e-05f);
    p = v_fma(p, s, v_set(-8.130016504e-04f));
    p = v_fma(p, s, v_set(5.199906882e-03f));
    p = v_fma(p, s, v_set(-2.685894258e-02f));
    p = v_fma(p, s, v_set(1.128368750e-01f));
    p = v_fma(p, s, v_set(-3.761263192e-01f));
    p = v_fma(p, s, v_set(1.283791661e-01f));
    v small = v_fma(p, x, x);
    v q = v_set(1.152226105e-05f);
    q = v_fma(q, t, v_set(-3.256524215e-04f));
    q = v_fma(q, t, v_set(3.653762862e-03f));
    q = v_fma(q, t, v_set(-2.378534526e-02f));
    q = v_fma(q, t, v_set(1.062631458e-01f));
    q = v_fma(q, t, v_set(6.351358891e-01f));
    q = v_fma(q, t, v_set(1.128652215e+00f));
    v large = v_copysign(v_set(1.0f) - v_exp(-(q * t)), x);
    v result = v_select(v_less(a, v_set(0.92f)), small, large);
    return v_select(v_unequal(x, x), x, result);
}

#endif
