/* An arena: many small objects that live and die together (a graph's nodes, a config's tree).
 *
 * Objects are zeroed and never freed one by one; lki_arena_fini frees them all. Not thread-safe. */
#ifndef LKI_BASE_ARENA_H
#define LKI_BASE_ARENA_H

#include <stddef.h>

typedef struct lki_arena_block lki_arena_block;

/* Zero is an empty arena. */
typedef struct lki_arena {
    lki_arena_block *newest;
} lki_arena;

void *lki_arena_alloc(lki_arena *arena, size_t nbytes);
char *lki_arena_strdup(lki_arena *arena, const char *text);
char *lki_arena_format(lki_arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
void lki_arena_fini(lki_arena *arena);

#define LKI_ARENA_NEW(arena, type)          ((type *)lki_arena_alloc((arena), sizeof(type)))
#define LKI_ARENA_NEW_ARRAY(arena, type, n) ((type *)lki_arena_alloc((arena), sizeof(type) * (size_t)(n)))

#endif
