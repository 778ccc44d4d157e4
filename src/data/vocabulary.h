/* The tokens of a tokenizer: texts with numbers, found by either. A text that has no number is a symbol that
 * merges pass through. Built by one thread, then read by any. */
#ifndef LKI_DATA_VOCABULARY_H
#define LKI_DATA_VOCABULARY_H

#include <lockstep/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Numbers of tokens lie below this. */
enum { LKI_MOST_TOKENS = 1 << 28 };

typedef struct lki_symbol {
    char *text; /* a zero byte follows */
    size_t nbytes;
    int64_t id; /* -1: none */
} lki_symbol;

typedef struct lki_vocabulary {
    lki_symbol *symbols;
    int32_t count, capacity;
    int32_t *table; /* (table_size): 1 + the position of a symbol, by hash; 0: free */
    int32_t table_size;
    int32_t *by_id; /* (id_count): 1 + the position of a symbol; 0: a number that no token has */
    int64_t id_count;
} lki_vocabulary;

void lki_vocabulary_fini(lki_vocabulary *self);

/* The position of a text, which is added if it is not there. */
lk_status lki_vocabulary_intern(lki_vocabulary *self, const char *text, size_t nbytes, int32_t *out);
/* The position, or -1. */
int32_t lki_vocabulary_find(const lki_vocabulary *self, const char *text, size_t nbytes);
/* Gives a text a number. LK_ERR_FORMAT if it has another one, or another text has this one. */
lk_status lki_vocabulary_add(lki_vocabulary *self, const char *text, size_t nbytes, int64_t id);

/* Called with each text of a JSON object of numbers. */
typedef lk_status (*lki_vocabulary_entry)(void *context, const char *text, size_t nbytes, int64_t id);
lk_status lki_read_vocabulary_json(const char *path, lki_vocabulary_entry entry, void *context);

/* A text between quotes, as JSON writes it; UTF-8 stays as it is. */
struct lki_atomic_file;
lk_status lki_write_json_text(struct lki_atomic_file *file, const char *text, size_t nbytes);

#endif
