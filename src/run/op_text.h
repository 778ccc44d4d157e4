/* How reports about ops write times, layers and fallbacks. */
#ifndef LKI_RUN_OP_TEXT_H
#define LKI_RUN_OP_TEXT_H

#include <stddef.h>
#include <stdio.h>

/* "12.3 us" or "4.56 ms"; returns `text`. */
const char *lki_time_text(char *text, size_t capacity, double seconds);

/* A node's scope as a column of layers shows it: "1 (Linear)" of "layer 1 (Linear)", "" of NULL. */
const char *lki_layer_text(const char *scope);

/* One line: which op, in which layer (or NULL), is computed by a plain kernel, and why. */
void lki_print_fallback(FILE *out, const char *indent, const char *op, const char *scope, const char *reason);

#endif
