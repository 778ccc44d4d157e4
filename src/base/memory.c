#define _DEFAULT_SOURCE
#include "base/memory.h"

#include "base/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Blocks of a few huge pages begin at one, and ask for them: what passes over megabytes of activations
 * otherwise waits for the addresses of its small pages, twice as long on a virtual machine, and so much
 * longer where two ranks do it at a time. Only whole huge pages inside a block are asked for, so that it
 * takes no more memory than it would. */
enum { ALIGNMENT = 64, HUGE_PAGE = 2 << 20 };

static atomic_uint_fast64_t allocation_count;
static atomic_size_t allocation_limit;
static _Thread_local bool apart;

static void *out_of_memory(size_t nbytes, const char *what)
{
    char amount[32];
    return lki_fail_null(LK_ERR_NOMEM, "out of memory: could not allocate %s for %s",
                         lki_format_nbytes(amount, sizeof amount, nbytes), what);
}

/* Counts the allocation, and says whether a test's limit forbids it. */
static int allowed(size_t nbytes)
{
    size_t limit = atomic_load_explicit(&allocation_limit, memory_order_relaxed);
    if (!apart) atomic_fetch_add_explicit(&allocation_count, 1, memory_order_relaxed);
    return limit == 0 || nbytes <= limit;
}

void *lki_calloc(size_t nbytes, const char *what)
{
    void *block = allowed(nbytes) ? calloc(1, nbytes ? nbytes : 1) : NULL;
    return block ? block : out_of_memory(nbytes, what);
}

void *lki_alloc_aligned(size_t nbytes, const char *what)
{
    size_t rounded = (nbytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    void *block = NULL;
    size_t alignment = rounded >= HUGE_PAGE ? HUGE_PAGE : ALIGNMENT;
    if (rounded < nbytes || !allowed(nbytes)) return out_of_memory(nbytes, what);
    if (posix_memalign(&block, alignment, rounded ? rounded : ALIGNMENT)) return out_of_memory(nbytes, what);
#ifdef MADV_HUGEPAGE
    if (rounded >= HUGE_PAGE)
        (void)madvise(block, rounded / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE); /* a wish: it may be refused */
#endif
    return block;
}

void *lki_calloc_aligned(size_t nbytes, const char *what)
{
    void *block = lki_alloc_aligned(nbytes, what);
    if (block) memset(block, 0, nbytes);
    return block;
}

void *lki_realloc(void *block, size_t nbytes, const char *what)
{
    void *grown = allowed(nbytes) ? realloc(block, nbytes ? nbytes : 1) : NULL;
    return grown ? grown : out_of_memory(nbytes, what);
}

void lki_free(void *block)
{
    free(block);
}

void lki_allocate_apart(void)
{
    apart = true;
}

uint64_t lki_allocation_count(void)
{
    return atomic_load_explicit(&allocation_count, memory_order_relaxed);
}

void lki_set_allocation_limit(size_t nbytes)
{
    atomic_store_explicit(&allocation_limit, nbytes, memory_order_relaxed);
}

void lk_text_free(char *text)
{
    lki_free(text);
}
