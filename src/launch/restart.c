#define _GNU_SOURCE
#include "launch/restart.h"

#include "base/log.h"
#include "base/status.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static sigset_t watched_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGTSTP);
    sigaddset(&set, SIGCHLD);
    return set;
}

static int allowed;
static bool follows_another;

int lki_restarts_allowed(void)
{
    return allowed;
}

bool lki_is_restart(void)
{
    return follows_another;
}

static bool meets_again;

void lki_ask_to_meet_again(void)
{
    meets_again = true;
}

bool lki_is_to_meet_again(void)
{
    return meets_again;
}

/* The work, and how often it has been begun before. */
typedef struct job {
    lki_attempt attempt;
    void *context;
    lki_attempt_place place;
} job;

/* Shared by this process and its attempts; NULL outside lki_run_with_restarts. */
static atomic_bool *work_is_done;
static int trainings_left;

void lki_attempt_expect(int trainings)
{
    trainings_left = trainings;
}

void lki_attempt_has_trained(void)
{
    if (trainings_left > 0 && --trainings_left == 0) lki_attempt_is_done();
}

void lki_attempt_is_done(void)
{
    if (work_is_done) atomic_store(work_is_done, true);
}

static _Noreturn void be_the_attempt(const job *job, pid_t parent, const sigset_t *mask)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(LKI_EXIT_PEER); /* it died before the line above */
    setpgid(0, 0); /* Ctrl-C reaches the waiting process alone, which passes it on once */
    sigprocmask(SIG_SETMASK, mask, NULL);
    follows_another = !job->place.is_first;
    int exit_code = job->attempt(job->context, &job->place);
    fflush(NULL);
    _exit(exit_code); /* what the caller holds is the waiting process's to free */
}

/* Ctrl-Z reaches this process alone as well: it stops after the attempt, whose ranks stop with it, and
 * continues it when it is continued itself. */
static void stop_with(pid_t pid)
{
    kill(pid, SIGTSTP);
    raise(SIGSTOP);
    kill(pid, SIGCONT);
}

/* Waits for the end of the attempt and hands signals on to it; *told says whether one asked it to stop. */
static int wait_for(pid_t pid, const sigset_t *set, bool *told)
{
    int status = 0;
    for (;;) {
        int number = sigwaitinfo(set, NULL);
        if (number == SIGCHLD && waitpid(pid, &status, WNOHANG) == pid) return status;
        if (number == SIGTSTP) stop_with(pid);
        if (number <= 0 || number == SIGCHLD || number == SIGTSTP) continue;
        *told = true;
        kill(pid, number);
    }
}

/* One attempt; *again says whether another one makes sense. */
static lk_status run_once(int *exit_code, const job *job, int rank, const sigset_t *set, const sigset_t *mask,
                          bool *again)
{
    bool told = false;
    pid_t parent = getpid();
    fflush(NULL); /* or the attempt would print what is buffered once more */
    pid_t pid = fork();
    *again = false;
    if (pid < 0) return lki_fail(LK_ERR_NOMEM, "could not fork: %s", strerror(errno));
    if (pid == 0) be_the_attempt(job, parent, mask);
    int status = wait_for(pid, set, &told);
    *exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    *again = !told && (WIFSIGNALED(status) || *exit_code == LKI_EXIT_PEER || *exit_code == LKI_EXIT_AGAIN);
    if (!WIFSIGNALED(status)) return LK_OK;
    if (work_is_done && atomic_load(work_is_done)) {
        lki_log(LKI_LOG_WARNING, "rank %d (process %d) was killed by signal %d (%s) when its work was done",
                rank, (int)pid, WTERMSIG(status), strsignal(WTERMSIG(status)));
        *exit_code = 0;
        *again = false;
        return LK_OK;
    }
    return lki_fail(LK_ERR_PEER, "rank %d (process %d) was killed by signal %d (%s)", rank, (int)pid,
                    WTERMSIG(status), strsignal(WTERMSIG(status)));
}

lk_status lki_run_with_restarts(int *exit_code, lki_attempt attempt, void *context, int max_restarts,
                                int rank)
{
    allowed = max_restarts;
    void *page = mmap(NULL, sizeof *work_is_done, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return lki_fail(LK_ERR_NOMEM, "out of memory for a shared flag");
    work_is_done = page;
    sigset_t set = watched_signals(), mask;
    struct sigaction usual = {.sa_handler = SIG_DFL}, before;
    lk_status status;
    sigaction(SIGCHLD, &usual, &before); /* ignored, it would never come, nor tell how the attempt ended */
    sigprocmask(SIG_BLOCK, &set, &mask);
    for (job job = {attempt, context, {.is_first = true}};;) {
        bool again;
        status = run_once(exit_code, &job, rank, &set, &mask, &again);
        bool counts = *exit_code != LKI_EXIT_AGAIN;
        if (!again || (counts && job.place.restarts == max_restarts)) break;
        job.place = (lki_attempt_place){.is_restart = counts, .restarts = job.place.restarts + counts};
        if (status != LK_OK) lki_log(LKI_LOG_WARNING, "%s", lk_error());
    }
    allowed = 0;
    munmap(work_is_done, sizeof *work_is_done);
    work_is_done = NULL;
    sigprocmask(SIG_SETMASK, &mask, NULL);
    sigaction(SIGCHLD, &before, NULL);
    return status;
}
