#include "board/run_state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SILENT_AFTER_S = 300, CLOCKS_DIFFER_S = 2 };

typedef struct owner {
    long pid;
    char host[256];
    int64_t since; /* when the lock was taken */
    ino_t inode;   /* of the lock */
} owner;

/* "process 1234 on host", as src/run/run_logdir.c writes it. */
static bool read_lock(const char *logdir, owner *out)
{
    char path[4096], text[300] = "";
    struct stat info;
    if (snprintf(path, sizeof path, "%s/.lock", logdir) >= (int)sizeof path) return false;
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return false;
    bool is_read = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && read(fd, text, sizeof text - 1) >= 0;
    close(fd);
    if (!is_read) return false;
    *out = (owner){.since = info.st_mtim.tv_sec, .inode = info.st_ino};
    if (sscanf(text, "process %ld on %255s", &out->pid, out->host) != 2) out->host[0] = 0;
    return true;
}

/* When a process started, in seconds since the epoch; 0 if there is none, or it has only its parent to tell
 * that it has ended. */
static int64_t start_of(long pid)
{
    char path[64], text[1024];
    struct timespec now, up;
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = 0;
    char state;
    unsigned long long ticks;
    const char *rest = strrchr(text, ')'); /* the name before it may hold anything */
    if (!rest ||
        sscanf(rest + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
               &state, &ticks) != 2)
        return 0;
    if (state == 'Z' || state == 'X') return 0;
    clock_gettime(CLOCK_REALTIME, &now);
    clock_gettime(CLOCK_BOOTTIME, &up);
    return now.tv_sec - up.tv_sec + (int64_t)(ticks / (unsigned long long)sysconf(_SC_CLK_TCK));
}

/* Whether the kernel says that the process has the lock: "1: FLOCK ADVISORY WRITE 1234 fe:00:5678 0 EOF". The
 * device is not compared, because on some file systems it is not the one that stat gives. */
static bool has_lock(const owner *owner)
{
    char line[256];
    bool found = false;
    FILE *file = fopen("/proc/locks", "r");
    if (!file) return false;
    while (!found && fgets(line, sizeof line, file)) {
        long pid;
        unsigned long long inode;
        found = sscanf(line, "%*s %*s %*s %*s %ld %*x:%*x:%llu", &pid, &inode) == 2 && pid == owner->pid &&
                inode == (unsigned long long)owner->inode;
    }
    fclose(file);
    return found;
}

/* A process that started after the lock was taken only has the number of the one that took it. That holds if
 * both times are of one clock, which was not set since; a file server has its own. */
static bool is_alive(const owner *owner)
{
    int64_t start = start_of(owner->pid);
    return start > 0 && (start <= owner->since + CLOCKS_DIFFER_S || has_lock(owner));
}

lki_run_state lki_board_run_state(const char *logdir, int64_t epochs, int64_t num_epochs, int64_t updated)
{
    owner owner;
    char host[256] = "";
    if (!read_lock(logdir, &owner)) {
        if (num_epochs <= 0) return LKI_RUN_ENDED;
        return epochs >= num_epochs ? LKI_RUN_FINISHED : LKI_RUN_STOPPED;
    }
    gethostname(host, sizeof host - 1);
    if (!strcmp(host, owner.host)) return is_alive(&owner) ? LKI_RUN_RUNNING : LKI_RUN_DIED;
    if (updated < owner.since) updated = owner.since;
    return time(NULL) - updated > SILENT_AFTER_S ? LKI_RUN_SILENT : LKI_RUN_RUNNING;
}

const char *lki_board_run_state_name(lki_run_state state)
{
    static const char *const names[] = {"running", "died", "silent", "finished", "stopped", "ended"};
    return names[state];
}
