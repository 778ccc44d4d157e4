#include "lktest.h"

const char *lkt_scratch_folder(const char *name)
{
    static char path[1024];
    char command[2100];
    snprintf(path, sizeof path, "%s/tests/scratch/%s", LK_BUILD_DIR, name);
    snprintf(command, sizeof command, "rm -rf '%s' && mkdir -p '%s'", path, path);
    if (system(command) != 0) fail_msg("could not make %s", path);
    return path;
}
