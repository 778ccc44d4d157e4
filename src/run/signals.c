#include "run/signals.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

static const int caught[] = {SIGTERM, SIGUSR1, SIGINT};
enum { CAUGHT_COUNT = sizeof caught / sizeof *caught };

static volatile int flag;
static int unheard; /* the signal that is to be passed on, or 0 */
static int waiting; /* SIGUSR1 where it is for the next run, or 0 */
static struct sigaction previous[CAUGHT_COUNT];
static int depth;
static int stopped_by; /* the signal that the latest stopped run gave way to, or 0 */

static void restore_default_and_raise(int number)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = SIG_DFL;
    sigaction(number, &action, NULL);
    raise(number);
}

static void ask_to_stop(int number)
{
    int saved = errno;
    if (number == SIGINT && flag == SIGINT) restore_default_and_raise(number);
    flag = number;
    errno = saved;
}

volatile int *lki_signals_begin(void)
{
    struct sigaction action;
    if (depth++ > 0) return &flag;
    flag = waiting;
    unheard = waiting = 0;
    memset(&action, 0, sizeof action);
    action.sa_handler = ask_to_stop;
    action.sa_flags = SA_RESTART; /* reading a dataset goes on; the loop sees the flag soon enough */
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < CAUGHT_COUNT; i++) {
        sigaction(caught[i], NULL, &previous[i]);
        if (previous[i].sa_handler != SIG_IGN) sigaction(caught[i], &action, NULL);
    }
    return &flag;
}

void lki_signals_end(bool heard)
{
    if (--depth > 0) return;
    for (int i = 0; i < CAUGHT_COUNT; i++) sigaction(caught[i], &previous[i], NULL);
    unheard = heard ? 0 : flag;
}

void lki_signals_pass_on(void)
{
    int number = unheard;
    unheard = 0;
    struct sigaction own;
    sigaction(SIGUSR1, NULL, &own);
    if (number == SIGUSR1 && own.sa_handler == SIG_DFL)
        waiting = number;
    else if (number)
        raise(number);
}

void lki_signals_note_stop(int number)
{
    stopped_by = number;
}

int lki_signals_stopped_by(void)
{
    return stopped_by;
}
