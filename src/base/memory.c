#define _DEFAULT_SOURCE
#include "base/memory.h"

#include "base/status.h"
#include "base/take.h"

#include <lockstep/memory.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
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

/* The host's functions, if `alloc` is set: before anything is allocated, so that each block goes back where
 * it came from. */
static lk_allocator host;

lk_status lk_set_allocator(const lk_allocator *allocator)
{
    LKI_TAKE(lk_allocator, given, allocator, lki_last_status());
    if (!given.alloc || !given.resize || !given.free)
        return lki_fail(LK_ERR_INVALID, "lk_set_allocator: alloc, resize and free are all needed");
    if (atomic_load(&allocation_count) > 0)
        return lki_fail(LK_ERR_INVALID,
                        "lk_set_allocator: the library has taken memory already: call it first");
    host = given;
    return LK_OK;
}

static void *take_zeroed(size_t nbytes)
{
    if (!host.alloc) return calloc(1, nbytes);
    void *block = host.alloc(nbytes, _Alignof(max_align_t), host.context);
    if (block) memset(block, 0, nbytes);
    return block;
}

static void *take_aligned(size_t nbytes, size_t alignment)
{
    void *block = NULL;
    if (host.alloc) return host.alloc(nbytes, alignment, host.context);
    return posix_memalign(&block, alignment, nbytes) ? NULL : block;
}

static void *resize(void *block, size_t nbytes)
{
    return host.alloc ? host.resize(block, nbytes, host.context) : realloc(block, nbytes);
}

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
    void *block = allowed(nbytes) ? take_zeroed(nbytes ? nbytes : 1) : NULL;
    return block ? block : out_of_memory(nbytes, what);
}

void *lki_alloc_aligned(size_t nbytes, const char *what)
{
    size_t rounded = (nbytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    size_t alignment = rounded >= HUGE_PAGE ? HUGE_PAGE : ALIGNMENT;
    if (rounded < nbytes || !allowed(nbytes)) return out_of_memory(nbytes, what);
    void *block = take_aligned(rounded ? rounded : ALIGNMENT, alignment);
    if (!block) return out_of_memory(nbytes, what);
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
    void *grown = allowed(nbytes) ? resize(block, nbytes ? nbytes : 1) : NULL;
    return grown ? grown : out_of_memory(nbytes, what);
}

void lki_free(void *block)
{
    if (host.alloc && block)
        host.free(block, host.context);
    else
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
