#define _GNU_SOURCE /* dladdr1 */
#include "base/plugin.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/settings.h"
#include "base/status.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- What plug-ins may use ---- */

static lk_status fail(lk_status status, const char *sentence)
{
    return lki_fail(status, "%s", sentence);
}

static void log_line(int level, const char *line)
{
    lki_log((lki_log_level)level, "%s", line);
}

static const lki_plugin_host host = {
    .fail = fail,
    .error = lk_error,
    .log = log_line,
    .calloc = lki_calloc,
    .calloc_aligned = lki_calloc_aligned,
    .realloc = lki_realloc,
    .free = lki_free,
};

/* ---- Finding one ---- */

/* The folder of the file that this very code was loaded from. The loader knows the program itself only by
 * argv[0], which says nothing when a shell has found it on PATH. */
static bool own_folder(char *folder, size_t capacity)
{
    Dl_info info;
    struct link_map *map = NULL;
    if (!dladdr1((const void *)&host, &info, (void **)&map, RTLD_DL_LINKMAP) || !map) return false;
    char *path = realpath(map->l_name && *map->l_name ? map->l_name : "/proc/self/exe", NULL);
    char *slash = path ? strrchr(path, '/') : NULL;
    bool fits = slash && (size_t)(slash - path) < capacity;
    if (fits) {
        memcpy(folder, path, (size_t)(slash - path));
        folder[slash - path] = '\0';
    }
    free(path);
    return fits;
}

static bool is_in(const char *folder, const char *below, const char *file, char *path, size_t capacity,
                  char *looked, size_t looked_capacity)
{
    int length = snprintf(path, capacity, "%s%s/%s", folder, below, file);
    if (length > 0 && (size_t)length < capacity && access(path, R_OK) == 0) return true;
    size_t used = looked ? strlen(looked) : looked_capacity;
    if (used < looked_capacity)
        snprintf(looked + used, looked_capacity - used, "%s%s%s", used ? ", " : "", folder, below);
    return false;
}

bool lki_plugin_find(char *path, size_t capacity, const char *file, char *looked, size_t looked_capacity)
{
    static const char *const below[] = {"", ("/../" LOCKSTEP_LIBDIR), "/.."};
    char folder[4096];
    if (looked) *looked = '\0';
    const char *chosen = lki_setting_text(LKI_SETTING_PLUGIN_PATH);
    if (chosen) return is_in(chosen, "", file, path, capacity, looked, looked_capacity);
    bool found = false;
    if (own_folder(folder, sizeof folder))
        for (size_t i = 0; !found && i < sizeof below / sizeof *below; i++)
            found = is_in(folder, below[i], file, path, capacity, looked, looked_capacity);
    return found;
}

/* ---- Opening it ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void lock_plugins(void)
{
    pthread_mutex_lock(&lock);
}

static void unlock_plugins(void)
{
    pthread_mutex_unlock(&lock);
}

/* A rank that is forked while another thread opens a plug-in would find the lock held for ever. */
static void watch_forks(void)
{
    pthread_atfork(lock_plugins, unlock_plugins, unlock_plugins);
}

static lk_status fail_to_find(const lki_plugin *plugin, const char *file, const char *looked, bool widely)
{
    return lki_fail(LK_ERR_UNSUPPORTED,
                    "%s: there is no %s in %s%s; Lockstep has it when it is built with Debian's %s",
                    plugin->library, file, looked, widely ? ", nor where the system looks for libraries" : "",
                    plugin->package);
}

static lk_status fail_to_load(const lki_plugin *plugin, const char *path)
{
    const char *why = dlerror();
    return lki_fail(LK_ERR_UNSUPPORTED, "%s: %s cannot be loaded: %s; Debian's package is %s",
                    plugin->library, path, why ? why : "no reason given", plugin->package);
}

static void *load(const lki_plugin *plugin, const char *file, char *path, size_t capacity)
{
    char looked[1024];
    int flags = RTLD_NOW | (plugin->shows_symbols ? RTLD_GLOBAL : RTLD_LOCAL);
    bool widely = !lki_setting_text(LKI_SETTING_PLUGIN_PATH);
    bool found = lki_plugin_find(path, capacity, file, looked, sizeof looked);
    if (!found) snprintf(path, capacity, "%s", file);
    void *library = found || widely ? dlopen(path, flags) : NULL;
    if (library) return library;
    if (found)
        fail_to_load(plugin, path);
    else
        fail_to_find(plugin, file, looked, widely);
    return NULL;
}

static bool is_of_this_version(const lki_plugin *plugin, const lki_plugin_table *table)
{
    size_t services_nbytes = plugin->services ? plugin->services_nbytes : 1;
    return table->version == LKI_PLUGIN_VERSION && strcmp(table->lockstep, lk_version()) == 0 &&
           table->functions_nbytes == plugin->functions_nbytes && table->services_nbytes == services_nbytes;
}

static const void *open_once(lki_plugin *plugin)
{
    char file[64], symbol[64], path[4096];
    snprintf(file, sizeof file, "liblockstep_%s.so", plugin->name);
    snprintf(symbol, sizeof symbol, "lki_%s_plugin", plugin->name);
    void *library = load(plugin, file, path, sizeof path);
    if (!library) return NULL;
    const lki_plugin_table *table = dlsym(library, symbol);
    if (!table || !is_of_this_version(plugin, table)) {
        lki_fail(LK_ERR_UNSUPPORTED, "%s: %s belongs to another version of Lockstep: this is %s",
                 plugin->library, path, lk_version());
        dlclose(library);
        return NULL;
    }
    *table->host = &host;
    *table->services = plugin->services;
    return table->functions;
}

const void *lki_plugin_open(lki_plugin *plugin)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const void *functions = atomic_load_explicit(&plugin->functions, memory_order_acquire);
    if (functions) return functions;
    pthread_once(&once, watch_forks);
    lock_plugins();
    functions = atomic_load_explicit(&plugin->functions, memory_order_relaxed);
    if (!functions && (functions = open_once(plugin)))
        atomic_store_explicit(&plugin->functions, functions, memory_order_release);
    unlock_plugins();
    return functions;
}
