#include "data/vocabulary.h"

#include "base/memory.h"
#include "base/status.h"

#include <string.h>

void lki_vocabulary_fini(lki_vocabulary *self)
{
    for (int32_t i = 0; i < self->count; i++) lki_free(self->symbols[i].text);
    lki_free(self->symbols);
    lki_free(self->table);
    lki_free(self->by_id);
    *self = (lki_vocabulary){0};
}

/* FNV-1a. */
static uint32_t hash_of(const char *text, size_t nbytes)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < nbytes; i++) hash = (hash ^ (unsigned char)text[i]) * 16777619u;
    return hash;
}

/* The place in the table where a text is, or where it belongs. */
static int32_t place_of(const lki_vocabulary *self, const char *text, size_t nbytes)
{
    uint32_t mask = (uint32_t)self->table_size - 1, at = hash_of(text, nbytes) & mask;
    for (; self->table[at]; at = (at + 1) & mask) {
        const lki_symbol *symbol = &self->symbols[self->table[at] - 1];
        if (symbol->nbytes == nbytes && memcmp(symbol->text, text, nbytes) == 0) break;
    }
    return (int32_t)at;
}

int32_t lki_vocabulary_find(const lki_vocabulary *self, const char *text, size_t nbytes)
{
    return self->table_size ? self->table[place_of(self, text, nbytes)] - 1 : -1;
}

static lk_status grow(lki_vocabulary *self)
{
    int32_t capacity = self->capacity ? self->capacity * 2 : 256, table_size = capacity * 2;
    lki_symbol *symbols =
        lki_realloc(self->symbols, (size_t)capacity * sizeof *symbols, "the tokens of a vocabulary");
    if (!symbols) return LK_ERR_NOMEM;
    self->symbols = symbols;
    int32_t *table = LKI_NEW_ARRAY(int32_t, table_size);
    if (!table) return LK_ERR_NOMEM;
    lki_free(self->table);
    self->table = table;
    self->table_size = table_size;
    self->capacity = capacity;
    for (int32_t i = 0; i < self->count; i++)
        table[place_of(self, symbols[i].text, symbols[i].nbytes)] = i + 1;
    return LK_OK;
}

lk_status lki_vocabulary_intern(lki_vocabulary *self, const char *text, size_t nbytes, int32_t *out)
{
    *out = lki_vocabulary_find(self, text, nbytes);
    if (*out >= 0) return LK_OK;
    if (self->count >= LKI_MOST_TOKENS)
        return lki_fail(LK_ERR_UNSUPPORTED, "a vocabulary has at most %d tokens", LKI_MOST_TOKENS);
    if (self->count == self->capacity) LKI_TRY(grow(self));
    char *copy = lki_calloc(nbytes + 1, "a token");
    if (!copy) return LK_ERR_NOMEM;
    memcpy(copy, text, nbytes);
    self->table[place_of(self, text, nbytes)] = self->count + 1;
    self->symbols[self->count] = (lki_symbol){copy, nbytes, -1};
    *out = self->count++;
    return LK_OK;
}

static lk_status make_room_for(lki_vocabulary *self, int64_t id)
{
    if (id < 0 || id >= LKI_MOST_TOKENS)
        return lki_fail(LK_ERR_FORMAT, "expected a number from 0 to %d, found %lld", LKI_MOST_TOKENS - 1,
                        (long long)id);
    if (id < self->id_count) return LK_OK;
    int64_t count = self->id_count ? self->id_count : 256;
    while (count <= id) count *= 2;
    int32_t *by_id = lki_realloc(self->by_id, (size_t)count * sizeof *by_id, "the numbers of tokens");
    if (!by_id) return LK_ERR_NOMEM;
    memset(by_id + self->id_count, 0, (size_t)(count - self->id_count) * sizeof *by_id);
    self->by_id = by_id;
    self->id_count = count;
    return LK_OK;
}

lk_status lki_vocabulary_add(lki_vocabulary *self, const char *text, size_t nbytes, int64_t id)
{
    int32_t at;
    LKI_TRY(make_room_for(self, id));
    LKI_TRY(lki_vocabulary_intern(self, text, nbytes, &at));
    if (self->by_id[id] && self->by_id[id] != at + 1)
        return lki_fail(LK_ERR_FORMAT, "two tokens have the number %lld", (long long)id);
    if (self->symbols[at].id >= 0 && self->symbols[at].id != id)
        return lki_fail(LK_ERR_FORMAT, "a token has the numbers %lld and %lld",
                        (long long)self->symbols[at].id, (long long)id);
    self->symbols[at].id = id;
    self->by_id[id] = at + 1;
    return LK_OK;
}
