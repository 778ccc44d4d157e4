#include "base/status.h"

#include "base/number_text.h"

#include <lockstep/version.h>

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char error_text[LKI_ERROR_NBYTES];
static _Thread_local lk_status error_status;
_Thread_local unsigned long lki_error_count;

/* A sentence may quote a file that somebody else has made: what it says must not reach the user's terminal as
 * a command. */
static void flatten_to_one_line(char *text)
{
    for (; *text; text++) {
        if (*text == '\n' || *text == '\r' || *text == '\t') *text = ' ';
        if ((unsigned char)*text < ' ' || *text == 0x7f) *text = '?';
    }
}

static void set_error(lk_status status, const char *format, va_list arguments)
{
    /* Formatted aside first: an argument may be lk_error() itself. */
    char fresh[LKI_ERROR_NBYTES];
    lki_vsnprintf(fresh, sizeof fresh, format, arguments);
    flatten_to_one_line(fresh);
    memcpy(error_text, fresh, sizeof error_text);
    error_status = status;
    lki_error_count++;
}

lk_status lki_fail(lk_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    set_error(status, format, arguments);
    va_end(arguments);
    return status;
}

lk_status lk_fail(lk_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    set_error(status, format, arguments);
    va_end(arguments);
    return status;
}

lk_status lk_fail_text(lk_status status, const char *sentence)
{
    return lk_fail(status, "%s", sentence ? sentence : "");
}

void *lki_fail_null(lk_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    set_error(status, format, arguments);
    va_end(arguments);
    return NULL;
}

lk_status lki_fail_prefix(lk_status status, const char *format, ...)
{
    char prefix[LKI_ERROR_NBYTES / 2];
    va_list arguments;
    va_start(arguments, format);
    lki_vsnprintf(prefix, sizeof prefix, format, arguments);
    va_end(arguments);
    return lki_fail(status, "%s: %s", prefix, error_text);
}

lk_status lki_last_status(void)
{
    return error_status;
}

lk_status lk_error_status(void)
{
    return error_status;
}

lk_status lki_fail_silent(lk_status status, const char *what, const char *name)
{
    return lki_fail(status, "%s %s: %s", what, name, lk_status_name(status));
}

const char *lk_error(void)
{
    return error_text;
}

const char *lk_status_name(lk_status status)
{
    switch (status) {
#define X(symbol, name)                                                                                      \
    case symbol: return name;
        LK_STATUS_LIST(X)
#undef X
    }
    return "unknown status";
}

const char *lk_version(void)
{
    return LK_VERSION;
}

int lk_version_number(void)
{
    return LK_VERSION_NUMBER;
}
