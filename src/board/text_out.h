/* Text that grows, and JSON in it. A failure is kept and reported once, at the end: writers need no checks in
 * between. Not thread-safe. */
#ifndef LKI_BOARD_TEXT_OUT_H
#define LKI_BOARD_TEXT_OUT_H

#include "base/status.h"

#include <stddef.h>

/* Zero is empty. `text` is freed with lki_free, or by lki_text_out_fini. */
typedef struct lki_text_out {
    char *text;
    size_t used, capacity;
    lk_status status;
} lki_text_out;

void lki_text_out_fini(lki_text_out *out);
void lki_text_out_put(lki_text_out *out, const char *bytes, size_t nbytes);
void lki_text_out_printf(lki_text_out *out, const char *format, ...) LKI_PRINTF(2, 3);
/* In quotes. Bytes that are no UTF-8 become U+FFFD; NULL becomes null. */
void lki_text_out_string(lki_text_out *out, const char *text);
/* JSON has no NaN and no infinity: they are the strings "NaN", "Infinity" and "-Infinity". */
void lki_text_out_number(lki_text_out *out, double value);

#endif
