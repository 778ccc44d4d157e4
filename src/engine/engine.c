#include "engine/engines.h"

#include "base/memory.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

/* The fastest one first: it is what "auto" stands for. */
static const lk_engine_ops *const engines[] = {
#ifdef LOCKSTEP_HAVE_CPU_ENGINE
    &lki_cpu_engine_ops,
#endif
    &lki_ref_engine_ops,
};

enum { ENGINE_COUNT = sizeof engines / sizeof *engines };

static const lk_engine_ops *find_engine(const char *name)
{
    for (int i = 0; i < ENGINE_COUNT; i++)
        if (!strcmp(engines[i]->name, name)) return engines[i];
    return NULL;
}

/* "cpu, ref", for the error sentence. */
static void list_names(char *text, size_t capacity)
{
    size_t used = 0;
    for (int i = 0; i < ENGINE_COUNT; i++) {
        size_t length = strlen(engines[i]->name);
        if (used + length + 3 > capacity) return;
        if (i) memcpy(text + used, ", ", 2), used += 2;
        memcpy(text + used, engines[i]->name, length + 1);
        used += length;
    }
}

lk_engine *lk_engine_open(const char *name, lk_engine_options options)
{
    const char *from = "";
    if (!name || !*name || !strcmp(name, "auto")) {
        const char *wanted = getenv("LOCKSTEP_ENGINE");
        bool chosen = wanted && *wanted && strcmp(wanted, "auto");
        name = chosen ? wanted : engines[0]->name;
        from = chosen ? "LOCKSTEP_ENGINE: " : "";
    }
    const lk_engine_ops *ops = find_engine(name);
    if (!ops) {
        char known[128];
        list_names(known, sizeof known);
        return lki_fail_null(LK_ERR_NOT_FOUND,
                             "%sno engine is named \"%s\"; this build has %s, or auto for the fastest", from,
                             name, known);
    }
    lk_engine *engine = LKI_NEW(lk_engine);
    if (!engine) return NULL;
    engine->ops = ops;
    if (ops->open(&engine->state, &options) != LK_OK) {
        lki_free(engine);
        return NULL;
    }
    return engine;
}

void lk_engine_close(lk_engine *engine)
{
    if (!engine) return;
    engine->ops->close(engine->state);
    lki_free(engine);
}

const char *lk_engine_name(const lk_engine *engine)
{
    return engine->ops->name;
}

const char *const *lk_engine_names(void)
{
    static const char *const names[] = {
#ifdef LOCKSTEP_HAVE_CPU_ENGINE
        "cpu",
#endif
        "ref",
        NULL,
    };
    return names;
}
