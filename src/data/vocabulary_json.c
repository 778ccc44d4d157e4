/* vocab.json: one JSON object that gives each token a number. */
#include "data/vocabulary.h"

#include "base/atomic_file.h"
#include "base/memory.h"
#include "base/status.h"
#include "data/unicode.h"

#include <ctype.h>
#include <string.h>

typedef struct reader {
    const char *path, *text, *at, *end;
    char *word; /* room for the longest text: as many bytes as the file has */
    size_t word_nbytes;
} reader;

static lk_status wrong(const reader *self, const char *expected)
{
    int64_t line = 1;
    for (const char *look = self->text; look < self->at; look++) line += *look == '\n';
    if (self->at == self->end)
        return lki_fail(LK_ERR_FORMAT, "%s:%lld: expected %s, found the end of the file", self->path,
                        (long long)line, expected);
    return lki_fail(LK_ERR_FORMAT, "%s:%lld: expected %s, found \"%.1s\"", self->path, (long long)line,
                    expected, (unsigned char)*self->at < 0x80 ? self->at : "?");
}

static void skip_spaces(reader *self)
{
    while (self->at < self->end && strchr(" \t\r\n", *self->at) && *self->at) self->at++;
}

static lk_status take(reader *self, char expected)
{
    char text[] = {'"', expected, '"', 0};
    skip_spaces(self);
    if (self->at == self->end || *self->at != expected) return wrong(self, text);
    self->at++;
    return LK_OK;
}

/* Four hexadecimal digits. */
static lk_status take_unit(reader *self, int32_t *out)
{
    *out = 0;
    for (int i = 0; i < 4; i++, self->at++) {
        if (self->at == self->end || !isxdigit((unsigned char)*self->at))
            return wrong(self, "four hexadecimal digits");
        int digit = tolower((unsigned char)*self->at);
        *out = *out * 16 + (digit <= '9' ? digit - '0' : digit - 'a' + 10);
    }
    return LK_OK;
}

/* What follows "\u": a character, in two units if it is above 0xffff. */
static lk_status take_escaped_character(reader *self)
{
    int32_t code, low;
    LKI_TRY(take_unit(self, &code));
    if (code >= 0xd800 && code < 0xdc00) {
        if (self->end - self->at < 2 || self->at[0] != '\\' || self->at[1] != 'u')
            return wrong(self, "the second half of a character");
        self->at += 2;
        LKI_TRY(take_unit(self, &low));
        if (low < 0xdc00 || low > 0xdfff) return wrong(self, "the second half of a character");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (code >= 0xdc00 && code <= 0xdfff) {
        return wrong(self, "the first half of a character before its second");
    }
    self->word_nbytes += lki_utf8_put(self->word + self->word_nbytes, code);
    return LK_OK;
}

static lk_status take_escape(reader *self)
{
    static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    const char *found = self->at < self->end && *self->at ? strchr(letters, *self->at) : NULL;
    if (found) {
        self->word[self->word_nbytes++] = meant[found - letters];
        self->at++;
        return LK_OK;
    }
    if (self->at == self->end || *self->at != 'u') return wrong(self, "an escape of JSON");
    self->at++;
    return take_escaped_character(self);
}

static lk_status take_text(reader *self)
{
    self->word_nbytes = 0;
    LKI_TRY(take(self, '"'));
    while (self->at < self->end && *self->at != '"') {
        if (*self->at == '\\') {
            self->at++;
            LKI_TRY(take_escape(self));
        } else if ((unsigned char)*self->at < 0x20) {
            return wrong(self, "a text that ends in its line");
        } else {
            self->word[self->word_nbytes++] = *self->at++;
        }
    }
    return take(self, '"');
}

static lk_status take_number(reader *self, int64_t *out)
{
    *out = 0;
    skip_spaces(self);
    if (self->at == self->end || !isdigit((unsigned char)*self->at))
        return wrong(self, "the number of a token");
    while (self->at < self->end && isdigit((unsigned char)*self->at)) {
        *out = *out * 10 + (*self->at - '0');
        if (*out >= LKI_MOST_TOKENS) return wrong(self, "a smaller number");
        self->at++;
    }
    return LK_OK;
}

static lk_status take_entries(reader *self, lki_vocabulary_entry entry, void *context)
{
    for (;;) {
        int64_t id;
        LKI_TRY(take_text(self));
        LKI_TRY(take(self, ':'));
        LKI_TRY(take_number(self, &id));
        lk_status status = entry(context, self->word, self->word_nbytes, id);
        if (status) return lki_fail_prefix(status, "%s: token %lld", self->path, (long long)id);
        skip_spaces(self);
        if (self->at == self->end || *self->at != ',') break;
        self->at++;
    }
    return take(self, '}');
}

lk_status lki_read_vocabulary_json(const char *path, lki_vocabulary_entry entry, void *context)
{
    LKI_SCOPED char *text = NULL;
    size_t nbytes;
    if (!path) return lki_fail(LK_ERR_INVALID, "vocabulary: the path is missing");
    LKI_TRY(lki_read_file(&text, &nbytes, path));
    LKI_SCOPED char *word = lki_calloc(nbytes + 4, "a token");
    if (!word) return LK_ERR_NOMEM;
    reader self = {.path = path, .text = text, .at = text, .end = text + nbytes, .word = word};
    LKI_TRY(take(&self, '{'));
    skip_spaces(&self);
    if (self.at < self.end && *self.at == '}') return wrong(&self, "at least one token");
    LKI_TRY(take_entries(&self, entry, context));
    skip_spaces(&self);
    return self.at == self.end ? LK_OK : wrong(&self, "the end of the file");
}

lk_status lki_write_json_text(lki_atomic_file *file, const char *text, size_t nbytes)
{
    LKI_TRY(lki_atomic_file_write(file, "\"", 1));
    for (size_t i = 0; i < nbytes; i++) {
        unsigned char byte = (unsigned char)text[i];
        if (byte == '"' || byte == '\\')
            LKI_TRY(lki_atomic_file_printf(file, "\\%c", byte));
        else if (byte < 0x20)
            LKI_TRY(lki_atomic_file_printf(file, "\\u%04x", byte));
        else
            LKI_TRY(lki_atomic_file_write(file, text + i, 1));
    }
    return lki_atomic_file_write(file, "\"", 1);
}
