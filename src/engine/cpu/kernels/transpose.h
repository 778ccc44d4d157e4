/* A matrix of sixteen by sixteen 32-bit words, turned in registers. */
#ifndef LKI_CPU_KERNELS_TRANSPOSE_H
#define LKI_CPU_KERNELS_TRANSPOSE_H

#include "engine/cpu/kernels/simd.h"

#if LKI_SIMD == 512
/* Sixteen rows of sixteen become its columns. */
INLINE void transpose_registers(__m512 r[16])
{
    __m512 s[16];
    UNROLL for (int i = 0; i < 16; i += 2)
    {
        s[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        s[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    UNROLL for (int i = 0; i < 16; i += 4) UNROLL for (int h = 0; h < 2; h++)
    {
        __m512d low = (__m512d)s[i + h], high = (__m512d)s[i + 2 + h];
        r[i + 2 * h] = (__m512)_mm512_unpacklo_pd(low, high);
        r[i + 2 * h + 1] = (__m512)_mm512_unpackhi_pd(low, high);
    }
    UNROLL for (int i = 0; i < 16; i += 8) UNROLL for (int h = 0; h < 4; h++)
    {
        s[i + h] = _mm512_shuffle_f32x4(r[i + h], r[i + 4 + h], 0x88);
        s[i + 4 + h] = _mm512_shuffle_f32x4(r[i + h], r[i + 4 + h], 0xdd);
    }
    UNROLL for (int h = 0; h < 8; h++)
    {
        r[h] = _mm512_shuffle_f32x4(s[h], s[8 + h], 0x88);
        r[8 + h] = _mm512_shuffle_f32x4(s[h], s[8 + h], 0xdd);
    }
}
#endif

#endif
