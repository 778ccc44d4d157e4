#include "data/scratch.h"

#include "base/memory.h"

#include <pthread.h>

static pthread_key_t scratch_key;
static pthread_once_t scratch_once = PTHREAD_ONCE_INIT;

typedef struct scratch {
    size_t nbytes;
    _Alignas(64) char data[];
} scratch;

static void make_scratch_key(void)
{
    pthread_key_create(&scratch_key, lki_free);
}

char *lki_thread_scratch(size_t nbytes)
{
    pthread_once(&scratch_once, make_scratch_key);
    scratch *mine = pthread_getspecific(scratch_key);
    if (mine && mine->nbytes >= nbytes) return mine->data;
    scratch *larger = lki_calloc_aligned(sizeof *larger + nbytes, "a sample on its way");
    if (!larger) return NULL;
    larger->nbytes = nbytes;
    lki_free(mine);
    pthread_setspecific(scratch_key, larger);
    return larger->data;
}
