#include "checkpoint/older_runners.h"

#include "base/atomic_file.h"
#include "base/memory.h"
#include "base/status.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HEAD "runner.last."
#define TAIL "safetensors"

static char *path_of(const char *folder, int age)
{
    return age ? lki_format("%s/" HEAD "%d." TAIL, folder, age) : lki_format("%s/" HEAD TAIL, folder);
}

/* 0 of "runner.last.safetensors", 3 of "runner.last.3.safetensors"; -1 of other names. */
static int age_of(const char *name)
{
    char *end;
    if (strncmp(name, HEAD, strlen(HEAD)) != 0) return -1;
    name += strlen(HEAD);
    if (strcmp(name, TAIL) == 0) return 0;
    long age = *name >= '1' && *name <= '9' ? strtol(name, &end, 10) : 0;
    return age > 0 && age < 1000000 && strcmp(end, "." TAIL) == 0 ? (int)age : -1;
}

/* A link, so that the newer name stays until its file is replaced; a rename on file systems without links. */
static lk_status give_older_name(const char *newer, const char *older)
{
    if (access(newer, F_OK) != 0) return LK_OK;
    if (unlink(older) != 0 && errno != ENOENT)
        return lki_fail(LK_ERR_IO, "%s: could not remove: %s", older, strerror(errno));
    if (link(newer, older) == 0 || rename(newer, older) == 0) return LK_OK;
    return lki_fail(LK_ERR_IO, "%s: could not keep as %s: %s", newer, older, strerror(errno));
}

lk_status lki_age_runners(const char *folder, int count)
{
    for (int age = count - 1; age > 0; age--) {
        LKI_SCOPED char *newer = path_of(folder, age - 1);
        LKI_SCOPED char *older = path_of(folder, age);
        if (!newer || !older) return LK_ERR_NOMEM;
        LKI_TRY(give_older_name(newer, older));
    }
    return LK_OK;
}

char *lki_older_runner(const char *path)
{
    const char *slash = strrchr(path, '/');
    int age = age_of(slash ? slash + 1 : path);
    if (age < 0) return NULL;
    LKI_SCOPED char *folder = slash ? lki_strndup(path, (size_t)(slash - path)) : lki_strdup(".");
    return folder ? path_of(folder, age + 1) : NULL;
}

void lki_put_damaged_aside(const char *folder, const char *path)
{
    const char *slash = strrchr(path, '/');
    LKI_SCOPED char *own = lki_format("%s/%s", folder, slash ? slash + 1 : path);
    LKI_SCOPED char *aside = lki_format("%s.damaged", path);
    if (!own || !aside || !lki_is_same_file(own, path)) return;
    if (rename(path, aside) != 0) return; /* the next save replaces it all the same */
}
