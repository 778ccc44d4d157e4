#include "engine/cpu_level.h"

#include "base/status.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"",
#define X(symbol, name) name,
                                    LKI_CPU_LEVEL_LIST(X)
#undef X
};

enum { LEVEL_COUNT = sizeof names / sizeof *names };

const char *lki_cpu_level_name(lki_cpu_level level)
{
    return (size_t)level < LEVEL_COUNT ? names[level] : "unknown";
}

static lki_cpu_level widest(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
    return avx512 ? LKI_CPU_LEVEL_AVX512 : avx2 ? LKI_CPU_LEVEL_AVX2 : LKI_CPU_LEVEL_BASE;
#else
    return LKI_CPU_LEVEL_BASE;
#endif
}

lk_status lki_cpu_level_of_machine(lki_cpu_level *out)
{
    const char *wanted = getenv("LOCKSTEP_CPU_LEVEL");
    *out = widest();
    if (!wanted || !*wanted) return LK_OK;
    for (int level = 1; level < LEVEL_COUNT; level++) {
        if (strcmp(wanted, names[level]) != 0) continue;
        if (level < (int)*out) *out = (lki_cpu_level)level;
        return LK_OK;
    }
    return lki_fail(LK_ERR_CONFIG, "LOCKSTEP_CPU_LEVEL: expected avx512, avx2 or base, found \"%s\"", wanted);
}
