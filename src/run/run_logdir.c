/* The logdir as a thing that a run has for itself: nobody else writes there meanwhile, and what an earlier
 * run left there is set aside.
 *
 * The lock is flock's on LOGDIR/.lock, which the kernel gives back when its process dies. Rank 0 takes it
 * after the ranks were forked, since it alone writes. Linux passes flock on to an NFS server; when the file
 * system has no locks at all, the run goes on and says so. */
#define _GNU_SOURCE
#include "run/run_logdir.h"

#include "base/atomic_file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/checkpoint_folder.h"
#include "run/run.h"
#include "run/run_header.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- The lock ---- */

static lk_status refuse(const char *logdir, int fd)
{
    char owner[300] = "another process";
    ssize_t length = pread(fd, owner, sizeof owner - 1, 0);
    if (length > 0) owner[length] = 0;
    close(fd);
    return lki_fail(LK_ERR_INVALID, "logdir %s: %s is writing there: wait for it, or choose another logdir",
                    logdir, owner);
}

static void write_owner(int fd)
{
    char owner[300], host[256] = "this host";
    gethostname(host, sizeof host - 1);
    int length = snprintf(owner, sizeof owner, "process %ld on %s", (long)getpid(), host);
    /* Only a message would be the poorer for it. */
    if (ftruncate(fd, 0) || pwrite(fd, owner, (size_t)length, 0) < 0) return;
}

/* Whoever had the lock before has removed its file: a lock on that is none. */
static bool is_still_there(int fd, const char *path)
{
    struct stat held, there;
    return fstat(fd, &held) == 0 && stat(path, &there) == 0 && held.st_ino == there.st_ino &&
           held.st_dev == there.st_dev;
}

static lk_status take(const char *logdir, const char *path, int *out)
{
    for (;;) {
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (fd < 0) return lki_fail(LK_ERR_IO, "%s: could not open: %s", path, strerror(errno));
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
            if (is_still_there(fd, path)) {
                *out = fd;
                write_owner(fd);
                return LK_OK;
            }
        } else if (errno == EWOULDBLOCK) {
            return refuse(logdir, fd);
        } else if (errno != EINTR) {
            lki_log(LKI_LOG_WARNING, "%s: could not lock: %s: nothing keeps another run from writing there",
                    path, strerror(errno));
            close(fd);
            unlink(path);
            return LK_OK;
        }
        close(fd);
    }
}

lk_status lki_logdir_lock(const char *logdir, int *lock)
{
    LKI_TRY(lki_make_folders(logdir));
    LKI_SCOPED char *path = lki_format("%s/.lock", logdir);
    return path ? take(logdir, path, lock) : LK_ERR_NOMEM;
}

void lki_logdir_unlock(const char *logdir, int *lock)
{
    if (*lock < 0) return;
    LKI_SCOPED char *path = lki_format("%s/.lock", logdir);
    if (path) unlink(path); /* before it is given back: the next one may have it at once */
    close(*lock);
    *lock = -1;
}

/* ---- What an earlier run has left ---- */

static const char *const names[] = {"log.txt",      "config.yml",  "hparams.json", "checkpoints",
                                    "csv_logger",   "tensorboard", "trace.json",   "profile.txt",
                                    "system.jsonl", "model.json"};
enum { NAME_COUNT = sizeof names / sizeof *names };

static bool has_run_before(const char *logdir)
{
    LKI_SCOPED char *log = lki_format("%s/log.txt", logdir);
    LKI_SCOPED char *checkpoints = lki_format("%s/checkpoints", logdir);
    return (log && access(log, F_OK) == 0) || (checkpoints && lki_has_checkpoints(checkpoints));
}

/* "logs" of "logs/"; the whole path when the last name says nothing (".", ".."). */
static char *plain_name(const char *logdir)
{
    char whole[PATH_MAX];
    size_t length = strlen(logdir);
    while (length > 1 && logdir[length - 1] == '/') length--;
    size_t start = length;
    while (start > 0 && logdir[start - 1] != '/') start--;
    bool says_nothing = length - start <= 2 && strspn(logdir + start, ".") >= length - start;
    if (says_nothing && realpath(logdir, whole)) return lki_strdup(whole);
    return lki_strndup(logdir, length);
}

/* The first of LOGDIR.1, LOGDIR.2, … that is free, made. */
static lk_status make_folder(const char *logdir, char **out)
{
    LKI_SCOPED char *name = plain_name(logdir);
    *out = NULL;
    for (int number = 1; name; number++) {
        char *path = lki_format("%s.%d", name, number);
        if (!path) return LK_ERR_NOMEM;
        if (mkdir(path, 0777) == 0) {
            *out = path;
            return LK_OK;
        }
        int why = errno;
        if (why != EEXIST) lki_fail(LK_ERR_IO, "%s: could not make the folder: %s", path, strerror(why));
        lki_free(path);
        if (why != EEXIST) return lki_last_status();
    }
    return LK_ERR_NOMEM;
}

/* A folder is made again, empty: loggers that were given to the run have made theirs already. */
static lk_status move(const char *logdir, const char *aside, const char *name)
{
    struct stat info;
    LKI_SCOPED char *from = lki_format("%s/%s", logdir, name);
    LKI_SCOPED char *to = lki_format("%s/%s", aside, name);
    if (!from || !to) return LK_ERR_NOMEM;
    if (stat(from, &info) != 0) return LK_OK;
    if (rename(from, to) != 0)
        return lki_fail(LK_ERR_IO, "%s: could not move to %s: %s: set overwrite, or choose another logdir",
                        from, to, strerror(errno));
    return S_ISDIR(info.st_mode) ? lki_make_folders(from) : LK_OK;
}

lk_status lki_logdir_set_aside(lk_runner *runner, const char *logdir)
{
    lki_run *run = runner->run;
    const lk_train_options *options = &run->given.options;
    bool goes_on =
        run->resuming.took_state || run->given.resume || options->autoresume || runner->epoch_step > 0;
    if (goes_on || options->overwrite || !has_run_before(logdir)) return LK_OK;
    LKI_SCOPED char *aside = NULL;
    LKI_TRY(make_folder(logdir, &aside));
    for (int i = 0; i < NAME_COUNT; i++) LKI_TRY(move(logdir, aside, names[i]));
    lki_log(LKI_LOG_INFO, "logdir %s: the earlier run's files are now in %s", logdir, aside);
    return lki_header_note(&run->reporting.notes, "logdir %s: the earlier run's files are now in %s", logdir,
                           aside);
}
