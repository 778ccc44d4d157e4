/* The process of a trial: a fork of the study, which becomes a run. */
#define _GNU_SOURCE
#include "cli/tune.h"

#include "base/memory.h"
#include "base/status.h"
#include "base/threads.h"
#include "config/run_config.h"
#include "run/study_link.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* Its words go to LOGDIR/trial_0007.log, behind those of an earlier attempt. */
static lk_status redirect(const lki_tuning *tuning, const lki_trial *trial)
{
    LKI_SCOPED char *logdir = lki_tune_logdir_of(tuning, trial);
    LKI_SCOPED char *path = logdir ? lki_format("%s.log", logdir) : NULL;
    if (!path) return LK_ERR_NOMEM;
    int log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (log < 0) return lki_fail(LK_ERR_IO, "%s: could not open: %s", path, strerror(errno));
    if (nothing >= 0) dup2(nothing, STDIN_FILENO);
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    return LK_OK;
}

/* The index-th of as many equal shares of the cores as there are jobs. A share has at least one core, and all
 * have the same number of them: results may depend on it. */
static void take_cores(int index, int jobs)
{
    cpu_set_t all, mine;
    if (jobs == 1 || sched_getaffinity(0, sizeof all, &all) != 0) return;
    int count = CPU_COUNT(&all), share = count / jobs > 0 ? count / jobs : 1, at = 0;
    int begin = index * share % count;
    CPU_ZERO(&mine);
    for (int core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET(core, &all)) continue;
        if (at >= begin && at < begin + share) CPU_SET(core, &mine);
        at++;
    }
    sched_setaffinity(0, sizeof mine, &mine);
    lki_share_cores(jobs);
}

static lk_status run_trial(const lki_tuning *tuning, const lki_trial *trial)
{
    lki_plan plan = {0};
    LKI_TRY(redirect(tuning, trial));
    LKI_TRY(lki_tune_become_trial(tuning, trial));
    lk_status status = lki_config_build(tuning->config, &plan);
    if (!status) status = lki_keep_code(tuning->config, tuning->options->config.expdir);
    plan.show = LK_SHOW_EPOCHS;
    if (!status) status = lki_config_call(tuning->config, &plan);
    lki_error first = {0};
    lki_error_keep(&first, status);
    lki_plan_fini(&plan);
    return lki_error_restore(&first);
}

/* Ranks that the run forks end inside of it: only rank 0 comes back. */
static _Noreturn void be_trial(const lki_tuning *tuning, int index, const lki_trial *trial, int line)
{
    const char *logdir = lki_tune_logdir_of(tuning, trial); /* for the life of the process */
    if (!logdir) _exit(LKI_EXIT_FAILED);
    lki_study_join(line,
                   (lki_study_metric){tuning->loader_key, tuning->metric_key, tuning->minimize, logdir});
    take_cores(index, tuning->jobs);
    lk_status status = run_trial(tuning, trial);
    if (status) fprintf(stderr, "lockstep: %s\n", lk_error());
    if (status && status != LK_ERR_STOPPED) (void)lki_study_tell_failure(lk_error());
    fflush(NULL);
    _exit(status == LK_ERR_STOPPED ? LKI_TUNE_EXIT_STOPPED : status ? LKI_EXIT_FAILED : LKI_EXIT_DONE);
}

lk_status lki_tune_start(const lki_tuning *tuning, lki_tune_job *job, int index, lki_trial *trial,
                         const sigset_t *mask)
{
    int line[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, line) != 0)
        return lki_fail(LK_ERR_IO, "tune: could not open a line to a trial: %s", strerror(errno));
    pid_t parent = getpid();
    fflush(NULL); /* or the trial would print what is buffered once more */
    pid_t pid = fork();
    if (pid < 0) {
        int error = errno;
        close(line[0]);
        close(line[1]);
        return lki_fail(LK_ERR_NOMEM, "tune: could not fork a trial: %s", strerror(error));
    }
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(LKI_EXIT_FAILED); /* it died before the line above */
        setpgid(0, 0); /* Ctrl-C reaches the study alone, which passes it on once */
        close(line[0]);
        sigprocmask(SIG_SETMASK, mask, NULL);
        be_trial(tuning, index, trial, line[1]);
    }
    setpgid(pid, pid); /* both sides do it: whoever is first */
    close(line[1]);
    *job = (lki_tune_job){.trial = trial, .pid = pid, .fd = line[0]};
    return LK_OK;
}
