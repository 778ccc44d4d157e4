/* What the terminal at a file descriptor can show. Whatever is printed for people asks here. NO_COLOR (if it
 * is set to anything) switches colours off, and a terminal with TERM=dumb gets plain lines. What mpirun
 * forwards is no terminal. Thread-safe. */
#ifndef LKI_BASE_TERMINAL_H
#define LKI_BASE_TERMINAL_H

#include <stdbool.h>
#include <stdio.h>

typedef struct lki_terminal {
    bool is_terminal; /* lines can be drawn over: a terminal that is not dumb */
    bool has_colour;
    bool has_unicode; /* the locale is UTF-8 */
    int columns, rows;
} lki_terminal;

lki_terminal lki_terminal_of(int fd);

/* The width alone, which changes while a program runs: 80 if `fd` is no terminal. */
int lki_terminal_columns(int fd);

/* Writes text that breaks at blanks before the terminal's width. The rest of a line is indented as far as the
 * last column of the line: behind the last two blanks in a row, or as the line itself. If `columns` is 0 or
 * too few for that, the text is written as it is. */
void lki_print_folded(FILE *out, const char *text, int columns);

/* The width to wrap at for a stream: 0 if it is no terminal. */
int lki_fold_columns(FILE *out);

#endif
