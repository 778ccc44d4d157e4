#include "engine/cpu_level.h"

#include "base/settings.h"
#include "base/status.h"
#include "engine/cpu/machine.h"

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

lk_status lki_cpu_level_wanted(lki_cpu_level *out)
{
    const char *wanted = lki_setting_text(LKI_SETTING_CPU_LEVEL);
    int level = LEVEL_COUNT - 1;
    if (wanted)
        while (level > 0 && strcmp(wanted, names[level]) != 0) level--;
    if (level == 0)
        return lki_fail(LK_ERR_CONFIG,
                        "LOCKSTEP_CPU_LEVEL: expected amx, avx512bf16, avx512, avx2 or base, found \"%s\"",
                        wanted);
    *out = (lki_cpu_level)level;
    return LK_OK;
}

lk_status lki_cpu_level_of_machine(lki_cpu_level *out)
{
    lki_cpu_level wanted;
    LKI_TRY(lki_cpu_level_wanted(&wanted));
    *out = lki_machine_level(wanted);
    return LK_OK;
}
