/* The allocator of the host program, for a library that is a guest in it.
 *
 * All memory that the library takes on the host comes from there: models, tensors, workspaces. What
 * the system takes by itself does not: stacks of threads, mapped files, shared memory between
 * ranks, and the libraries that read YAML and JSON.
 *
 * Life: set it once, before anything else of the library is called. Threads: the functions may be
 * called from any thread that uses the library. */
#ifndef LOCKSTEP_MEMORY_H
#define LOCKSTEP_MEMORY_H

#include <lockstep/sized.h>
#include <lockstep/status.h>

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lk_allocator {
    size_t struct_size;
    /* Returns memory, whose contents do not matter, or NULL: the call of the library then fails
     * with LK_ERR_NOMEM. `alignment` is a power of two, at most 2 MiB. */
    void *(*alloc)(size_t nbytes, size_t alignment, void *context);
    /* As realloc: NULL in is a new block, and NULL out leaves the block as it was. Its alignment is
     * that of max_align_t. */
    void *(*resize)(void *block, size_t nbytes, void *context);
    void (*free)(void *block, void *context); /* never gets NULL */
    void *context;                            /* borrowed for as long as the process lives */
} lk_allocator;

/* Sets the allocator. Begin it with LK_SIZE(lk_allocator). Fails with LK_ERR_INVALID if a function
 * is missing or if the library has taken memory already. */
lk_status lk_set_allocator(const lk_allocator *allocator);

#ifdef __cplusplus
}
#endif
#endif
