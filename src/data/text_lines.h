/* One line of text as a sample: what the dataset of lines and the stream of lines share. */
#ifndef LKI_DATA_TEXT_LINES_H
#define LKI_DATA_TEXT_LINES_H

#include "data/tokenizer.h"

enum { LKI_LINE_FIELDS = 3 };

typedef struct lki_line_form {
    lk_tokenizer *tokenizer; /* owned */
    char *path;
    int64_t max_length;
    lk_text_lines_options options; /* .end_token is not kept */
    int64_t end;                   /* a token, or -1 */
    lk_field fields[LKI_LINE_FIELDS];
    int field_count;
} lki_line_form;

/* Takes the tokenizer over, also on failure. */
lk_status lki_line_form_init(lki_line_form *out, const char *path, lk_tokenizer *tokenizer,
                             int64_t max_length, const lk_text_lines_options *options);
void lki_line_form_fini(lki_line_form *form);

/* The line that begins at `text`, without its end; *next is where the next one begins. */
size_t lki_line_nbytes(const char *text, const char *end, const char **next);

/* Tokenizes a line and writes its fields. `number` counts from 1, for messages. */
lk_status lki_line_get(const lki_line_form *form, const char *line, size_t nbytes, int64_t number,
                       void *const *slots);

#endif
