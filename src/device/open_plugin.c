#define _GNU_SOURCE /* dlmopen */
#include "device/open_plugin.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/plugin.h"
#include "base/settings.h"
#include "base/status.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PLUGIN_FILE "liblockstep_cuda.so"

/* ---- What the plugin may use of this library ---- */

static lk_status fail(lk_status status, const char *sentence)
{
    return lki_fail(status, "%s", sentence);
}

static void warn(const char *sentence)
{
    lki_log(LKI_LOG_WARNING, "%s", sentence);
}

static const lki_cuda_host host = {
    .fail = fail,
    .warn = warn,
    .alloc = lki_calloc,
    .free = lki_free,
    .draw = lk_generator_u64,
    .setting_switch = lki_setting_switch,
    .comm_create = lk_comm_create,
    .comm_is_idle = lk_comm_is_idle,
    .comm_start = lk_comm_start,
    .comm_wait = lk_comm_wait,
    .comm_check = lk_comm_check,
    .comm_abort = lk_comm_abort,
    .comm_free = lk_comm_free,
};

/* ---- Finding it ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const lki_cuda_plugin *plugin;
static bool tried;
static pid_t started_in; /* the process that has started CUDA; 0: none */
static char reason[256];

/* Libraries of the driver's that a process has used do not survive a fork. A forked process takes copies of
 * its own: the loader gives them a name space, in which all that they need is loaded again, untouched. */
static void *open_file(const char *path, bool afresh)
{
    return afresh ? dlmopen(LM_ID_NEWLM, path, RTLD_NOW | RTLD_LOCAL) : dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static void *open_library(bool afresh)
{
    char path[4096];
    const char *wanted = lki_setting_text(LKI_SETTING_CUDA_PLUGIN);
    if (wanted) return open_file(wanted, afresh);
    bool found = lki_plugin_find(path, sizeof path, PLUGIN_FILE, NULL, 0);
    return open_file(found ? path : PLUGIN_FILE, afresh);
}

static const lki_cuda_plugin *load(bool afresh)
{
    void *library = open_library(afresh);
    if (!library) {
        const char *why = dlerror();
        snprintf(reason, sizeof reason, "the GPU part of Lockstep cannot be loaded: %s",
                 why ? why : "no reason given");
        return NULL;
    }
    void *symbol = dlsym(library, LKI_CUDA_PLUGIN_SYMBOL);
    lki_cuda_plugin_opener open = NULL;
    memcpy(&open, &symbol, sizeof open);
    const lki_cuda_plugin *found = open ? open(&host) : NULL;
    if (found && found->version == LKI_CUDA_PLUGIN_VERSION) return found;
    int built_for = found ? found->version / 1000 : 0;
    snprintf(reason, sizeof reason,
             PLUGIN_FILE
             " belongs to another version of Lockstep: it was built for %d.%d.%d, this is " LK_VERSION,
             built_for / 10000, built_for / 100 % 100, built_for % 100);
    dlclose(library);
    return NULL;
}

const lki_cuda_plugin *lki_cuda_plugin_get(void)
{
    pthread_mutex_lock(&lock);
    bool forked = started_in != 0 && started_in != getpid();
    if (!tried || forked) plugin = load(forked);
    tried = true;
    if (forked) started_in = 0;
    const lki_cuda_plugin *found = plugin;
    pthread_mutex_unlock(&lock);
    return found ? found : lki_fail_null(LK_ERR_UNSUPPORTED, "%s", reason);
}

void lki_cuda_note_start(void)
{
    pthread_mutex_lock(&lock);
    if (!started_in) started_in = getpid();
    pthread_mutex_unlock(&lock);
}

/* Whoever names a plugin knows what is here: it may be one for a GPU that is not listed under /dev. */
bool lki_cuda_has_device(void)
{
    if (lki_setting_text(LKI_SETTING_CUDA_PLUGIN)) return true;
    return access("/dev/nvidiactl", F_OK) == 0 || access("/dev/nvidia0", F_OK) == 0 ||
           access("/dev/dxg", F_OK) == 0;
}

int lki_cuda_device_count(char *why)
{
    int count = 0;
    if (why) why[0] = '\0';
    if (!lki_cuda_has_device()) {
        if (why) snprintf(why, sizeof reason, "this machine has no NVIDIA GPU");
        return 0;
    }
    const lki_cuda_plugin *cuda = lki_cuda_plugin_get();
    if (cuda) lki_cuda_note_start();
    if (cuda && cuda->device_count(&count) == LK_OK) return count;
    if (why) snprintf(why, sizeof reason, "%s", lk_error());
    return 0;
}
