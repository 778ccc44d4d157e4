/* The version, and how this command was built. LKI_BUILD_... are defined by src/cli/CMakeLists.txt. */
#include "cli/commands.h"

#include <lockstep/version.h>

static int run(const void *options)
{
    (void)options;
    printf("lockstep %s\n", lk_version());
    printf("built with:  %s\n", LKI_BUILD_FEATURES);
    printf("left out:    %s\n", LKI_BUILD_MISSING);
    printf("build type:  %s\n", LKI_BUILD_TYPE);
    printf("compiler:    %s\n", LKI_BUILD_COMPILER);
    return LKI_EXIT_DONE;
}

const lki_command lki_command_version = {
    .name = "version",
    .usage = "",
    .summary = "Prints the version and the build options.",
    .run = run,
};
