#include "data/unicode.h"

#include <string.h>

typedef struct code_range {
    int32_t first, last;
} code_range;

#include "data/unicode_classes.inc"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- UTF-8 ---- */

/* Overlong forms, surrogates and what is above 0x10ffff are no characters. */
static bool is_character(int32_t code, size_t used)
{
    static const int32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    return code >= least[used] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
}

int32_t lki_utf8_next(const char *text, size_t nbytes, size_t *used)
{
    unsigned char first = (unsigned char)text[0];
    *used = 1;
    if (first < 0x80) return first;
    size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4 || length > nbytes) return -1;
    int32_t code = first & (0x7f >> length);
    for (size_t i = 1; i < length; i++) {
        unsigned char byte = (unsigned char)text[i];
        if ((byte & 0xc0) != 0x80) return -1;
        code = code << 6 | (byte & 0x3f);
    }
    if (!is_character(code, length)) return -1;
    *used = length;
    return code;
}

size_t lki_utf8_put(char *out, int32_t code)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    size_t length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char marks[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = length - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (code & 0x3f));
        code >>= 6;
    }
    out[0] = (char)(marks[length] | code);
    return length;
}

/* ---- Classes ---- */

static bool is_among(const code_range *ranges, size_t count, int32_t code)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (code > ranges[middle].last)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && code >= ranges[low].first;
}

/* Unicode's White_Space. */
static bool is_space(int32_t code)
{
    if (code < 0x85) return code == ' ' || (code >= 9 && code <= 13);
    return code == 0x85 || code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) ||
           code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

lki_char_class lki_class_of_char(int32_t code)
{
    if (code < 0) return LKI_CHAR_OTHER;
    if (is_space(code)) return LKI_CHAR_SPACE;
    if (is_among(letters, COUNT(letters), code)) return LKI_CHAR_LETTER;
    return is_among(numbers, COUNT(numbers), code) ? LKI_CHAR_NUMBER : LKI_CHAR_OTHER;
}

/* ---- GPT-2's pattern ---- */

/* 's, 't, 're and so on: the bytes of the one that the text begins with, or 0. */
static size_t contraction(const char *text, size_t nbytes)
{
    static const char *const endings[] = {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
    for (size_t i = 0; i < COUNT(endings); i++) {
        size_t length = strlen(endings[i]);
        if (length <= nbytes && memcmp(text, endings[i], length) == 0) return length;
    }
    return 0;
}

/* The bytes of the characters of one class that the text begins with. */
static size_t run_of(const char *text, size_t nbytes, lki_char_class kind, size_t *last)
{
    size_t at = 0, used;
    *last = 0;
    while (at < nbytes && lki_class_of_char(lki_utf8_next(text + at, nbytes - at, &used)) == kind) {
        at += used;
        *last = used;
    }
    return at;
}

size_t lki_gpt2_piece(const char *text, size_t nbytes)
{
    size_t length = contraction(text, nbytes), used, last;
    if (length) return length;
    size_t skipped = text[0] == ' ' && nbytes > 1;
    lki_char_class kind = lki_class_of_char(lki_utf8_next(text + skipped, nbytes - skipped, &used));
    if (kind != LKI_CHAR_SPACE) return skipped + run_of(text + skipped, nbytes - skipped, kind, &last);
    /* The last of several spaces goes with what follows it. */
    length = run_of(text, nbytes, LKI_CHAR_SPACE, &last);
    return length < nbytes && length > last ? length - last : length;
}
