#include "data/tokenizer.h"

#include "base/atomic_file.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "data/unicode.h"

#include <stdio.h>
#include <string.h>

/* ---- Life ---- */

lk_tokenizer *lki_tokenizer_create(const lki_tokenizer_kind *kind)
{
    lk_tokenizer *self = LKI_NEW(lk_tokenizer);
    if (!self) return NULL;
    self->kind = kind;
    atomic_init(&self->holders, 1);
    return self;
}

void lki_tokenizer_settle(lk_tokenizer *self)
{
    self->vocab_size = self->vocabulary.id_count;
    while (self->vocab_size > 0 && !self->vocabulary.by_id[self->vocab_size - 1]) self->vocab_size--;
}

lk_tokenizer *lk_tokenizer_share(lk_tokenizer *tokenizer)
{
    if (tokenizer) atomic_fetch_add_explicit(&tokenizer->holders, 1, memory_order_relaxed);
    return tokenizer;
}

void lk_tokenizer_free(lk_tokenizer *tokenizer)
{
    if (!tokenizer || atomic_fetch_sub_explicit(&tokenizer->holders, 1, memory_order_acq_rel) > 1) return;
    lki_vocabulary_fini(&tokenizer->vocabulary);
    lki_free(tokenizer->merges);
    lki_free(tokenizer);
}

/* ---- Use ---- */

lk_status lki_tokens_add(lki_tokens *self, int64_t id)
{
    if (self->count == self->capacity) {
        int64_t capacity = self->capacity ? self->capacity * 2 : 64;
        uint32_t *ids = lki_realloc(self->ids, (size_t)capacity * sizeof *ids, "the tokens of a text");
        if (!ids) return LK_ERR_NOMEM;
        self->ids = ids;
        self->capacity = capacity;
    }
    self->ids[self->count++] = (uint32_t)id;
    return LK_OK;
}

lk_status lki_tokenizer_encode(const lk_tokenizer *self, const char *text, size_t nbytes, lki_tokens *out)
{
    return self->kind->encode(self, text, nbytes, out);
}

int64_t lk_tokenizer_vocab_size(const lk_tokenizer *tokenizer)
{
    return tokenizer ? tokenizer->vocab_size : 0;
}

int64_t lk_tokenizer_find(const lk_tokenizer *tokenizer, const char *token)
{
    int32_t at = tokenizer && token ? lki_vocabulary_find(&tokenizer->vocabulary, token, strlen(token)) : -1;
    return at < 0 ? -1 : tokenizer->vocabulary.symbols[at].id;
}

lk_status lki_tokenizer_number(const lk_tokenizer *self, const char *token, int64_t *out)
{
    *out = lk_tokenizer_find(self, token);
    if (*out >= 0) return LK_OK;
    return lki_fail(LK_ERR_NOT_FOUND, "the vocabulary has no token \"%.60s\"", token);
}

lk_tensor *lk_tokenizer_encode(const lk_tokenizer *tokenizer, const char *text, size_t nbytes)
{
    if (!tokenizer) return NULL;
    lki_tokens tokens = {0};
    lk_status status = lki_tokenizer_encode(tokenizer, text, nbytes, &tokens);
    lk_tensor *out = status ? NULL : lk_tensor_create(LK_I64, LK_SHAPE(tokens.count));
    for (int64_t i = 0; out && i < tokens.count; i++) ((int64_t *)out->data)[i] = tokens.ids[i];
    lki_free(tokens.ids);
    return out;
}

char *lk_tokenizer_decode(const lk_tokenizer *tokenizer, const int64_t *tokens, int64_t count, size_t *nbytes)
{
    if (!tokenizer) return NULL;
    const lki_vocabulary *vocabulary = &tokenizer->vocabulary;
    size_t total = 0, at = 0;
    for (int64_t i = 0; i < count; i++) {
        bool known = tokens[i] >= 0 && tokens[i] < vocabulary->id_count && vocabulary->by_id[tokens[i]];
        if (!known)
            return lki_fail_null(LK_ERR_RANGE, "token %lld at place %lld: the vocabulary has no such number",
                                 (long long)tokens[i], (long long)i);
        total += vocabulary->symbols[vocabulary->by_id[tokens[i]] - 1].nbytes;
    }
    char *text = lki_calloc(total + 1, "the text of tokens");
    for (int64_t i = 0; text && i < count; i++) {
        const lki_symbol *symbol = &vocabulary->symbols[vocabulary->by_id[tokens[i]] - 1];
        memcpy(text + at, symbol->text, symbol->nbytes);
        at += symbol->nbytes;
    }
    if (text && nbytes) *nbytes = total;
    return text;
}

lk_status lk_tokenizer_save(const lk_tokenizer *tokenizer, const char *vocab_path)
{
    lki_atomic_file *file;
    lk_status status = LK_OK;
    if (!tokenizer || !vocab_path)
        return lki_fail(LK_ERR_INVALID, "lk_tokenizer_save: the tokenizer or the path is missing");
    LKI_TRY(lki_atomic_file_open(&file, vocab_path));
    const lki_vocabulary *vocabulary = &tokenizer->vocabulary;
    const char *before = "{";
    for (int64_t id = 0; !status && id < tokenizer->vocab_size; id++) {
        if (!vocabulary->by_id[id]) continue;
        status = lki_atomic_file_printf(file, "%s", before);
        if (!status) status = tokenizer->kind->save(file, &vocabulary->symbols[vocabulary->by_id[id] - 1]);
        if (!status) status = lki_atomic_file_printf(file, ": %lld", (long long)id);
        before = ", ";
    }
    if (!status) status = lki_atomic_file_printf(file, "}\n");
    if (!status) return lki_atomic_file_commit(file);
    lki_atomic_file_abort(file);
    return status;
}

/* ---- Bytes ---- */

static lk_status encode_bytes(const lk_tokenizer *self, const char *text, size_t nbytes, lki_tokens *out)
{
    (void)self;
    for (size_t i = 0; i < nbytes; i++) LKI_TRY(lki_tokens_add(out, (unsigned char)text[i]));
    return LK_OK;
}

lk_tokenizer *lk_byte_tokenizer(void)
{
    static const lki_tokenizer_kind kind = {encode_bytes, lki_save_bytes};
    lk_tokenizer *self = lki_tokenizer_create(&kind);
    for (int i = 0; self && i < 256; i++) {
        char byte = (char)i;
        if (lki_vocabulary_add(&self->vocabulary, &byte, 1, i) == LK_OK) continue;
        lk_tokenizer_free(self);
        return NULL;
    }
    if (self) lki_tokenizer_settle(self);
    return self;
}

/* ---- Characters ---- */

static int64_t line_of(const char *text, size_t at)
{
    int64_t line = 1;
    for (size_t i = 0; i < at; i++) line += text[i] == '\n';
    return line;
}

static lk_status encode_characters(const lk_tokenizer *self, const char *text, size_t nbytes, lki_tokens *out)
{
    size_t used;
    for (size_t at = 0; at < nbytes; at += used) {
        if (lki_utf8_next(text + at, nbytes - at, &used) < 0)
            return lki_fail(LK_ERR_FORMAT, "line %lld: byte 0x%02x is no UTF-8", (long long)line_of(text, at),
                            (unsigned char)text[at]);
        int32_t found = lki_vocabulary_find(&self->vocabulary, text + at, used);
        if (found < 0)
            return lki_fail(LK_ERR_NOT_FOUND, "line %lld: the vocabulary has no character \"%.*s\"",
                            (long long)line_of(text, at), (int)used, text + at);
        LKI_TRY(lki_tokens_add(out, self->vocabulary.symbols[found].id));
    }
    return LK_OK;
}

static lk_status save_character(lki_atomic_file *file, const lki_symbol *symbol)
{
    return lki_write_json_text(file, symbol->text, symbol->nbytes);
}

static const lki_tokenizer_kind character_kind = {encode_characters, save_character};

enum { CODE_COUNT = 0x110000 };

static lk_status add_characters(lk_tokenizer *self, const char *text, size_t nbytes, unsigned char *seen)
{
    size_t used;
    int64_t id = 0;
    for (size_t at = 0; at < nbytes; at += used) {
        int32_t code = lki_utf8_next(text + at, nbytes - at, &used);
        if (code < 0)
            return lki_fail(LK_ERR_FORMAT, "line %lld: byte 0x%02x is no UTF-8: use lk_byte_tokenizer",
                            (long long)line_of(text, at), (unsigned char)text[at]);
        seen[code] = 1;
    }
    for (int32_t code = 0; code < CODE_COUNT; code++) {
        char bytes[4];
        if (!seen[code]) continue;
        LKI_TRY(lki_vocabulary_add(&self->vocabulary, bytes, lki_utf8_put(bytes, code), id++));
    }
    return id ? LK_OK
              : lki_fail(LK_ERR_INVALID, "a vocabulary of characters needs a text, this one is empty");
}

lk_tokenizer *lk_char_tokenizer_of(const char *text, size_t nbytes)
{
    LKI_SCOPED unsigned char *seen = lki_calloc(CODE_COUNT, "the characters of a text");
    lk_tokenizer *self = seen ? lki_tokenizer_create(&character_kind) : NULL;
    if (!self) return NULL;
    if (add_characters(self, text, nbytes, seen) != LK_OK) {
        lk_tokenizer_free(self);
        return NULL;
    }
    lki_tokenizer_settle(self);
    return self;
}

lk_tokenizer *lk_char_tokenizer_of_file(const char *path)
{
    LKI_SCOPED char *text = NULL;
    size_t nbytes;
    if (!path) return lki_fail_null(LK_ERR_INVALID, "characters: the path is missing");
    if (lki_read_file(&text, &nbytes, path)) return NULL;
    lk_tokenizer *self = lk_char_tokenizer_of(text, nbytes);
    if (!self) lki_fail_prefix(lki_last_status(), "%s", path);
    return self;
}

static lk_status add_character(void *context, const char *text, size_t nbytes, int64_t id)
{
    size_t used = 0;
    if (nbytes == 0 || lki_utf8_next(text, nbytes, &used) < 0 || used != nbytes)
        return lki_fail(LK_ERR_FORMAT,
                        "\"%.40s\" is not one character: tokens of several need merges.txt, too", text);
    return lki_vocabulary_add(&((lk_tokenizer *)context)->vocabulary, text, nbytes, id);
}

lk_tokenizer *lk_char_tokenizer(const char *vocab_path)
{
    lk_tokenizer *self = lki_tokenizer_create(&character_kind);
    if (!self) return NULL;
    if (lki_read_vocabulary_json(vocab_path, add_character, self)) {
        lk_tokenizer_free(self);
        return NULL;
    }
    lki_tokenizer_settle(self);
    return self;
}
