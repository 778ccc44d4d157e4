/* The readers of what others have written, as functions of bytes: fuzz.c hands them to libFuzzer, and
 * test_corpus.c reads what lies in corpus/ and damaged copies of it. A reader may refuse the bytes with one
 * sentence. Whatever else is wrong ends the process. */
#ifndef TESTS_PARSERS_PARSERS_H
#define TESTS_PARSERS_PARSERS_H

#include <lockstep/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct parser {
    const char *name; /* and that of the folder in corpus/ */
    void (*parse)(const uint8_t *data, size_t nbytes);
} parser;

/* Each list ends with a zero. */
extern const parser file_parsers[], text_parsers[], store_parsers[], client_parsers[], board_parsers[];
enum { PARSER_LISTS = 5 };
extern const parser *const parser_lists[PARSER_LISTS];

/* NULL: there is none of this name. */
const parser *find_parser(const char *name);

/* Parses with no failure in memory. */
void parse_afresh(const parser *one, const uint8_t *data, size_t nbytes);

/* Ends the process with a line if it does not hold. */
void must(bool holds, const char *what);
/* The sentence of a failure: one line. */
void check_refusal(void);

/* A folder in memory for this process, and a file in it that has these bytes. */
const char *parser_folder(void);
const char *as_file(const char *name, const uint8_t *data, size_t nbytes);
/* The bytes as a text that ends; freed with free. */
char *as_text(const uint8_t *data, size_t nbytes);

#endif
