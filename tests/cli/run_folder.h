/* Runs in a scratch folder of their own, and what they leave there. */
#ifndef TESTS_CLI_RUN_FOLDER_H
#define TESTS_CLI_RUN_FOLDER_H

#include "command.h"

#include <lockstep/checkpoint.h>

#define EXAMPLES LK_SOURCE_DIR "/tests/config/examples"

static char folder[1024];

static inline void enter(const char *name)
{
    snprintf(folder, sizeof folder, "%s", lkt_scratch_folder(name));
}

static inline void check_done(const char *arguments)
{
    const said *r = lockstep_in(folder, arguments);
    if (r->exit_code) fail_msg("lockstep %s: exit code %d\n%s", arguments, r->exit_code, r->err);
}

static inline const char *path_of(const char *name)
{
    static char path[2][1300];
    static int turn;
    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static inline void write_text(const char *name, const char *text)
{
    FILE *file = fopen(path_of(name), "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static inline bool exists(const char *name)
{
    return access(path_of(name), F_OK) == 0;
}

/* The value of a column in the row of an epoch (from 1) of a CSV log. */
static inline double logged(const char *name, const char *column, int epoch)
{
    static char text[65536];
    char *rest = NULL, *word = NULL;
    int wanted = -1, at = 0;
    read_whole(path_of(name), text, sizeof text);
    char *line = strtok_r(text, "\n", &rest);
    for (char *cell = strtok_r(line, ",", &word); cell; cell = strtok_r(NULL, ",", &word), at++)
        if (!strcmp(cell, column)) wanted = at;
    if (wanted < 0) fail_msg("%s has no column %s", name, column);
    for (int row = 0; row < epoch && line; row++) line = strtok_r(NULL, "\n", &rest);
    if (!line) fail_msg("%s has no row %d", name, epoch);
    char *cell = strtok_r(line, ",", &word);
    for (at = 0; at < wanted; at++) cell = strtok_r(NULL, ",", &word);
    return strtod(cell, NULL);
}

static inline const char *hash_of(const char *name)
{
    static char hash[2][LK_HASH_LENGTH + 1];
    static int turn;
    turn = !turn;
    lk_state_dict *dict = lk_load_safetensors(path_of(name));
    lkt_not_null(dict);
    lkt_ok(lk_weights_hash(dict, hash[turn]));
    lk_state_dict_free(dict);
    return hash[turn];
}

#define LAST(logdir) logdir "/checkpoints/model.last.safetensors"

#endif
