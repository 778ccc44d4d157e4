/* Inside of a tokenizer: one table of functions per kind over a vocabulary, and tokens that are appended.
 *
 * See <lockstep/text.h> for life and threads. */
#ifndef LKI_DATA_TOKENIZER_H
#define LKI_DATA_TOKENIZER_H

#include <lockstep/text.h>

#include "data/vocabulary.h"

#include <stdatomic.h>

/* Tokens that grow; zero is empty. Freed with lki_free(ids). */
typedef struct lki_tokens {
    uint32_t *ids;
    int64_t count, capacity;
} lki_tokens;

lk_status lki_tokens_add(lki_tokens *self, int64_t id);

typedef struct lki_tokenizer_kind {
    lk_status (*encode)(const lk_tokenizer *self, const char *text, size_t nbytes, lki_tokens *out);
    /* Writes a token's text into JSON. */
    lk_status (*save)(struct lki_atomic_file *file, const lki_symbol *symbol);
} lki_tokenizer_kind;

typedef struct lki_merge {
    int32_t left, right; /* symbols; left is -1 in a free place of the table */
    int32_t rank, result;
} lki_merge;

struct lk_tokenizer {
    const lki_tokenizer_kind *kind;
    lki_vocabulary vocabulary;
    int64_t vocab_size;
    int32_t bytes[256]; /* byte pairs: the symbol of each byte */
    lki_merge *merges;  /* (merge_table_size), by hash; NULL without merges */
    uint32_t merge_table_size;
    atomic_int holders;
};

lk_tokenizer *lki_tokenizer_create(const lki_tokenizer_kind *kind);
/* After the last token: sets vocab_size. */
void lki_tokenizer_settle(lk_tokenizer *self);

/* Appends the tokens of a text. */
lk_status lki_tokenizer_encode(const lk_tokenizer *self, const char *text, size_t nbytes, lki_tokens *out);
/* The number of a token, or LK_ERR_NOT_FOUND. */
lk_status lki_tokenizer_number(const lk_tokenizer *self, const char *token, int64_t *out);

/* bpe.c: the character that stands for a byte in GPT-2's files. */
int32_t lki_gpt2_character(unsigned char byte);
lk_status lki_save_bytes(struct lki_atomic_file *file, const lki_symbol *symbol);

#endif
