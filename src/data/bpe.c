/* Byte pair encoding with GPT-2's files.
 *
 * In the files a byte is a character: printable ones of Latin-1 stand for themselves, the other 68 are the
 * characters from U+0100 on, in the order of the bytes. Here tokens are bytes, and a merge is a pair of
 * symbols. A symbol may be no token, if only another merge makes one of it. */
#include "data/tokenizer.h"

#include "base/atomic_file.h"
#include "base/memory.h"
#include "base/status.h"
#include "data/unicode.h"

#include <string.h>

enum { ON_STACK = 256, NO_RANK = INT32_MAX };

/* ---- Bytes as characters ---- */

static bool stands_for_itself(int byte)
{
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

int32_t lki_gpt2_character(unsigned char byte)
{
    if (stands_for_itself(byte)) return byte;
    int32_t others = 0;
    for (int i = 0; i < byte; i++) others += !stands_for_itself(i);
    return 0x100 + others;
}

/* -1 for a character that stands for no byte. */
static int byte_of(int32_t character)
{
    if (character < 0x100) return character >= 0 && stands_for_itself(character) ? character : -1;
    for (int byte = 0; byte < 256; byte++)
        if (!stands_for_itself(byte) && lki_gpt2_character((unsigned char)byte) == character) return byte;
    return -1;
}

/* In place: bytes are never more than the characters that stand for them. */
static lk_status to_bytes(char *text, size_t *nbytes)
{
    size_t out = 0, used;
    for (size_t at = 0; at < *nbytes; at += used) {
        int byte = byte_of(lki_utf8_next(text + at, *nbytes - at, &used));
        if (byte < 0)
            return lki_fail(LK_ERR_FORMAT, "\"%.*s\" stands for no byte in GPT-2's alphabet", (int)used,
                            text + at);
        text[out++] = (char)byte;
    }
    *nbytes = out;
    return LK_OK;
}

lk_status lki_save_bytes(lki_atomic_file *file, const lki_symbol *symbol)
{
    LKI_SCOPED char *text = lki_calloc(symbol->nbytes * 2 + 1, "a token");
    size_t nbytes = 0;
    if (!text) return LK_ERR_NOMEM;
    for (size_t i = 0; i < symbol->nbytes; i++)
        nbytes += lki_utf8_put(text + nbytes, lki_gpt2_character((unsigned char)symbol->text[i]));
    return lki_write_json_text(file, text, nbytes);
}

/* ---- Merges ---- */

static uint32_t hash_of(int32_t left, int32_t right)
{
    uint64_t x = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(x >> 32);
}

/* The pair's merge, or the free place where it belongs. */
static lki_merge *merge_of(const lk_tokenizer *self, int32_t left, int32_t right)
{
    uint32_t mask = self->merge_table_size - 1, at = hash_of(left, right) & mask;
    while (self->merges[at].left >= 0 && (self->merges[at].left != left || self->merges[at].right != right))
        at = (at + 1) & mask;
    return &self->merges[at];
}

static int32_t rank_of(const lk_tokenizer *self, int32_t left, int32_t right)
{
    const lki_merge *merge = merge_of(self, left, right);
    return merge->left < 0 ? NO_RANK : merge->rank;
}

/* Merges every pair of this rank from left to right and returns how many parts are left. The ranks of pairs
 * that have changed are looked up again. */
static int merge_all(const lk_tokenizer *self, int32_t rank, int32_t *parts, int32_t *ranks, int count)
{
    int out = 0;
    bool before_changed = false;
    for (int i = 0; i < count; out++) {
        bool merged = i + 1 < count && ranks[i] == rank;
        int32_t part = merged ? merge_of(self, parts[i], parts[i + 1])->result : parts[i];
        int32_t kept = merged ? NO_RANK : ranks[i];
        i += merged ? 2 : 1;
        parts[out] = part;
        ranks[out] = kept;
        if (out > 0 && (merged || before_changed)) ranks[out - 1] = rank_of(self, parts[out - 1], part);
        before_changed = merged;
    }
    return out;
}

/* One piece of the pattern: its bytes, merged as long as a pair has a rank. */
static lk_status encode_piece(const lk_tokenizer *self, const char *text, size_t nbytes, lki_tokens *out)
{
    int32_t small[2 * ON_STACK];
    LKI_SCOPED int32_t *large = nbytes > ON_STACK ? LKI_NEW_ARRAY(int32_t, 2 * nbytes) : NULL;
    int32_t *parts = nbytes > ON_STACK ? large : small, *ranks = parts + nbytes;
    if (!parts) return LK_ERR_NOMEM;
    int count = (int)nbytes;
    for (int i = 0; i < count; i++) parts[i] = self->bytes[(unsigned char)text[i]];
    for (int i = 0; i < count; i++)
        ranks[i] = i + 1 < count ? rank_of(self, parts[i], parts[i + 1]) : NO_RANK;
    while (count > 1) {
        int32_t best = NO_RANK;
        for (int i = 0; i + 1 < count; i++)
            if (ranks[i] < best) best = ranks[i];
        if (best == NO_RANK) break;
        count = merge_all(self, best, parts, ranks, count);
    }
    for (int i = 0; i < count; i++) {
        const lki_symbol *symbol = &self->vocabulary.symbols[parts[i]];
        if (symbol->id < 0)
            return lki_fail(LK_ERR_NOT_FOUND, "vocab.json has no number for \"%.60s\" (%zu bytes)",
                            symbol->text, symbol->nbytes);
        LKI_TRY(lki_tokens_add(out, symbol->id));
    }
    return LK_OK;
}

static lk_status encode(const lk_tokenizer *self, const char *text, size_t nbytes, lki_tokens *out)
{
    for (size_t at = 0, length; at < nbytes; at += length) {
        length = lki_gpt2_piece(text + at, nbytes - at);
        if (length > INT32_MAX / 4)
            return lki_fail(LK_ERR_UNSUPPORTED, "a word of %zu bytes: at most %d can be encoded", length,
                            INT32_MAX / 4);
        LKI_TRY(encode_piece(self, text + at, length, out));
    }
    return LK_OK;
}

/* ---- The files ---- */

static lk_status add_token(void *context, const char *text, size_t nbytes, int64_t id)
{
    LKI_SCOPED char *bytes = lki_calloc(nbytes + 1, "a token");
    if (!bytes) return LK_ERR_NOMEM;
    memcpy(bytes, text, nbytes);
    LKI_TRY(to_bytes(bytes, &nbytes));
    return lki_vocabulary_add(&((lk_tokenizer *)context)->vocabulary, bytes, nbytes, id);
}

static lk_status intern_bytes(lk_tokenizer *self)
{
    for (int byte = 0; byte < 256; byte++) {
        char text = (char)byte;
        LKI_TRY(lki_vocabulary_intern(&self->vocabulary, &text, 1, &self->bytes[byte]));
    }
    return LK_OK;
}

/* "left right" of a line, both in place as bytes. */
static lk_status read_merge(lk_tokenizer *self, char *line, size_t nbytes, int32_t rank)
{
    lki_vocabulary *vocabulary = &self->vocabulary;
    char *space = memchr(line, ' ', nbytes);
    if (!space || space == line || space + 1 == line + nbytes)
        return lki_fail(LK_ERR_FORMAT, "expected two tokens with a space between them");
    size_t left_nbytes = (size_t)(space - line), right_nbytes = nbytes - left_nbytes - 1;
    if (memchr(space + 1, ' ', right_nbytes))
        return lki_fail(LK_ERR_FORMAT, "expected two tokens, found more");
    LKI_TRY(to_bytes(line, &left_nbytes));
    LKI_TRY(to_bytes(space + 1, &right_nbytes));
    lki_merge merge = {.rank = rank};
    LKI_TRY(lki_vocabulary_intern(vocabulary, line, left_nbytes, &merge.left));
    LKI_TRY(lki_vocabulary_intern(vocabulary, space + 1, right_nbytes, &merge.right));
    memmove(line + left_nbytes, space + 1, right_nbytes);
    LKI_TRY(lki_vocabulary_intern(vocabulary, line, left_nbytes + right_nbytes, &merge.result));
    lki_merge *place = merge_of(self, merge.left, merge.right);
    if (place->left >= 0) return lki_fail(LK_ERR_FORMAT, "this merge stands in the file twice");
    *place = merge;
    return LK_OK;
}

static lk_status make_merge_table(lk_tokenizer *self, const char *text, size_t nbytes)
{
    uint32_t lines = 2, size = 16;
    for (size_t i = 0; i < nbytes; i++) lines += text[i] == '\n';
    while (size < 2 * lines) size *= 2;
    self->merges = LKI_NEW_ARRAY(lki_merge, size);
    if (!self->merges) return LK_ERR_NOMEM;
    self->merge_table_size = size;
    for (uint32_t i = 0; i < size; i++) self->merges[i].left = -1;
    return LK_OK;
}

/* The first line may be "#version: 0.2". */
static lk_status read_merges(lk_tokenizer *self, const char *path)
{
    LKI_SCOPED char *text = NULL;
    size_t nbytes;
    int32_t rank = 0;
    int64_t number = 0;
    if (!path) return lki_fail(LK_ERR_INVALID, "merges: the path is missing");
    LKI_TRY(lki_read_file(&text, &nbytes, path));
    if (nbytes > INT32_MAX) return lki_fail(LK_ERR_UNSUPPORTED, "%s: more than 2 GiB of merges", path);
    LKI_TRY(make_merge_table(self, text, nbytes));
    for (char *line = text, *next; line < text + nbytes; line = next) {
        char *end = memchr(line, '\n', (size_t)(text + nbytes - line));
        next = end ? end + 1 : text + nbytes;
        if (!end) end = next;
        if (end > line && end[-1] == '\r') end--;
        number++;
        if (end == line || (number == 1 && strncmp(line, "#version", 8) == 0)) continue;
        lk_status status = read_merge(self, line, (size_t)(end - line), rank++);
        if (status) return lki_fail_prefix(status, "%s:%lld", path, (long long)number);
    }
    return LK_OK;
}

lk_tokenizer *lk_bpe_tokenizer(const char *vocab_path, const char *merges_path)
{
    static const lki_tokenizer_kind kind = {encode, lki_save_bytes};
    lk_tokenizer *self = lki_tokenizer_create(&kind);
    if (!self) return NULL;
    if (lki_read_vocabulary_json(vocab_path, add_token, self) || intern_bytes(self) ||
        read_merges(self, merges_path)) {
        lk_tokenizer_free(self);
        return NULL;
    }
    lki_tokenizer_settle(self);
    return self;
}
