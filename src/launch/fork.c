#define _GNU_SOURCE
#include "launch/ranks_internal.h"

#include "base/clock.h"
#include "base/library.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/comm.h"
#include "comm/quiet_thread.h"
#include "launch/devices.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DEFAULT_GRACE_MS = 2000, MAX_FORKED = 1024, MAX_SENTENCE = 900 };

static lki_role role_of(const lki_ranks *ranks, const lki_role *base, int index)
{
    lki_role role = *base;
    bool whole_job = base->world_size <= 1;
    role.source = whole_job ? LKI_ROLE_FORKED : base->source;
    role.rank = base->rank + index;
    role.world_size = whole_job ? ranks->count : base->world_size;
    if (whole_job || ranks->count > 1) { /* a single rank of a larger job may have neighbours */
        role.local_rank = index;
        role.local_size = ranks->count;
    }
    role.node_count = base->node_count > 0 ? base->node_count : 1;
    role.fork_count = 1;
    role.shm_fd = ranks->shm_fd;
    role.shm_round = 0;
    return role;
}

/* The first things a forked rank does: tie its life to the caller's, leave the terminal alone, write to the
 * pipe. */
static void settle_child(lki_ranks *ranks, pid_t parent, const int out_pipe[2])
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(LKI_EXIT_PEER); /* it died before the line above */
    setpgid(0, 0);
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (nothing >= 0) dup2(nothing, STDIN_FILENO);
    if (nothing >= 0) close(nothing);
    dup2(out_pipe[1], STDERR_FILENO);
    close(out_pipe[0]);
    close(out_pipe[1]);
    for (int i = 0; i < ranks->count - 1; i++)
        if (ranks->children[i].pid && ranks->children[i].pipe >= 0) close(ranks->children[i].pipe);
    close(ranks->wakeup);
    lki_free(ranks->children);
    ranks->children = NULL;
    ranks->is_child = true;
}

/* Returns in both processes; ranks->is_child tells them apart. */
static lk_status fork_one(lki_ranks *ranks, int index)
{
    lki_child *child = &ranks->children[index - 1];
    int out_pipe[2];
    pid_t parent = getpid();
    if (pipe2(out_pipe, O_CLOEXEC) != 0)
        return lki_fail(LK_ERR_IO, "could not open a pipe for rank %d: %s", index, strerror(errno));
    pid_t pid = fork();
    if (pid < 0) {
        int error = errno;
        close(out_pipe[0]);
        close(out_pipe[1]);
        return lki_fail(LK_ERR_NOMEM, "could not fork rank %d: %s", index, strerror(error));
    }
    if (pid == 0) {
        settle_child(ranks, parent, out_pipe);
        ranks->index = index;
        return LK_OK;
    }
    setpgid(pid, pid); /* both sides do it: whoever is first */
    close(out_pipe[1]);
    fcntl(out_pipe[0], F_SETFL, O_NONBLOCK);
    *child = (lki_child){.pid = pid, .rank = ranks->rank + index, .pipe = out_pipe[0]};
    return LK_OK;
}

static void free_ranks(lki_ranks *ranks)
{
    for (int i = 0; ranks->children && i < ranks->count - 1; i++)
        if (ranks->children[i].pid && ranks->children[i].pipe >= 0) close(ranks->children[i].pipe);
    if (ranks->reports) munmap(ranks->reports, (size_t)ranks->count * sizeof *ranks->reports);
    if (ranks->shm_fd >= 0) close(ranks->shm_fd);
    if (ranks->wakeup >= 0 && !ranks->is_child) close(ranks->wakeup);
    lki_free(ranks->children);
    lki_free(ranks);
}

static void kill_all(lki_ranks *ranks)
{
    for (int i = 0; i < ranks->count - 1; i++) {
        if (!ranks->children[i].pid) continue;
        kill(ranks->children[i].pid, SIGKILL);
        waitpid(ranks->children[i].pid, NULL, 0);
    }
}

static lk_status prepare(lki_ranks *ranks, const lki_role *role, const lki_fork_options *options)
{
    size_t nbytes = (size_t)ranks->count * sizeof *ranks->reports;
    void *memory = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return lki_fail(LK_ERR_NOMEM, "could not share memory with the ranks: %s", strerror(errno));
    ranks->reports = memory;
    ranks->children = LKI_NEW_ARRAY(lki_child, ranks->count);
    if (!ranks->children) return LK_ERR_NOMEM;
    ranks->wakeup = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (ranks->wakeup < 0) return lki_fail(LK_ERR_IO, "could not open an eventfd: %s", strerror(errno));
    if (gethostname(ranks->host, sizeof ranks->host - 1) != 0)
        snprintf(ranks->host, sizeof ranks->host, "this host");
    if (role->world_size <= 1 && ranks->count > 1 && !options->no_memory)
        LKI_TRY(lki_shm_memory_create(&ranks->shm_fd, ranks->count, options->slot_nbytes));
    return LK_OK;
}

/* In the forked ranks, ranks->is_child is set when it returns. */
static lk_status fork_all(lki_ranks *ranks)
{
    fflush(NULL); /* or each rank would print what is buffered once more */
    if (ranks->count > 1) lki_library_end_threads();
    for (int index = 1; index < ranks->count; index++) {
        LKI_TRY(fork_one(ranks, index));
        if (ranks->is_child) return LK_OK;
    }
    if (ranks->count == 1) return LK_OK;
    LKI_TRY(lki_quiet_thread_start(&ranks->supervisor, lki_supervise, ranks, "the supervisor of the ranks"));
    ranks->supervised = true;
    lki_stop_together_begin(ranks);
    return LK_OK;
}

/* Those of this process, for who waits in the middle of connecting and has not been handed them. */
static lki_ranks *_Atomic forked;

lk_status lki_fork_ranks(lki_ranks **out, const lki_role *role, int nproc, const lki_fork_options *options)
{
    static const lki_fork_options none;
    *out = NULL;
    if (!options) options = &none;
    if (nproc < 1 || nproc > MAX_FORKED)
        return lki_fail(LK_ERR_CONFIG, "--nproc: expected a number from 1 to %d, found %d", MAX_FORKED,
                        nproc);
    lki_ranks *ranks = LKI_NEW(lki_ranks);
    if (!ranks) return LK_ERR_NOMEM;
    ranks->rank = role->rank;
    ranks->count = nproc;
    ranks->shm_fd = ranks->wakeup = -1;
    ranks->grace_ms = options->grace_ms ? options->grace_ms : DEFAULT_GRACE_MS;
    ranks->before = *lki_process_role();
    lk_status status = prepare(ranks, role, options);
    if (status == LK_OK) status = fork_all(ranks);
    if (status != LK_OK) {
        if (ranks->children) kill_all(ranks);
        free_ranks(ranks);
        return status;
    }
    lki_role mine = role_of(ranks, role, ranks->index);
    lki_process_role_set(&mine);
    if (!options->no_pinning) lki_pin_rank(ranks->index, nproc);
    atomic_store(&forked, ranks->is_child ? NULL : ranks);
    *out = ranks;
    return LK_OK;
}

bool lki_forked_rank_failed(void)
{
    const lki_ranks *ranks = atomic_load(&forked);
    return ranks && lki_ranks_failed(ranks);
}

bool lki_ranks_failed(const lki_ranks *ranks)
{
    return !ranks->is_child && atomic_load(&ranks->failed);
}

static _Noreturn void end_child(lki_ranks *ranks, lk_status status)
{
    lki_rank_report *report = &ranks->reports[ranks->index];
    report->status = (int)status;
    report->time_ns = lki_now_ns();
    if (status != LK_OK) snprintf(report->text, sizeof report->text, "%s", lk_error());
    atomic_store(&report->done, 1);
    fflush(NULL);
    _exit(status == LK_OK ? 0 : status == LK_ERR_PEER ? LKI_EXIT_PEER : EXIT_FAILURE);
}

/* The child whose failure came first: causes before consequences. NULL where all ended well. */
static const lki_child *first_failure(const lki_ranks *ranks, char *text, size_t capacity, bool *primary,
                                      int64_t *when_ns)
{
    const lki_child *first = NULL;
    char candidate[MAX_SENTENCE];
    for (int i = 0; i < ranks->count - 1; i++) {
        const lki_child *child = &ranks->children[i];
        const lki_rank_report *report = &ranks->reports[i + 1];
        bool is_cause;
        if (!child->pid || !lki_describe_end(ranks, child, candidate, sizeof candidate, &is_cause)) continue;
        int64_t time_ns = atomic_load(&report->done) ? report->time_ns : child->end_ns;
        if (first && (*primary > is_cause || (*primary == is_cause && *when_ns <= time_ns))) continue;
        first = child;
        *primary = is_cause;
        *when_ns = time_ns;
        snprintf(text, capacity, "%s", candidate);
    }
    return first;
}

/* The job's one sentence, from how this rank and the others ended. */
static lk_status conclude(lki_ranks *ranks, lk_status status, int64_t own_end_ns)
{
    char text[MAX_SENTENCE];
    bool primary = false;
    int64_t when_ns = 0;
    const lki_child *child = first_failure(ranks, text, sizeof text, &primary, &when_ns);
    if (!child) return status;
    const lki_rank_report *report = &ranks->reports[child->rank - ranks->rank];
    bool stopped_together =
        status == LK_ERR_STOPPED && atomic_load(&report->done) && report->status == LK_ERR_STOPPED;
    bool own_is_cause = status != LK_OK && status != LK_ERR_PEER && (!primary || own_end_ns <= when_ns);
    if (stopped_together || own_is_cause || (status != LK_OK && !primary))
        return status; /* its sentence is still there */
    return lki_fail(atomic_load(&report->done) ? (lk_status)report->status : LK_ERR_PEER, "%s", text);
}

lk_status lki_ranks_finish(lki_ranks *ranks, lk_status status)
{
    if (ranks->is_child) end_child(ranks, status);
    int64_t own_end_ns = lki_now_ns();
    uint64_t one = 1;
    atomic_store(&ranks->caller, status == LK_OK ? 1 : 2);
    if (ranks->supervised) {
        lki_ranks_mark_ended(ranks, 0);
        ssize_t ignored = write(ranks->wakeup, &one, sizeof one);
        (void)ignored;
        pthread_join(ranks->supervisor, NULL);
        lki_stop_together_end(ranks);
        status = conclude(ranks, status, own_end_ns);
    }
    atomic_store(&forked, NULL);
    lki_unpin_rank();
    lki_process_role_set(&ranks->before);
    free_ranks(ranks);
    return status;
}
