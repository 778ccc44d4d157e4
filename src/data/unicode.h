/* Characters of UTF-8 text, and the classes by which GPT-2's pattern cuts it. Any thread. */
#ifndef LKI_DATA_UNICODE_H
#define LKI_DATA_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum lki_char_class {
    LKI_CHAR_OTHER, /* also a byte that is no part of a character */
    LKI_CHAR_SPACE,
    LKI_CHAR_LETTER,
    LKI_CHAR_NUMBER,
} lki_char_class;

/* The character that begins at `text`, and its bytes. A byte that begins none gives -1 and one byte. */
int32_t lki_utf8_next(const char *text, size_t nbytes, size_t *used);
/* Writes 1 to 4 bytes and returns how many. */
size_t lki_utf8_put(char *out, int32_t code);

/* -1 is LKI_CHAR_OTHER. */
lki_char_class lki_class_of_char(int32_t code);

/* The bytes of the first piece of a text by GPT-2's pattern:
 * 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
size_t lki_gpt2_piece(const char *text, size_t nbytes);

#endif
