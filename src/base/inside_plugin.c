/* Compiled into plug-ins, in place of the library's own status.c, log.c and memory.c: the usual names over
 * the tables of base/plugin.h. */
#include "base/log.h"
#include "base/memory.h"
#include "base/number_text.h"
#include "base/plugin.h"
#include "base/status.h"

#include <stdarg.h>
#include <stddef.h>

enum { LINE_CAPACITY = 1024 };

const lki_plugin_host *lki_inside_plugin_host;
const void *lki_inside_plugin_services;

#define host lki_inside_plugin_host

lk_status lki_fail(lk_status status, const char *format, ...)
{
    char line[LINE_CAPACITY];
    va_list arguments;
    va_start(arguments, format);
    lki_vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    return host->fail(status, line);
}

void *lki_fail_null(lk_status status, const char *format, ...)
{
    char line[LINE_CAPACITY];
    va_list arguments;
    va_start(arguments, format);
    lki_vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    host->fail(status, line);
    return NULL;
}

const char *lk_error(void)
{
    return host->error();
}

void lki_log(lki_log_level level, const char *format, ...)
{
    char line[LINE_CAPACITY];
    va_list arguments;
    va_start(arguments, format);
    lki_vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    host->log((int)level, line);
}

void *lki_calloc(size_t nbytes, const char *what)
{
    return host->calloc(nbytes, what);
}

void *lki_calloc_aligned(size_t nbytes, const char *what)
{
    return host->calloc_aligned(nbytes, what);
}

void *lki_realloc(void *block, size_t nbytes, const char *what)
{
    return host->realloc(block, nbytes, what);
}

void lki_free(void *block)
{
    host->free(block);
}
