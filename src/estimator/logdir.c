/* Clearing an estimator's folder: the logs that its run writes, by their names, and the folders that this
 * leaves empty. A folder in which no estimator has been, which LKI_MODEL_DETAILS shows, is left as it is, and
 * weights are never removed: an estimator writes none here, so they are another run's. Whatever else a person
 * keeps there stays, and links are not followed. */
#include "estimator/estimator.h"

#include "base/memory.h"
#include "base/status.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct pattern {
    const char *folder; /* below logdir; "" for logdir itself */
    const char *file;
} pattern;

static const pattern patterns[] = {
    {"", "hparams.json"},
    {"", "log.txt"},
    {"", LKI_MODEL_DETAILS},
    {"csv_logger", "*.csv"},
    {"tensorboard/train", "events.out.tfevents.*"},
    {"tensorboard/valid", "events.out.tfevents.*"},
    {"tensorboard/_epoch_", "events.out.tfevents.*"},
};

/* The folders above, the deepest first. */
static const char *const folders[] = {"csv_logger", "tensorboard/train", "tensorboard/valid",
                                      "tensorboard/_epoch_", "tensorboard"};

static lk_status remove_matches(const char *folder, const char *file_pattern)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    if (fd < 0) return LK_OK; /* not there, or a link: not ours */
    DIR *entries = fdopendir(fd);
    if (!entries) {
        close(fd);
        return LK_OK;
    }
    lk_status status = LK_OK;
    for (struct dirent *entry; !status && (entry = readdir(entries));) {
        struct stat info;
        if (fnmatch(file_pattern, entry->d_name, FNM_PERIOD) != 0) continue;
        if (fstatat(dirfd(entries), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) || !S_ISREG(info.st_mode))
            continue;
        if (unlinkat(dirfd(entries), entry->d_name, 0) && errno != ENOENT)
            status = lki_fail(LK_ERR_IO, "%s/%s: cannot remove what an earlier run wrote: %s", folder,
                              entry->d_name, strerror(errno));
    }
    closedir(entries);
    return status;
}

/* logdir itself may be a link that the user made, so it is opened with a slash behind it. */
lk_status lki_logdir_wipe(const char *logdir)
{
    LKI_SCOPED char *details = lki_format("%s/%s", logdir, LKI_MODEL_DETAILS);
    if (!details) return LK_ERR_NOMEM;
    if (access(details, F_OK)) return LK_OK;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        LKI_SCOPED char *folder = lki_format("%s/%s", logdir, *patterns[i].folder ? patterns[i].folder : ".");
        if (!folder) return LK_ERR_NOMEM;
        LKI_TRY(remove_matches(folder, patterns[i].file));
    }
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        LKI_SCOPED char *folder = lki_format("%s/%s", logdir, folders[i]);
        if (!folder) return LK_ERR_NOMEM;
        rmdir(folder); /* fails, as it should, where something is left in it */
    }
    return LK_OK;
}
