/* The compiler of components: which one, with which flags, and running it. */
#define _GNU_SOURCE
#include "cli/expdir.h"

#include "base/memory.h"
#include "base/status.h"

#include <lockstep/version.h>

#include <errno.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* ---- Words ---- */

static lk_status add_some(lki_words *words, const char *text, size_t length)
{
    size_t nbytes = sizeof *words->items * (size_t)(words->count + 2);
    char **grown = lki_realloc(words->items, nbytes, "a command line");
    if (!grown) return LK_ERR_NOMEM;
    words->items = grown;
    grown[words->count] = lki_strndup(text, length);
    if (!grown[words->count]) return LK_ERR_NOMEM;
    grown[++words->count] = NULL;
    return LK_OK;
}

lk_status lki_words_add(lki_words *words, const char *text)
{
    return text ? add_some(words, text, strlen(text)) : LK_ERR_NOMEM;
}

lk_status lki_words_split(lki_words *words, const char *text)
{
    static const char blanks[] = " \t\n";
    for (const char *at = text; at && *(at += strspn(at, blanks)); at += strcspn(at, blanks))
        LKI_TRY(add_some(words, at, strcspn(at, blanks)));
    return LK_OK;
}

bool lki_words_have(const lki_words *words, const char *text)
{
    for (int i = 0; i < words->count; i++)
        if (!strcmp(words->items[i], text)) return true;
    return false;
}

void lki_words_free(lki_words *words)
{
    for (int i = 0; i < words->count; i++) lki_free(words->items[i]);
    lki_free(words->items);
    *words = (lki_words){0};
}

/* ---- Where the headers are ---- */

static bool has_header(const char *include)
{
    LKI_SCOPED char *path = lki_format("%s/lockstep/lockstep.h", include);
    return path && access(path, R_OK) == 0;
}

/* PREFIX/bin/lockstep and BUILD/lockstep both have them beside their folder. */
static char *include_beside_the_command(void)
{
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length <= 0) return NULL;
    path[length] = 0;
    *strrchr(path, '/') = 0;
    char *slash = strrchr(path, '/');
    if (slash) *slash = 0;
    char *include = lki_format("%s/include", path);
    if (include && has_header(include)) return include;
    lki_free(include);
    return NULL;
}

/* Headers of another version would describe other structs: they are not taken. */
static char *include_of_pkg_config(void)
{
    char path[4096] = "";
    LKI_SCOPED char *command = lki_format("pkg-config --exists 'lockstep = %s' 2>/dev/null && "
                                          "pkg-config --variable=includedir lockstep 2>/dev/null",
                                          lk_version());
    FILE *pipe = command ? popen(command, "r") : NULL;
    if (!pipe) return NULL;
    bool got = fgets(path, sizeof path, pipe) != NULL;
    got = pclose(pipe) == 0 && got;
    path[strcspn(path, "\n")] = 0;
    return got && has_header(path) ? lki_strdup(path) : NULL;
}

static lk_status find_include(char **out)
{
    *out = include_beside_the_command();
    if (!*out) *out = include_of_pkg_config();
    if (*out) return LK_OK;
    return lki_fail(LK_ERR_IO,
                    "the headers of lockstep %s are neither beside the command nor known to pkg-config: set "
                    "PKG_CONFIG_PATH",
                    lk_version());
}

/* ---- The compiler ---- */

lk_status lki_compiler_words(lki_words *out, char **include)
{
    static const char flags[] = "-std=gnu11 -O2 -g -fPIC -shared -fvisibility=hidden -Wall -Wextra";
    const char *compiler = getenv("CC");
    LKI_TRY(find_include(include));
    LKI_SCOPED char *option = lki_format("-I%s", *include);
    LKI_TRY(lki_words_split(out, compiler && compiler[strspn(compiler, " \t")] ? compiler : "cc"));
    LKI_TRY(lki_words_split(out, flags));
    LKI_TRY(lki_words_add(out, option));
    return lki_words_split(out, getenv("CFLAGS"));
}

static lk_status spawn(const lki_words *words, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    int error = posix_spawn_file_actions_init(&actions);
    if (!error) {
        /* What it says belongs among the messages: a run's stdout may be read by a program. */
        error = posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
        if (!error) error = posix_spawnp(pid, words->items[0], &actions, NULL, words->items, environ);
        posix_spawn_file_actions_destroy(&actions);
    }
    if (!error) return LK_OK;
    bool is_named_wrong = error == ENOENT || error == EACCES;
    return lki_fail(is_named_wrong ? LK_ERR_CONFIG : LK_ERR_IO,
                    "the compiler \"%s\" cannot be run: %s; CC names another", words->items[0],
                    strerror(error));
}

lk_status lki_run_command(const lki_words *words, const char *what)
{
    pid_t pid;
    int ended;
    fflush(NULL);
    LKI_TRY(spawn(words, &pid));
    while (waitpid(pid, &ended, 0) < 0)
        if (errno != EINTR) return lki_fail(LK_ERR_IO, "%s: %s", words->items[0], strerror(errno));
    if (WIFEXITED(ended) && WEXITSTATUS(ended) == 0) return LK_OK;
    if (WIFSIGNALED(ended))
        return lki_fail(LK_ERR_IO, "%s: %s was ended by signal %d", what, words->items[0], WTERMSIG(ended));
    return lki_fail(LK_ERR_CONFIG, "%s: %s failed with exit code %d", what, words->items[0],
                    WEXITSTATUS(ended));
}
