#include "engine/engines.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/settings.h"
#include "base/status.h"
#include "base/take.h"
#include "device/open_plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Those that are part of this library; the fastest one first. */
static const lk_engine_ops *const engines[] = {
    &lki_cpu_engine_ops,
    &lki_ref_engine_ops,
};

enum { ENGINE_COUNT = sizeof engines / sizeof *engines };

static const lk_engine_ops *find_engine(const char *name)
{
    for (int i = 0; i < ENGINE_COUNT; i++)
        if (!strcmp(engines[i]->name, name)) return engines[i];
    return NULL;
}

/* "cuda" or "cuda:1". */
static bool names_gpu(const char *name, int *device)
{
    if (strncmp(name, "cuda", 4) != 0) return false;
    if (name[4] == '\0') return true;
    char *end = NULL;
    long number = name[4] == ':' ? strtol(name + 5, &end, 10) : -1;
    if (!end || end == name + 5 || *end || number < 0 || number > 1023) return false;
    *device = (int)number;
    return true;
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

/* A GPU that is there but cannot be used is worth one line; a machine without one is not. */
static const char *fastest(void)
{
    char why[256];
    if (lki_cuda_has_device() && lki_cuda_device_count(why) > 0) return "cuda";
    if (lki_cuda_has_device()) lki_log(LKI_LOG_WARNING, "training on the CPU: %s", why);
    return engines[0]->name;
}

static const lk_engine_ops *find_ops(const char *name, const char *from, int *device)
{
    if (names_gpu(name, device)) {
        if (!lki_cuda_has_device()) return lki_fail_null(LK_ERR_DEVICE, "this machine has no NVIDIA GPU");
        const lki_cuda_plugin *plugin = lki_cuda_plugin_get();
        if (plugin) lki_cuda_note_start();
        return plugin ? plugin->engine_ops : NULL;
    }
    const lk_engine_ops *ops = find_engine(name);
    if (ops) return ops;
    char known[128];
    list_names(known, sizeof known);
    return lki_fail_null(LK_ERR_CONFIG,
                         "%sno engine is named \"%s\"; this build has %s, cuda, or auto for the fastest",
                         from, name, known);
}

#undef lk_engine_open /* the header fills in a size that is missing */
lk_engine *lk_engine_open(const char *name, const lk_engine_options *given)
{
    LKI_TAKE(lk_engine_options, options, given, NULL);
    const char *from = "";
    if (!name || !*name || !strcmp(name, "auto")) {
        const char *wanted = lki_setting_text(LKI_SETTING_ENGINE);
        bool chosen = wanted && strcmp(wanted, "auto");
        name = chosen ? wanted : fastest();
        from = chosen ? "LOCKSTEP_ENGINE: " : "";
    }
    const lk_engine_ops *ops = find_ops(name, from, &options.device);
    lk_engine *engine = ops ? LKI_NEW(lk_engine) : NULL;
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
    static const char *names[ENGINE_COUNT + 2];
    int count = 0;
    if (lki_cuda_device_count(NULL) > 0) names[count++] = "cuda";
    for (int i = 0; i < ENGINE_COUNT; i++) names[count++] = engines[i]->name;
    names[count] = NULL;
    return names;
}
