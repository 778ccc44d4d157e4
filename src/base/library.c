#include "base/library.h"

#include "base/status.h"

#include <dlfcn.h>
#include <string.h>

void *lki_library_open(const char *name, const char *path)
{
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library) return library;
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
