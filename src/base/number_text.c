#include "base/number_text.h"

#include <locale.h>
#include <pthread.h>
#include <stdlib.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static locale_t c_locale;

/* The C locale is part of the library: there is nothing that could be missing, and nothing to free. */
static void make_c_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

/* Of this thread alone, until uselocale puts back what is returned. */
static locale_t enter_c_locale(void)
{
    pthread_once(&once, make_c_locale);
    return uselocale(c_locale);
}

int lki_vsnprintf(char *text, size_t capacity, const char *format, va_list arguments)
{
    locale_t before = enter_c_locale();
    int length = vsnprintf(text, capacity, format, arguments);
    uselocale(before);
    return length;
}

int lki_snprintf(char *text, size_t capacity, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = lki_vsnprintf(text, capacity, format, arguments);
    va_end(arguments);
    return length;
}

int lki_fprintf(FILE *stream, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    locale_t before = enter_c_locale();
    int length = vfprintf(stream, format, arguments);
    uselocale(before);
    va_end(arguments);
    return length;
}

double lki_strtod(const char *text, char **end)
{
    locale_t before = enter_c_locale();
    double value = strtod(text, end);
    uselocale(before);
    return value;
}
