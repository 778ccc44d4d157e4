/* The vector levels of the cpu engine, from the narrowest: a machine of one level has the instructions of all
 * before it. Two levels round differently, so that ranks of one job compute on the same one. */
#ifndef LKI_CPU_LEVEL_H
#define LKI_CPU_LEVEL_H

#include <lockstep/status.h>

/* X(symbol, name); the name is what LOCKSTEP_CPU_LEVEL takes. A new level goes to its place in the order. */
#define LKI_CPU_LEVEL_LIST(X)                                                                                \
    X(LKI_CPU_LEVEL_BASE, "base")                                                                            \
    X(LKI_CPU_LEVEL_AVX2, "avx2")                                                                            \
    X(LKI_CPU_LEVEL_AVX512, "avx512")                                                                        \
    X(LKI_CPU_LEVEL_AVX512BF16, "avx512bf16") /* products of bf16 by vdpbf16ps; below, bf16 is widened */    \
    X(LKI_CPU_LEVEL_AMX, "amx")               /* products of bf16 by AMX's tiles */

/* 0 is none: lk_engine_options.cpu_level then leaves the choice to the machine. */
typedef enum lki_cpu_level {
    LKI_CPU_LEVEL_NONE,
#define X(symbol, name) symbol,
    LKI_CPU_LEVEL_LIST(X)
#undef X
} lki_cpu_level;

const char *lki_cpu_level_name(lki_cpu_level level);

/* What LOCKSTEP_CPU_LEVEL allows, which may be more than this machine has. LK_ERR_CONFIG if the variable
 * names no level. */
lk_status lki_cpu_level_wanted(lki_cpu_level *out);

/* The widest level that this machine has and LOCKSTEP_CPU_LEVEL allows. LK_ERR_CONFIG if the variable names
 * none. */
lk_status lki_cpu_level_of_machine(lki_cpu_level *out);

#endif
