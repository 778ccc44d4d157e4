/* Every allocation of the library goes through here, so that it can be counted.
 *
 * The counter is what lets a debug build assert that a training step allocates nothing once it has warmed up,
 * and what lets a test prove it. Failures set the error sentence ("out of memory: 1.2 GiB for the arena") and
 * return NULL. Thread-safe. Free with lki_free; never mix with malloc/free. */
#ifndef LKI_BASE_MEMORY_H
#define LKI_BASE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zeroed memory. `what` names the thing for the error sentence. nbytes of 0 gives a valid pointer. */
void *lki_calloc(size_t nbytes, const char *what);

/* Zeroed memory aligned to 64 bytes (a cache line, a zmm register) for tensor data. Freed with lki_free too.
 */
void *lki_calloc_aligned(size_t nbytes, const char *what);

/* As lki_calloc_aligned, but not zeroed: pages that nobody writes to take no memory. */
void *lki_alloc_aligned(size_t nbytes, const char *what);

/* Grows or shrinks; the old block stays valid on failure. The new tail is not zeroed. */
void *lki_realloc(void *block, size_t nbytes, const char *what);

void lki_free(void *block);

/* Copies of strings; NULL in gives NULL out without an error. */
char *lki_strdup(const char *text);
char *lki_strndup(const char *text, size_t length);
char *lki_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* NULL is the same as NULL alone. */
bool lki_same_text(const char *a, const char *b);
/* Whether one of the shell patterns, which commas or spaces separate, matches a name. */
bool lki_matches_one_of(const char *patterns, const char *name);
/* Whether JSON and YAML can hold a text. */
bool lki_is_utf8(const char *text);

/* How many allocations this process has made through this file so far. */
uint64_t lki_allocation_count(void);
/* From here on this thread's do not count: it works beside the training and takes no part in it. */
void lki_allocate_apart(void);

/* Makes allocations of more than `nbytes` at a time fail, for tests of what happens then; 0 takes the limit
 * away. */
void lki_set_allocation_limit(size_t nbytes);

#define LKI_NEW(type)          ((type *)lki_calloc(sizeof(type), #type))
#define LKI_NEW_ARRAY(type, n) ((type *)lki_calloc(sizeof(type) * (size_t)(n), #type "[]"))

/* "1.5 GiB", for messages; the buffer is the caller's, 16 bytes are enough. */
const char *lki_format_nbytes(char *text, size_t capacity, uint64_t nbytes);

/* Frees at the end of a scope: LKI_SCOPED char *path = lki_format(...); */
static inline void lki_free_scoped(void *pointer_to_block)
{
    lki_free(*(void **)pointer_to_block);
}
#define LKI_SCOPED __attribute__((cleanup(lki_free_scoped)))

#endif
