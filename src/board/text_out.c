#include "board/text_out.h"

#include "base/memory.h"
#include "base/number_text.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void lki_text_out_fini(lki_text_out *out)
{
    lki_free(out->text);
    *out = (lki_text_out){0};
}

/* Room for nbytes and a zero behind them. */
static bool reserve(lki_text_out *out, size_t nbytes)
{
    if (out->status) return false;
    if (out->used + nbytes < out->capacity) return true;
    size_t capacity = 2 * out->capacity + nbytes + 256;
    char *grown = lki_realloc(out->text, capacity, "an answer of the board");
    if (!grown) {
        out->status = LK_ERR_NOMEM;
        return false;
    }
    out->text = grown;
    out->capacity = capacity;
    return true;
}

void lki_text_out_put(lki_text_out *out, const char *bytes, size_t nbytes)
{
    if (!reserve(out, nbytes)) return;
    memcpy(out->text + out->used, bytes, nbytes);
    out->used += nbytes;
    out->text[out->used] = 0;
}

void lki_text_out_printf(lki_text_out *out, const char *format, ...)
{
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int length = lki_vsnprintf(NULL, 0, format, arguments);
    if (length >= 0 && reserve(out, (size_t)length + 1)) {
        lki_vsnprintf(out->text + out->used, (size_t)length + 1, format, again);
        out->used += (size_t)length;
    }
    va_end(again);
    va_end(arguments);
}

/* The length of the character at `at`, 0 if it is none. */
static size_t character_length(const char *at)
{
    char one[5] = {0};
    for (size_t length = 1; length <= 4 && at[length - 1]; length++) {
        one[length - 1] = at[length - 1];
        if (lki_is_utf8(one)) return length;
    }
    return 0;
}

void lki_text_out_string(lki_text_out *out, const char *text)
{
    if (!text) {
        lki_text_out_put(out, "null", 4);
        return;
    }
    lki_text_out_put(out, "\"", 1);
    while (*text) {
        unsigned char c = (unsigned char)*text;
        size_t length = c < 0x80 ? 1 : character_length(text);
        if (c == '"' || c == '\\')
            lki_text_out_printf(out, "\\%c", c);
        else if (c < 0x20 || c == 0x7f || c == '<' || c == '>' || c == '&')
            lki_text_out_printf(out, "\\u%04x", c);
        else if (length == 0)
            lki_text_out_put(out, "\\ufffd", 6);
        else
            lki_text_out_put(out, text, length);
        text += length ? length : 1;
    }
    lki_text_out_put(out, "\"", 1);
}

void lki_text_out_number(lki_text_out *out, double value)
{
    if (isnan(value))
        lki_text_out_put(out, "\"NaN\"", 5);
    else if (isinf(value))
        lki_text_out_printf(out, "\"%sInfinity\"", value < 0 ? "-" : "");
    else
        lki_text_out_printf(out, "%.9g", value);
}
