#include "data/scratch.h"

#include "base/memory.h"
#include "base/status.h"

#include <pthread.h>

enum { MAX_LEVELS = 16 };

static pthread_key_t scratch_key;
static pthread_once_t scratch_once = PTHREAD_ONCE_INIT;

typedef struct block {
    size_t nbytes;
    _Alignas(64) char data[];
} block;

typedef struct scratch {
    int level;
    block *blocks[MAX_LEVELS];
} scratch;

static void free_scratch(void *memory)
{
    scratch *mine = memory;
    for (int i = 0; i < MAX_LEVELS; i++) lki_free(mine->blocks[i]);
    lki_free(mine);
}

static void make_scratch_key(void)
{
    pthread_key_create(&scratch_key, free_scratch);
}

static scratch *of_this_thread(void)
{
    pthread_once(&scratch_once, make_scratch_key);
    scratch *mine = pthread_getspecific(scratch_key);
    if (mine) return mine;
    mine = LKI_NEW(scratch);
    if (mine) pthread_setspecific(scratch_key, mine);
    return mine;
}

char *lki_scratch_take(size_t nbytes)
{
    scratch *mine = of_this_thread();
    if (!mine) return NULL;
    if (mine->level == MAX_LEVELS)
        return lki_fail_null(LK_ERR_INVALID, "more than %d datasets that change samples are nested",
                             MAX_LEVELS);
    block **place = &mine->blocks[mine->level];
    if (!*place || (*place)->nbytes < nbytes) {
        block *larger = lki_calloc_aligned(sizeof *larger + nbytes, "a sample on its way");
        if (!larger) return NULL;
        larger->nbytes = nbytes;
        lki_free(*place);
        *place = larger;
    }
    mine->level++;
    return (*place)->data;
}

void lki_scratch_give(void)
{
    scratch *mine = pthread_getspecific(scratch_key);
    mine->level--;
}
