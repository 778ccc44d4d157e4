/* The kernels for machines with AVX2 and FMA; src/CMakeLists.txt has the flags that they are compiled with.
 */
#if defined(__x86_64__)

#define LKI_SIMD         256
#define LKI_LEVEL_NAME   "avx2"
#define LKI_KERNEL_TABLE lki_cpu_kernels_avx2
#include "engine/cpu/kernels/table.h"
#endif
