/* Products of bf16 for machines with AMX. The compiler's options for this file are in src/CMakeLists.txt. */
#if defined(__AMX_BF16__) || defined(__AMXBF16__) /* Clang 14's name */
#define LKI_SIMD 512
#include "engine/cpu/kernels/amx_block.h"

#define LKI_BF16_NAME             "amx"
#define LKI_BF16_TABLE            lki_bf16_kernels_amx
#define LKI_BF16_THREAD_WORK      16000000
#define LKI_BF16_OUTRUNS_WINOGRAD true
#include "engine/cpu/kernels/bf16_product.h"
#endif
