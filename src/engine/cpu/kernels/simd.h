/* One vector of floats and what kernels do with it, at the width that the including file chose with LKI_SIMD:
 * 512 (AVX-512), 256 (AVX2 and FMA) or 128 (whatever the compiler makes of four floats, on any machine).
 *
 * Kernels are written once against these names and compiled once a width (level_*.c); open() picks the widest
 * that the machine has. Everything is static, so the copies do not meet. `v` is the vector, `vmask` the
 * result of a comparison; loads and stores need no alignment; the _n forms touch only the first n floats. */
#ifndef LKI_CPU_KERNELS_SIMD_H
#define LKI_CPU_KERNELS_SIMD_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if LKI_SIMD != 128
#include <immintrin.h>
#endif

/* The compiler must keep these in registers: small functions, constant trip counts. */
#define INLINE static inline __attribute__((always_inline, unused))
#define UNROLL _Pragma("GCC unroll 32")

enum { VN = LKI_SIMD / 32 };
typedef float v __attribute__((vector_size(LKI_SIMD / 8)));
typedef int32_t vint __attribute__((vector_size(LKI_SIMD / 8)));
typedef uint32_t vuint __attribute__((vector_size(LKI_SIMD / 8))); /* wraps around where vint must not */
typedef float v_unaligned __attribute__((vector_size(LKI_SIMD / 8), aligned(4)));

INLINE v v_load(const float *p)
{
    return *(const v_unaligned *)p;
}

INLINE void v_store(float *p, v a)
{
    *(v_unaligned *)p = a;
}

INLINE v v_set(float a)
{
    return a - (v){0};
}

INLINE vint v_set_int(int32_t a)
{
    return a - (vint){0};
}

#if LKI_SIMD == 512

typedef __mmask16 vmask;

INLINE v v_load_n(const float *p, int64_t n)
{
    return (v)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}

INLINE void v_store_n(float *p, v a, int64_t n)
{
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)a);
}

INLINE v v_fma(v a, v b, v c)
{
    return (v)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}

INLINE v v_max(v a, v b)
{
    return (v)_mm512_max_ps((__m512)a, (__m512)b);
}

INLINE v v_min(v a, v b)
{
    return (v)_mm512_min_ps((__m512)a, (__m512)b);
}

INLINE v v_sqrt(v a)
{
    return (v)_mm512_sqrt_ps((__m512)a);
}

INLINE v v_round(v a)
{
    return (v)_mm512_roundscale_ps((__m512)a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

INLINE v v_abs(v a)
{
    return (v)_mm512_abs_ps((__m512)a);
}

/* a / b to within two units in the last place, in a third of the time. Where the reciprocal is out of range
 * (b of 0, infinite, far too small or far too large), the division itself. */
INLINE v v_divide(v a, v b)
{
    enum { NAN_ZERO_INF_TINY = 0x01 | 0x02 | 0x04 | 0x08 | 0x10 | 0x20 | 0x80 };
    __m512 r = _mm512_rcp14_ps((__m512)b);
    if (__builtin_expect(_mm512_fpclass_ps_mask(r, NAN_ZERO_INF_TINY) != 0, 0)) return a / b;
    __m512 error = _mm512_fnmadd_ps((__m512)b, r, _mm512_set1_ps(1.0f));
    return a * (v)_mm512_fmadd_ps(r, error, r);
}

#define V_COMPARE(name, code)                                                                                \
    INLINE vmask name(v a, v b)                                                                              \
    {                                                                                                        \
        return _mm512_cmp_ps_mask((__m512)a, (__m512)b, code);                                               \
    }

INLINE v v_select(vmask mask, v yes, v no)
{
    return (v)_mm512_mask_blend_ps(mask, (__m512)no, (__m512)yes);
}

INLINE v v_and(vmask mask, v a)
{
    return (v)_mm512_maskz_mov_ps(mask, (__m512)a);
}

INLINE vmask v_either(vmask a, vmask b)
{
    return a | b;
}

/* a * 2^n for a whole n, gradual underflow included. */
INLINE v v_scale(v a, v n)
{
    return (v)_mm512_scalef_ps((__m512)a, (__m512)n);
}

INLINE float v_sum(v a)
{
    return _mm512_reduce_add_ps((__m512)a);
}

INLINE float v_largest(v a)
{
    return _mm512_reduce_max_ps((__m512)a);
}

#elif LKI_SIMD == 256

typedef vint vmask;

INLINE __m256i v_first(int64_t n)
{
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lanes);
}

INLINE v v_load_n(const float *p, int64_t n)
{
    return (v)_mm256_maskload_ps(p, v_first(n));
}

INLINE void v_store_n(float *p, v a, int64_t n)
{
    _mm256_maskstore_ps(p, v_first(n), (__m256)a);
}

INLINE v v_fma(v a, v b, v c)
{
    return (v)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}

INLINE v v_max(v a, v b)
{
    return (v)_mm256_max_ps((__m256)a, (__m256)b);
}

INLINE v v_min(v a, v b)
{
    return (v)_mm256_min_ps((__m256)a, (__m256)b);
}

INLINE v v_sqrt(v a)
{
    return (v)_mm256_sqrt_ps((__m256)a);
}

INLINE v v_round(v a)
{
    return (v)_mm256_round_ps((__m256)a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

#define V_COMPARE(name, code)                                                                                \
    INLINE vmask name(v a, v b)                                                                              \
    {                                                                                                        \
        return (vint)_mm256_cmp_ps((__m256)a, (__m256)b, code);                                              \
    }

#else

typedef vint vmask;

INLINE v v_load_n(const float *p, int64_t n)
{
    v a = {0};
    memcpy(&a, p, (size_t)n * sizeof(float));
    return a;
}

INLINE void v_store_n(float *p, v a, int64_t n)
{
    memcpy(p, &a, (size_t)n * sizeof(float));
}

INLINE v v_fma(v a, v b, v c)
{
    return a * b + c;
}

/* As the instructions do: the second operand where they do not compare. */
INLINE v v_max(v a, v b)
{
    vint greater = a > b;
    return (v)((greater & (vint)a) | (~greater & (vint)b));
}

INLINE v v_min(v a, v b)
{
    vint less = a < b;
    return (v)((less & (vint)a) | (~less & (vint)b));
}

INLINE v v_sqrt(v a)
{
    v r;
    for (int i = 0; i < VN; i++) r[i] = sqrtf(a[i]);
    return r;
}

INLINE v v_round(v a)
{
    v r;
    for (int i = 0; i < VN; i++) r[i] = nearbyintf(a[i]);
    return r;
}

#define V_COMPARE(name, code)                                                                                \
    INLINE vmask name(v a, v b)                                                                              \
    {                                                                                                        \
        return a code b;                                                                                     \
    }

#endif

#if LKI_SIMD != 512

INLINE v v_divide(v a, v b)
{
    return a / b;
}

INLINE v v_abs(v a)
{
    return (v)((vint)a & v_set_int(0x7fffffff));
}

INLINE v v_select(vmask mask, v yes, v no)
{
    return (v)((mask & (vint)yes) | (~mask & (vint)no));
}

INLINE v v_and(vmask mask, v a)
{
    return (v)(mask & (vint)a);
}

INLINE vmask v_either(vmask a, vmask b)
{
    return a | b;
}

/* a * 2^n for a whole n of at most 254 in magnitude, in two steps so that neither factor overflows. */
INLINE v v_scale(v a, v n)
{
    vint whole = __builtin_convertvector(n, vint), half = whole >> 1;
    v first = (v)((half + 127) << 23), second = (v)((whole - half + 127) << 23);
    return a * first * second;
}

INLINE float v_sum(v a)
{
    float lane[VN], sum = 0;
    v_store(lane, a);
    for (int width = VN / 2; width; width /= 2)
        for (int i = 0; i < width; i++) lane[i] += lane[i + width];
    sum = lane[0];
    return sum;
}

INLINE float v_largest(v a)
{
    float largest = a[0];
    for (int i = 1; i < VN; i++) largest = a[i] > largest ? a[i] : largest;
    return largest;
}

#endif

/* False where a lane is not a number, except v_unequal. */
#if LKI_SIMD == 128
V_COMPARE(v_less, <)
V_COMPARE(v_less_equal, <=)
V_COMPARE(v_equal, ==)
V_COMPARE(v_unequal, !=)
#else
V_COMPARE(v_less, _CMP_LT_OQ)
V_COMPARE(v_less_equal, _CMP_LE_OQ)
V_COMPARE(v_equal, _CMP_EQ_OQ)
V_COMPARE(v_unequal, _CMP_NEQ_UQ)
#endif
#undef V_COMPARE

/* The magnitude of a with the sign of b. */
INLINE v v_copysign(v a, v b)
{
    vint sign = v_set_int((int32_t)0x80000000u);
    return (v)(((vint)a & ~sign) | ((vint)b & sign));
}

/* Sums of doubles: the two halves of a vector of floats, widened and added, lane by lane. */
typedef double vdouble __attribute__((vector_size(LKI_SIMD / 8)));
typedef float vhalf __attribute__((vector_size(LKI_SIMD / 16)));

INLINE vdouble v_widen(v a)
{
    union {
        v whole;
        vhalf half[2];
    } parts = {a};
    return __builtin_convertvector(parts.half[0], vdouble) + __builtin_convertvector(parts.half[1], vdouble);
}

INLINE double v_sum_double(vdouble a)
{
    double sum = 0;
    for (int i = 0; i < VN / 2; i++) sum += a[i];
    return sum;
}

#endif
