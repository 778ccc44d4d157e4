/* Runs the real command as a process and keeps what it said. */
#ifndef TESTS_CLI_COMMAND_H
#define TESTS_CLI_COMMAND_H

#include "lktest.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct said {
    int exit_code; /* 128 + signal where it was killed */
    char out[262144], err[16384];
} said;

/* For a command that is built with a leak checker and draws: fonts stay loaded until it ends. */
static inline void pass_over_fonts(void)
{
    setenv("LSAN_OPTIONS", "print_suppressions=0:suppressions=" LK_SOURCE_DIR "/tests/support/lsan.supp", 1);
}

static inline void read_whole(const char *path, char *text, size_t capacity)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, capacity - 1, file)] = 0;
    fclose(file);
}

/* `lockstep <arguments>` through the shell, in the folder `where` (NULL: here). The result is static. */
static inline const said *lockstep_in(const char *where, const char *arguments)
{
    static said result;
    static int serial;
    char command[8192], out[1100], err[1100];
    snprintf(out, sizeof out, "%s/tests/cli-%d-%d.out", LK_BUILD_DIR, (int)getpid(), serial);
    snprintf(err, sizeof err, "%s/tests/cli-%d-%d.err", LK_BUILD_DIR, (int)getpid(), serial++);
    snprintf(command, sizeof command, "cd '%s' && '%s/lockstep' %s >'%s' 2>'%s'", where ? where : ".",
             LK_BUILD_DIR, arguments, out, err);
    int status = system(command);
    result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    read_whole(out, result.out, sizeof result.out);
    read_whole(err, result.err, sizeof result.err);
    remove(out);
    remove(err);
    return &result;
}

static inline const said *lockstep(const char *arguments)
{
    return lockstep_in(NULL, arguments);
}

/* The command must end with this code; its one line of complaint must contain the fragment. */
static inline void check_refused(const char *where, const char *arguments, int exit_code,
                                 const char *fragment)
{
    const said *r = lockstep_in(where, arguments);
    if (r->exit_code != exit_code) fail_msg("lockstep %s: exit code %d\n%s", arguments, r->exit_code, r->err);
    lkt_contains(r->err, fragment);
    const char *newline = strchr(r->err, '\n');
    if (!newline || newline[1]) fail_msg("lockstep %s: not one line:\n%s", arguments, r->err);
}

#endif
