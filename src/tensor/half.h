/* The two 16-bit floats, to and from f32, rounding to nearest even. */
#ifndef LKI_TENSOR_HALF_H
#define LKI_TENSOR_HALF_H

#include <stdint.h>
#include <string.h>

static inline float lki_bf16_to_f32(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

static inline uint16_t lki_f32_to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((bits >> 16) | 0x40); /* keep a NaN a NaN */
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

static inline float lki_f16_to_f32(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000u) << 16;
    uint32_t exponent = (bits >> 10) & 0x1f, mantissa = bits & 0x3ffu;
    uint32_t wide;
    if (exponent == 0x1f) {
        wide = sign | 0x7f800000u | (mantissa << 13);
    } else if (exponent) {
        wide = sign | ((exponent + 112) << 23) | (mantissa << 13);
    } else {
        float value = (float)mantissa * 0x1p-24f; /* subnormal or zero: exact */
        return sign ? -value : value;
    }
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

static inline uint16_t lki_f32_to_f16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint16_t sign = (uint16_t)((bits >> 16) & 0x8000u);
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* rounds to infinity */
    if (magnitude < 0x38800000u) {                                   /* subnormal in f16 */
        float absolute;
        memcpy(&absolute, &magnitude, sizeof absolute);
        float shifted = absolute + 0.5f; /* adding 0.5 leaves the value rounded at 2^-24 in the low bits */
        uint32_t rounded;
        memcpy(&rounded, &shifted, sizeof rounded);
        return (uint16_t)(sign | (rounded - 0x3f000000u));
    }
    uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1);
    return (uint16_t)(sign | ((rounded - 0x38000000u) >> 13));
}

#endif
