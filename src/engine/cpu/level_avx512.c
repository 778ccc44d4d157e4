/* The kernels for machines with AVX-512; src/CMakeLists.txt has the flags that they are compiled with. */
#if defined(__x86_64__)

#define LKI_SIMD         512
#define LKI_LEVEL_NAME   "avx512"
#define LKI_KERNEL_TABLE lki_cpu_kernels_avx512
#include "engine/cpu/kernels/table.h"
#endif
