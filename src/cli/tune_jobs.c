/* Runs the trials of a study, some at a time: starts them, hears of their epochs, and passes signals on. */
#define _GNU_SOURCE
#include "cli/tune.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "run/study_link.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct jobs {
    lki_tuning *tuning;
    lki_tune_job *items;  /* (count) */
    struct pollfd *polls; /* (count + 1), the signals last */
    int count, signals;
    sigset_t mask;            /* as it was before */
    int stopped_by, failures; /* failures: in a row */
    int64_t deadline_ns;      /* 0: none */
    lki_error error;          /* what ends the study */
} jobs;

/* ---- Starting ---- */

static bool is_running(const jobs *j, const lki_trial *trial)
{
    for (int i = 0; i < j->count; i++)
        if (j->items[i].trial == trial) return true;
    return false;
}

/* One that was interrupted goes before a new one. *out is NULL if there is nothing left to try. */
static lk_status next_trial(const jobs *j, lki_trial **out)
{
    lki_tuning *tuning = j->tuning;
    lki_study *study = &tuning->study;
    double values[LKI_TUNE_MAX_PARAMETERS];
    *out = NULL;
    for (int i = 0; i < study->trial_count; i++) {
        if (study->trials[i]->state != LKI_TRIAL_OPEN || is_running(j, study->trials[i])) continue;
        *out = study->trials[i];
        return LK_OK;
    }
    if (study->trial_count >= tuning->trials) return LK_OK;
    LKI_TRY(lki_search_next(&tuning->search, study, values));
    return lki_study_begin(study, values, out);
}

static bool may_start(const jobs *j)
{
    return !j->stopped_by && !j->error.status && (!j->deadline_ns || lki_now_ns() < j->deadline_ns);
}

static lk_status start_trials(jobs *j)
{
    for (int i = 0; i < j->count && may_start(j); i++) {
        lki_trial *trial;
        if (j->items[i].trial) continue;
        LKI_TRY(next_trial(j, &trial));
        if (!trial) return LK_OK;
        LKI_TRY(lki_tune_start(j->tuning, &j->items[i], i, trial, &j->mask));
    }
    return LK_OK;
}

/* ---- Hearing ---- */

static lk_status hear_epoch(jobs *j, lki_tune_job *job, const lki_study_message *message)
{
    lki_study *study = &j->tuning->study;
    lki_trial *trial = job->trial;
    bool is_known = trial->epoch_count && trial->epochs[trial->epoch_count - 1].epoch >= message->epoch;
    bool prune = trial->is_to_end;
    if (!is_known) {
        LKI_TRY(lki_pruner_asks(&j->tuning->pruner, study, trial, message->epoch, message->value, &prune));
        LKI_TRY(lki_study_report(study, trial, message->epoch, message->value, prune));
    }
    unsigned char answer = prune;
    (void)!send(job->fd, &answer, 1, MSG_NOSIGNAL); /* one that has died is heard of otherwise */
    return LK_OK;
}

/* All that a trial has said so far. */
static lk_status hear(jobs *j, lki_tune_job *job)
{
    lki_study_message message;
    while (recv(job->fd, &message, sizeof message, MSG_DONTWAIT) == (ssize_t)sizeof message) {
        if (message.word == LKI_STUDY_EPOCH)
            LKI_TRY(hear_epoch(j, job, &message));
        else
            memcpy(job->sentence, message.sentence, sizeof job->sentence);
    }
    return LK_OK;
}

/* ---- Ending ---- */

static void tell_all(jobs *j, int number)
{
    for (int i = 0; i < j->count; i++) {
        if (!j->items[i].trial) continue;
        j->items[i].told = true;
        kill(j->items[i].pid, number);
    }
}

/* The failure that ends the study; what still runs stops, and can go on later. */
static void fail_study(jobs *j)
{
    if (j->error.status) return;
    lki_error_keep(&j->error, lki_last_status());
    tell_all(j, SIGTERM);
}

/* What became of a trial, and why it failed. */
static lki_trial_state state_of(const lki_tune_job *job, int status, char *sentence, size_t capacity)
{
    const lki_trial *trial = job->trial;
    bool is_done = WIFEXITED(status) && WEXITSTATUS(status) == LKI_EXIT_DONE;
    if (is_done && trial->is_to_end) return LKI_TRIAL_PRUNED;
    if (is_done && !isnan(lki_trial_value(trial))) return LKI_TRIAL_COMPLETE;
    if (is_done)
        snprintf(sentence, capacity, "%s",
                 trial->epoch_count ? "its metric was never a number"
                                    : "it has reported no epoch with the metric");
    else if (WIFSIGNALED(status) && !job->told)
        snprintf(sentence, capacity, "it was killed by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else if (*job->sentence)
        snprintf(sentence, capacity, "%s", job->sentence);
    else if (job->told)
        return LKI_TRIAL_OPEN;
    else if (WEXITSTATUS(status) == LKI_TUNE_EXIT_STOPPED)
        snprintf(sentence, capacity, "it was stopped by a signal");
    else
        snprintf(sentence, capacity, "it ended with the exit code %d", WEXITSTATUS(status));
    return LKI_TRIAL_FAILED;
}

static lk_status count_failures(jobs *j, const lki_trial *trial)
{
    j->failures = trial->state == LKI_TRIAL_FAILED ? j->failures + 1 : 0;
    if (j->failures < j->tuning->max_failures) return LK_OK;
    return lki_fail(LK_ERR_INVALID, "tune: %d trial%s in a row failed; the last, trial %d: %s", j->failures,
                    j->failures == 1 ? "" : "s", trial->number, trial->sentence);
}

static lk_status end_trial(jobs *j, lki_tune_job *job, int status)
{
    char sentence[sizeof job->sentence];
    lki_trial *trial = job->trial;
    lk_status heard = hear(j, job);
    lki_trial_state state = state_of(job, status, sentence, sizeof sentence);
    close(job->fd);
    *job = (lki_tune_job){.fd = -1};
    LKI_TRY(heard);
    if (state == LKI_TRIAL_OPEN) return LK_OK; /* it was told to stop, and goes on another time */
    LKI_TRY(lki_study_end(&j->tuning->study, trial, state, state == LKI_TRIAL_FAILED ? sentence : NULL));
    lki_tune_print_trial(j->tuning, trial);
    return count_failures(j, trial);
}

static void reap(jobs *j)
{
    for (int i = 0; i < j->count; i++) {
        int status;
        if (!j->items[i].trial || waitpid(j->items[i].pid, &status, WNOHANG) != j->items[i].pid) continue;
        if (end_trial(j, &j->items[i], status)) fail_study(j);
    }
}

/* Ctrl-Z stops the trials with the study. */
static void stop_for_a_while(jobs *j)
{
    for (int i = 0; i < j->count; i++)
        if (j->items[i].trial) kill(j->items[i].pid, SIGTSTP);
    raise(SIGSTOP);
    for (int i = 0; i < j->count; i++)
        if (j->items[i].trial) kill(j->items[i].pid, SIGCONT);
}

static void take_signal(jobs *j)
{
    struct signalfd_siginfo info;
    if (read(j->signals, &info, sizeof info) != (ssize_t)sizeof info) return;
    if (info.ssi_signo == SIGCHLD) {
        reap(j);
    } else if (info.ssi_signo == SIGTSTP) {
        stop_for_a_while(j);
    } else {
        j->stopped_by = (int)info.ssi_signo;
        tell_all(j, j->stopped_by);
    }
}

/* ---- The loop ---- */

static bool any_running(const jobs *j)
{
    for (int i = 0; i < j->count; i++)
        if (j->items[i].trial) return true;
    return false;
}

static void wait_and_hear(jobs *j)
{
    for (int i = 0; i < j->count; i++)
        j->polls[i] = (struct pollfd){j->items[i].trial ? j->items[i].fd : -1, POLLIN, 0};
    j->polls[j->count] = (struct pollfd){j->signals, POLLIN, 0};
    if (poll(j->polls, (nfds_t)j->count + 1, -1) < 0) return;
    for (int i = 0; i < j->count; i++) {
        if (j->items[i].trial && (j->polls[i].revents & POLLIN) && hear(j, &j->items[i])) fail_study(j);
        /* One that has ended is reaped next; until then its line would be ready all the time. */
        if (j->polls[i].revents & (POLLHUP | POLLERR)) reap(j);
    }
    if (j->polls[j->count].revents) take_signal(j);
}

/* A trial that was told to end and had no time to say that it did. */
static lk_status end_pruned(lki_study *study)
{
    for (int i = 0; i < study->trial_count; i++) {
        lki_trial *trial = study->trials[i];
        if (trial->state == LKI_TRIAL_OPEN && trial->is_to_end)
            LKI_TRY(lki_study_end(study, trial, LKI_TRIAL_PRUNED, NULL));
    }
    return LK_OK;
}

static lk_status run(jobs *j)
{
    LKI_TRY(end_pruned(&j->tuning->study));
    for (;;) {
        if (start_trials(j)) fail_study(j);
        if (!any_running(j)) break;
        wait_and_hear(j);
    }
    return lki_error_restore(&j->error);
}

static lk_status open_jobs(jobs *j, lki_tuning *tuning)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGTSTP);
    sigaddset(&set, SIGCHLD);
    *j = (jobs){.tuning = tuning, .count = tuning->jobs, .signals = -1};
    if (tuning->timeout_s) j->deadline_ns = lki_now_ns() + tuning->timeout_s * 1000000000LL;
    sigprocmask(SIG_BLOCK, &set, &j->mask);
    j->items = LKI_NEW_ARRAY(lki_tune_job, j->count);
    j->polls = LKI_NEW_ARRAY(struct pollfd, j->count + 1);
    if (!j->items || !j->polls) return LK_ERR_NOMEM;
    j->signals = signalfd(-1, &set, SFD_CLOEXEC);
    return j->signals >= 0 ? LK_OK
                           : lki_fail(LK_ERR_IO, "tune: could not wait for signals: %s", strerror(errno));
}

lk_status lki_tune_run_trials(lki_tuning *tuning, int *stopped_by)
{
    jobs j;
    struct sigaction usual = {.sa_handler = SIG_DFL}, before;
    sigaction(SIGCHLD, &usual, &before); /* ignored, it would never come, nor tell how a trial ended */
    lk_status status = open_jobs(&j, tuning);
    if (!status) status = run(&j);
    *stopped_by = j.stopped_by;
    if (j.signals >= 0) close(j.signals);
    lki_free(j.items);
    lki_free(j.polls);
    sigprocmask(SIG_SETMASK, &j.mask, NULL);
    sigaction(SIGCHLD, &before, NULL);
    return status;
}
