#include "lktest.h"

#include <stdarg.h>

const char *lkt_scratch_folder(const char *name)
{
    static char path[1024];
    char command[2100];
    snprintf(path, sizeof path, "%s/tests/scratch/%s", LK_BUILD_DIR, name);
    snprintf(command, sizeof command, "rm -rf '%s' && mkdir -p '%s'", path, path);
    if (system(command) != 0) fail_msg("could not make %s", path);
    return path;
}

void lkt_shell_in(const char *folder, const char *format, ...)
{
    char command[8192];
    int used = snprintf(command, sizeof command, "cd '%s' || exit 1; ", folder);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(command + used, sizeof command - (size_t)used, format, arguments);
    va_end(arguments);
    if (system(command)) fail_msg("%s", command);
}
