/* The texts of base/memory.h. Plug-ins have a copy of this file. */
#include "base/memory.h"

#include "base/number_text.h"

#include <fnmatch.h>
#include <stdarg.h>
#include <string.h>

const char *lki_format_nbytes(char *text, size_t capacity, uint64_t nbytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double amount = (double)nbytes;
    size_t unit = 0;
    while (amount >= 1024 && unit + 1 < sizeof units / sizeof *units) {
        amount /= 1024;
        unit++;
    }
    lki_snprintf(text, capacity, unit ? "%.1f %s" : "%.0f %s", amount, units[unit]);
    return text;
}

bool lki_same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

bool lki_matches_one_of(const char *patterns, const char *name)
{
    char pattern[512];
    for (const char *at = patterns; *at;) {
        size_t length = strcspn(at, ", ");
        if (length && length < sizeof pattern) {
            memcpy(pattern, at, length);
            pattern[length] = 0;
            if (fnmatch(pattern, name, 0) == 0) return true;
        }
        at += length;
        at += strspn(at, ", ");
    }
    return false;
}

/* The length of the character at `at`, 0 where it is none: overlong, a surrogate, or beyond U+10FFFF. */
static int utf8_length(const unsigned char *at)
{
    int length = *at < 0x80 ? 1 : *at < 0xc2 ? 0 : *at < 0xe0 ? 2 : *at < 0xf0 ? 3 : *at < 0xf5 ? 4 : 0;
    for (int i = 1; i < length; i++)
        if ((at[i] & 0xc0) != 0x80) return 0;
    bool is_wrong = (*at == 0xe0 && at[1] < 0xa0) || (*at == 0xed && at[1] >= 0xa0) ||
                    (*at == 0xf0 && at[1] < 0x90) || (*at == 0xf4 && at[1] >= 0x90);
    return is_wrong ? 0 : length;
}

bool lki_is_utf8(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    for (int length; *at; at += length)
        if (!(length = utf8_length(at))) return false;
    return true;
}

char *lki_strdup(const char *text)
{
    return text ? lki_strndup(text, strlen(text)) : NULL;
}

char *lki_strndup(const char *text, size_t length)
{
    char *copy = lki_calloc(length + 1, "a string");
    if (copy) memcpy(copy, text, length);
    return copy;
}

char *lki_format(const char *format, ...)
{
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int length = lki_vsnprintf(NULL, 0, format, arguments);
    char *text = length < 0 ? NULL : lki_calloc((size_t)length + 1, "a string");
    if (text) lki_vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    va_end(arguments);
    return text;
}
