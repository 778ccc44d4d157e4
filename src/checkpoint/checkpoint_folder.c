#include "checkpoint/checkpoint_folder.h"

#include "base/memory.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ".model.0002.safetensors.7633.tmp" of a process that is gone. */
static bool is_orphan(const char *name)
{
    size_t length = strlen(name);
    if (name[0] != '.' || length < 6 || strcmp(name + length - 4, ".tmp") != 0) return false;
    size_t start = length - 4;
    while (start > 0 && name[start - 1] >= '0' && name[start - 1] <= '9') start--;
    long process = strtol(name + start, NULL, 10);
    return start > 1 && name[start - 1] == '.' && process > 0 && kill((pid_t)process, 0) != 0 &&
           errno == ESRCH;
}

static bool is_checkpoint(const char *name)
{
    const char *tail = strrchr(name, '.');
    return name[0] != '.' && tail && strcmp(tail, ".safetensors") == 0;
}

bool lki_has_checkpoints(const char *folder)
{
    DIR *directory = opendir(folder);
    bool found = false;
    for (struct dirent *entry; directory && !found && (entry = readdir(directory));)
        found = is_checkpoint(entry->d_name);
    if (directory) closedir(directory);
    return found;
}

static bool is_of_a_run(const char *name)
{
    bool named = strncmp(name, "model.", 6) == 0 || strncmp(name, "runner.", 7) == 0;
    return (named && is_checkpoint(name)) || strcmp(name, "model.storage.json") == 0;
}

void lki_remove_checkpoints(const char *folder)
{
    DIR *directory = opendir(folder);
    if (!directory) return;
    for (struct dirent *entry; (entry = readdir(directory));)
        if (is_of_a_run(entry->d_name)) unlinkat(dirfd(directory), entry->d_name, 0);
    closedir(directory);
}

void lki_sweep_temporaries(const char *folder)
{
    DIR *directory = opendir(folder);
    if (!directory) return;
    for (struct dirent *entry; (entry = readdir(directory));) {
        LKI_SCOPED char *path = is_orphan(entry->d_name) ? lki_format("%s/%s", folder, entry->d_name) : NULL;
        if (path) unlink(path);
    }
    closedir(directory);
}
