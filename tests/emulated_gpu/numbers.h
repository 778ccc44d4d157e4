/* Elements of the types that cuBLASLt and cuDNN take, as doubles. */
#ifndef LKT_GPU_NUMBERS_H
#define LKT_GPU_NUMBERS_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <stddef.h>

namespace lkt_gpu
{

enum number { F32, F64, BF16, F16 };

static inline double load(const void *data, number type, int64_t i)
{
    switch (type) {
    case F64: return ((const double *)data)[i];
    case BF16: return (double)__bfloat162float(((const __nv_bfloat16 *)data)[i]);
    case F16: return (double)__half2float(((const __half *)data)[i]);
    default: return (double)((const float *)data)[i];
    }
}

static inline void store(void *data, number type, int64_t i, double value)
{
    switch (type) {
    case F64: ((double *)data)[i] = value; break;
    case BF16: ((__nv_bfloat16 *)data)[i] = __float2bfloat16_rn((float)value); break;
    case F16: ((__half *)data)[i] = __float2half_rn((float)value); break;
    default: ((float *)data)[i] = (float)value; break;
    }
}

} // namespace lkt_gpu

#endif
