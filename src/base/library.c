#include "base/library.h"

#include "base/status.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

/* omp_pause_resource_all of each OpenMP runtime that came with a library. */
typedef int (*pause_function)(int how);
enum { MAX_RUNTIMES = 4, PAUSE_HARD = 2 };
static pause_function runtimes[MAX_RUNTIMES];
static int runtime_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void note_runtime(void *library)
{
    pause_function pause;
    if (!lki_library_function(library, "omp_pause_resource_all", &pause)) return;
    pthread_mutex_lock(&lock);
    int i = 0;
    while (i < runtime_count && runtimes[i] != pause) i++;
    if (i == runtime_count && i < MAX_RUNTIMES) runtimes[runtime_count++] = pause;
    pthread_mutex_unlock(&lock);
}

void lki_library_end_threads(void)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < runtime_count; i++) runtimes[i](PAUSE_HARD);
    pthread_mutex_unlock(&lock);
}

void *lki_library_open(const char *name, const char *path)
{
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library) {
        note_runtime(library);
        return library;
    }
    const char *why = dlerror();
    lki_fail(LK_ERR_UNSUPPORTED, "%s cannot be loaded: %s", name, why ? why : "no reason given");
    return NULL;
}

_Bool lki_library_symbol(void *library, const char *name, void *function, unsigned long nbytes)
{
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, nbytes); /* C has no other way from one kind of pointer to the other */
    return symbol != NULL;
}
