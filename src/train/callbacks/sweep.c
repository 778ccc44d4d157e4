/* What a run that was killed in the middle of a write has left in the checkpoints' folder. */
#include "base/memory.h"
#include "train/callbacks/callbacks.h"

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
