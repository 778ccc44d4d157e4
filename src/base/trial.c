#define _GNU_SOURCE
#include "base/trial.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE_MS = 5000 };

/* A copy of the process, made by the kernel alone: the C library's fork takes locks and calls handlers, which
 * a program of many threads need not be ready for. Without a signal at its end, nobody else's wait() takes
 * it; emulators insist on SIGCHLD. */
static pid_t copy_process(void)
{
#if defined(__x86_64__) || defined(__aarch64__)
    long pid = syscall(SYS_clone, 0UL, NULL, NULL, NULL, 0UL);
    if (pid < 0 && errno == EINVAL) pid = syscall(SYS_clone, (unsigned long)SIGCHLD, NULL, NULL, NULL, 0UL);
    return (pid_t)pid;
#else
    return fork();
#endif
}

/* System calls alone: the functions of the C library, and a sanitizer's, may take locks that a thread which
 * is not in this copy has held. */
static void run_in_child(bool (*trial)(void *context), void *context)
{
    static const int deadly[] = {SIGILL, SIGSEGV, SIGBUS, SIGFPE, SIGTRAP, SIGABRT};
    static const unsigned long plain[8]; /* the kernel's own struct sigaction: SIG_DFL, and no flags */
    struct rlimit none = {0, 0};
    uint64_t mask = 0;
    setrlimit(RLIMIT_CORE, &none);
    prctl(PR_SET_DUMPABLE, 0);
    for (size_t i = 0; i < sizeof deadly / sizeof *deadly; i++) {
        syscall(SYS_rt_sigaction, deadly[i], plain, NULL, sizeof mask);
        mask |= UINT64_C(1) << (deadly[i] - 1);
    }
    syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, &mask, NULL, sizeof mask);
    syscall(SYS_exit_group, trial(context) ? 0 : 1);
}

/* The status of a child that ends by itself, or -1. */
static int wait_for(pid_t pid)
{
    for (int ms = 0;; ms++) {
        int status;
        pid_t ended = waitpid(pid, &status, WNOHANG | __WALL);
        if (ended == pid) return status;
        if (ended < 0 && errno != EINTR) return -1;
        if (ms == PATIENCE_MS) kill(pid, SIGKILL);
        nanosleep(&(struct timespec){.tv_nsec = ms < 20 ? 100000 : 1000000}, NULL);
    }
}

bool lki_trial_passes(bool (*trial)(void *context), void *context)
{
    pid_t pid = copy_process();
    if (pid < 0) return false;
    if (pid == 0) run_in_child(trial, context);
    int status = wait_for(pid);
    return status >= 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}
