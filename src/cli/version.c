#include "cli/commands.h"

#include <lockstep/version.h>

static int run(const void *options)
{
    (void)options;
    printf("lockstep %s\n", lk_version());
    return LKI_EXIT_DONE;
}

const lki_command lki_command_version = {
    .name = "version",
    .usage = "",
    .summary = "Prints the version.",
    .run = run,
};
