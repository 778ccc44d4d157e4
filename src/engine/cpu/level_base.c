/* The kernels for any machine: the compiler's own vectors of four floats. */
#define LKI_SIMD         128
#define LKI_LEVEL_NAME   "base"
#define LKI_KERNEL_TABLE lki_cpu_kernels_base
#include "engine/cpu/kernels/table.h"
