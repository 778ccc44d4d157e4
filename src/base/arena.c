#include "base/arena.h"

#include "base/memory.h"
#include "base/number_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { BLOCK_NBYTES = 16 * 1024, ALIGNMENT = 16 };

struct lki_arena_block {
    lki_arena_block *older;
    size_t used, capacity;
    _Alignas(ALIGNMENT) char data[];
};

static lki_arena_block *add_block(lki_arena *arena, size_t nbytes)
{
    size_t capacity = nbytes > BLOCK_NBYTES ? nbytes : BLOCK_NBYTES;
    lki_arena_block *block = lki_calloc(sizeof *block + capacity, "an arena");
    if (!block) return NULL;
    block->capacity = capacity;
    block->older = arena->newest;
    arena->newest = block;
    return block;
}

void *lki_arena_alloc(lki_arena *arena, size_t nbytes)
{
    size_t rounded = (nbytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    lki_arena_block *block = arena->newest;
    if (!block || block->capacity - block->used < rounded) block = add_block(arena, rounded);
    if (!block) return NULL;
    void *object = block->data + block->used;
    block->used += rounded;
    return object;
}

char *lki_arena_strdup(lki_arena *arena, const char *text)
{
    if (!text) return NULL;
    size_t nbytes = strlen(text) + 1;
    char *copy = lki_arena_alloc(arena, nbytes);
    if (copy) memcpy(copy, text, nbytes);
    return copy;
}

char *lki_arena_format(lki_arena *arena, const char *format, ...)
{
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int length = lki_vsnprintf(NULL, 0, format, arguments);
    char *text = length < 0 ? NULL : lki_arena_alloc(arena, (size_t)length + 1);
    if (text) lki_vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    va_end(arguments);
    return text;
}

void lki_arena_fini(lki_arena *arena)
{
    while (arena->newest) {
        lki_arena_block *older = arena->newest->older;
        lki_free(arena->newest);
        arena->newest = older;
    }
}
