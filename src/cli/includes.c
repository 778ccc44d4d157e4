/* What C sources include, found by reading them: no compiler is needed to know whether an object that was
 * compiled elsewhere is still theirs. */
#define _GNU_SOURCE
#include "cli/expdir.h"

#include "base/atomic_file.h"
#include "base/memory.h"
#include "base/status.h"

#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The folders of the compiler's -I, in their order. */
static lk_status find_folders(lki_words *folders, const lki_words *compiler)
{
    for (int i = 0; i < compiler->count; i++) {
        const char *word = compiler->items[i];
        if (strncmp(word, "-I", 2) != 0) continue;
        const char *folder = word[2] ? word + 2 : compiler->items[i + 1];
        if (folder) LKI_TRY(lki_words_add(folders, folder));
    }
    return LK_OK;
}

/* Adds FOLDER/NAME if it is a file. Its folder's real path makes a/../a/x.h and a/x.h one, while a link to a
 * file is where it stands, as it is for the compiler. */
static lk_status add_file(lki_words *included, const char *folder, const char *name, bool *found)
{
    struct stat info;
    char real[PATH_MAX];
    LKI_SCOPED char *path = lki_format("%s/%s", folder, name);
    if (!path) return LK_ERR_NOMEM;
    *found = stat(path, &info) == 0 && S_ISREG(info.st_mode);
    if (!*found) return LK_OK;
    char *slash = strrchr(path, '/');
    *slash = 0;
    if (!realpath(*path ? path : "/", real)) return LK_OK;
    LKI_SCOPED char *known = lki_format("%s/%s", real, slash + 1);
    if (!known) return LK_ERR_NOMEM;
    return lki_words_have(included, known) ? LK_OK : lki_words_add(included, known);
}

static lk_status add_named(lki_words *included, const char *file, const char *name, bool quoted,
                           const lki_words *folders)
{
    bool found = false;
    const char *slash = strrchr(file, '/');
    LKI_SCOPED char *beside = slash ? lki_strndup(file, (size_t)(slash - file)) : lki_strdup(".");
    if (!beside) return LK_ERR_NOMEM;
    if (quoted || *name == '/') LKI_TRY(add_file(included, *name == '/' ? "" : beside, name, &found));
    for (int i = 0; i < folders->count && !found; i++)
        LKI_TRY(add_file(included, folders->items[i], name, &found));
    return LK_OK;
}

static const char *skip_blanks(const char *at)
{
    return at + strspn(at, " \t");
}

/* `# include "name"` or <name>: where the name begins and its length; NULL where the line is another. */
static const char *included_name(const char *line, size_t *length)
{
    line = skip_blanks(line);
    if (*line != '#') return NULL;
    line = skip_blanks(line + 1);
    if (strncmp(line, "include", 7) != 0) return NULL;
    line = skip_blanks(line + 7);
    if (*line != '"' && *line != '<') return NULL;
    *length = strcspn(line + 1, *line == '"' ? "\"\n" : ">\n");
    return line + 1;
}

static lk_status add_of_file(lki_words *included, const char *file, const lki_words *folders)
{
    LKI_SCOPED char *text = NULL;
    size_t nbytes, length;
    LKI_TRY(lki_read_file(&text, &nbytes, file));
    for (const char *line = text; line; line = strchr(line, '\n')) {
        if (*line == '\n') line++;
        const char *at = included_name(line, &length);
        if (!at) continue;
        LKI_SCOPED char *name = lki_strndup(at, length);
        if (!name) return LK_ERR_NOMEM;
        LKI_TRY(add_named(included, file, name, at[-1] == '"', folders));
    }
    return LK_OK;
}

lk_status lki_find_includes(lki_words *included, const lki_words *files, const lki_words *compiler)
{
    lki_words folders = {0};
    lk_status status = find_folders(&folders, compiler);
    for (int i = 0; i < files->count && !status; i++)
        status = add_of_file(included, files->items[i], &folders);
    for (int i = 0; i < included->count && !status; i++) /* the list grows under way */
        status = add_of_file(included, included->items[i], &folders);
    lki_words_free(&folders);
    return status;
}
