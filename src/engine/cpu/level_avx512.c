/* The kernels for machines with AVX-512. */
#if defined(__x86_64__)
#pragma GCC target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma,f16c,prefer-vector-width=512")

#define LKI_SIMD         512
#define LKI_LEVEL_NAME   "avx512"
#define LKI_KERNEL_TABLE lki_cpu_kernels_avx512
#include "engine/cpu/kernels/table.h"
#endif
