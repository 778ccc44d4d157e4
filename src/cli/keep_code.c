/* Keeping the sources of a run's own components in LOGDIR/code. */
#define _GNU_SOURCE
#include "cli/expdir.h"

#include "base/atomic_file.h"
#include "base/memory.h"
#include "base/status.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* In LOGDIR/code: the names of the files that a run has copied there, one a line. Only those are ever
 * removed: the folder may be somebody's own. */
#define COPIED ".copied"

/* ---- What is to be copied ---- */

/* The files below the folder by their names in it. Those that are included from elsewhere stay where they
 * are. */
static lk_status names_below(lki_words *names, const char *folder, const lki_words *paths)
{
    char real[PATH_MAX];
    if (!realpath(folder, real)) return lki_fail(LK_ERR_IO, "--expdir: %s: %s", folder, strerror(errno));
    size_t length = strlen(real);
    for (int i = 0; i < paths->count; i++) {
        const char *path = paths->items[i];
        bool is_below = !strncmp(path, real, length) && path[length] == '/';
        if (is_below && !lki_words_have(names, path + length + 1))
            LKI_TRY(lki_words_add(names, path + length + 1));
    }
    return LK_OK;
}

static lk_status find_names(lki_words *names, const char *folder)
{
    lki_words files = {0}, compiler = {0}, included = {0};
    char *include = NULL;
    lk_status status = lki_expdir_files(&files, folder);
    for (int i = 0; i < files.count && !status; i++)
        status = lki_words_add(names, files.items[i] + strlen(folder) + 1);
    if (!status) status = lki_compiler_words(&compiler, &include);
    if (!status) status = lki_find_includes(&included, &files, &compiler);
    if (!status) status = names_below(names, folder, &included);
    lki_free(include);
    lki_words_free(&files);
    lki_words_free(&compiler);
    lki_words_free(&included);
    return status;
}

/* ---- Copying ---- */

/* Removes what an earlier run has copied and this one does not. */
static lk_status remove_old(const char *code, const lki_words *names)
{
    LKI_SCOPED char *list = lki_format("%s/" COPIED, code);
    LKI_SCOPED char *text = NULL;
    size_t nbytes;
    char *rest = NULL;
    if (!list) return LK_ERR_NOMEM;
    if (access(list, R_OK)) return LK_OK;
    LKI_TRY(lki_read_file(&text, &nbytes, list));
    for (char *name = strtok_r(text, "\n", &rest); name; name = strtok_r(NULL, "\n", &rest)) {
        if (strstr(name, "..") || lki_words_have(names, name)) continue;
        LKI_SCOPED char *path = lki_format("%s/%s", code, name);
        if (!path) return LK_ERR_NOMEM;
        if (unlink(path) && errno != ENOENT)
            return lki_fail(LK_ERR_IO, "%s: it could not be removed: %s", path, strerror(errno));
    }
    return LK_OK;
}

static lk_status write_list(const char *code, const lki_words *names)
{
    lki_atomic_file *file;
    LKI_SCOPED char *path = lki_format("%s/" COPIED, code);
    if (!path) return LK_ERR_NOMEM;
    LKI_TRY(lki_atomic_file_open(&file, path));
    lk_status status = LK_OK;
    for (int i = 0; i < names->count && !status; i++)
        status = lki_atomic_file_printf(file, "%s\n", names->items[i]);
    if (!status) return lki_atomic_file_commit(file);
    lki_atomic_file_abort(file);
    return status;
}

static lk_status copy_file(const char *folder, const char *code, const char *name)
{
    LKI_SCOPED char *from = lki_format("%s/%s", folder, name);
    LKI_SCOPED char *to = lki_format("%s/%s", code, name);
    LKI_SCOPED char *within = lki_strdup(to);
    LKI_SCOPED char *data = NULL;
    size_t nbytes;
    if (!from || !within) return LK_ERR_NOMEM;
    *strrchr(within, '/') = 0;
    LKI_TRY(lki_make_folders(within));
    LKI_TRY(lki_read_file(&data, &nbytes, from));
    return lki_write_file_atomic(to, data, nbytes);
}

lk_status lki_expdir_copy(const char *folder, const char *logdir)
{
    lki_words names = {0};
    LKI_SCOPED char *code = lki_format("%s/code", logdir);
    if (!code) return LK_ERR_NOMEM;
    if (lki_is_same_file(folder, code)) return LK_OK;
    lk_status status = find_names(&names, folder);
    if (!status) status = lki_make_folders(code);
    if (!status) status = remove_old(code, &names);
    if (!status) status = write_list(code, &names);
    for (int i = 0; i < names.count && !status; i++) status = copy_file(folder, code, names.items[i]);
    lki_words_free(&names);
    return status;
}
