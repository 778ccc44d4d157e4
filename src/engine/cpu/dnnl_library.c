#include "engine/cpu/dnnl_library.h"

#include "base/library.h"

#include <pthread.h>

#define TEXT_OF(value) #value
#define TEXT(macro)    TEXT_OF(macro)

lki_onednn_functions lki_onednn;

static bool loaded;

static void load(void)
{
    void *library = lki_library_open("libdnnl.so." TEXT(DNNL_VERSION_MAJOR), LOCKSTEP_DNNL_PATH);
    if (!library) return;
    loaded = true;
#define GET(name) loaded = loaded && lki_library_function(library, "dnnl_" #name, &lki_onednn.name);
    LKI_ONEDNN_FUNCTIONS(GET)
#undef GET
    lki_library_function(library, "omp_set_num_threads", &lki_onednn.omp_set_num_threads);
}

bool lki_onednn_load(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    return loaded;
}
