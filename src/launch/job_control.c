/* Ctrl-Z stops the forked ranks with their caller, and what continues it continues them: each is a process
 * group of its own, which the terminal does not know. */
#define _GNU_SOURCE
#include "launch/ranks_internal.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

/* Those of this process; a signal handler finds them no other way. */
static lki_ranks *volatile ours;
static struct sigaction before;

static void tell_all(const lki_ranks *ranks, int number)
{
    for (int i = 0; i < ranks->count - 1; i++)
        if (ranks->children[i].pid && !ranks->children[i].reaped) kill(-ranks->children[i].pid, number);
}

/* The caller goes last, and its return from the stop is what continues the others. */
static void stop_together(int number)
{
    int error = errno;
    lki_ranks *ranks = ours;
    (void)number;
    if (ranks) tell_all(ranks, SIGSTOP);
    kill(getpid(), SIGSTOP);
    if (ranks) tell_all(ranks, SIGCONT);
    errno = error;
}

void lki_stop_together_begin(lki_ranks *ranks)
{
    struct sigaction action = {.sa_handler = stop_together, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGTSTP, NULL, &before) != 0 || before.sa_handler != SIG_DFL)
        return; /* the program's own */
    ours = ranks;
    sigaction(SIGTSTP, &action, NULL);
}

void lki_stop_together_end(const lki_ranks *ranks)
{
    if (ours != ranks) return;
    sigaction(SIGTSTP, &before, NULL);
    ours = NULL;
}
