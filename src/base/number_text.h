/* Numbers as text, the same everywhere: as in the C locale, whatever locale the program has set, for one
 * whose decimal point is a comma makes other files and cannot read ours. What formats or reads a number with
 * a fraction goes through these. Thread-safe; the program's locale is left alone. */
#ifndef LKI_BASE_NUMBER_TEXT_H
#define LKI_BASE_NUMBER_TEXT_H

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

/* As the functions of C's library without the lki_. */
int lki_snprintf(char *text, size_t capacity, const char *format, ...) __attribute__((format(printf, 3, 4)));
int lki_vsnprintf(char *text, size_t capacity, const char *format, va_list arguments)
    __attribute__((format(printf, 3, 0)));
int lki_fprintf(FILE *stream, const char *format, ...) __attribute__((format(printf, 2, 3)));
double lki_strtod(const char *text, char **end);

#endif
