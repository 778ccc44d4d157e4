/* What every example does with its command line. */
#ifndef EXAMPLES_ARGUMENTS_H
#define EXAMPLES_ARGUMENTS_H

#include <lockstep/launch.h>

#include <stdio.h>
#include <string.h>

/* The launch flags are the library's and are taken out; --help is answered; at most `most` words may be left, which
 * `words` names. Returns the exit code where the program is to end here, else -1. */
static int take_arguments(int *argc, char **argv, int most, const char *words)
{
    bool help = *argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    if (!help && lk_launch_arguments(argc, argv)) {
        fprintf(stderr, "%s\n", lk_error());
        return 2;
    }
    const char *wrong = *argc > most + 1 ? argv[most + 1] : NULL;
    for (int i = *argc - 1; i > 0; i--)
        if (argv[i][0] == '-') wrong = argv[i];
    if (!help && !wrong) return -1;
    if (!help) fprintf(stderr, "%s: unexpected; ", wrong);
    fprintf(help ? stdout : stderr, "usage: %s [--nproc N | --world-size N --rank N --host ADDRESS [--port N]] %s\n",
            argv[0], words);
    return help ? 0 : 2;
}

#endif
