/* Lines of a run's header about what was decided for the user. */
#include "run/run.h"

#include "base/memory.h"
#include "base/number_text.h"
#include "base/status.h"

#include <stdarg.h>
#include <string.h>

static bool is_said(const char *notes, const char *line)
{
    size_t length = strlen(line);
    for (const char *at = notes; at && *at; at = strchr(at, '\n') + 1)
        if (strncmp(at, line, length) == 0 && at[length] == '\n') return true;
    return false;
}

lk_status lki_run_note(lki_run *run, const char *format, ...)
{
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    lki_vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (is_said(run->notes, line)) return LK_OK;
    char *longer = lki_format("%s%s\n", run->notes ? run->notes : "", line);
    if (!longer) return LK_ERR_NOMEM;
    lki_free(run->notes);
    run->notes = longer;
    return LK_OK;
}
