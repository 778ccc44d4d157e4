/* One element of any dtype as a double, and back: what generic code and the reference engine read and write
 * with. A double holds every f32, bf16, f16, i32, u8 and bool exactly, and an i64 up to 2^53. */
#ifndef LKI_TENSOR_ELEMENT_H
#define LKI_TENSOR_ELEMENT_H

#include <lockstep/tensor.h>

#include "tensor/half.h"

static inline double lki_load(lk_dtype dtype, const void *data, int64_t index)
{
    switch (dtype) {
    case LK_F32: return ((const float *)data)[index];
    case LK_F64: return ((const double *)data)[index];
    case LK_BF16: return lki_bf16_to_f32(((const uint16_t *)data)[index]);
    case LK_F16: return lki_f16_to_f32(((const uint16_t *)data)[index]);
    case LK_I64: return (double)((const int64_t *)data)[index];
    case LK_I32: return ((const int32_t *)data)[index];
    case LK_U8: return ((const uint8_t *)data)[index];
    case LK_BOOL: return ((const uint8_t *)data)[index] != 0;
    }
    return 0;
}

static inline void lki_store(lk_dtype dtype, void *data, int64_t index, double value)
{
    switch (dtype) {
    case LK_F32: ((float *)data)[index] = (float)value; break;
    case LK_F64: ((double *)data)[index] = value; break;
    case LK_BF16: ((uint16_t *)data)[index] = lki_f32_to_bf16((float)value); break;
    case LK_F16: ((uint16_t *)data)[index] = lki_f32_to_f16((float)value); break;
    case LK_I64: ((int64_t *)data)[index] = (int64_t)value; break;
    case LK_I32: ((int32_t *)data)[index] = (int32_t)value; break;
    case LK_U8: ((uint8_t *)data)[index] = (uint8_t)value; break;
    case LK_BOOL: ((uint8_t *)data)[index] = value != 0; break;
    }
}

#endif
