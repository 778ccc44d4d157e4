#include "comm/quiet_thread.h"

#include "base/status.h"

#include <signal.h>
#include <string.h>

lk_status lki_quiet_thread_start(pthread_t *thread, void *(*run)(void *), void *context, const char *what)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(thread, NULL, run, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error ? lki_fail(LK_ERR_NOMEM, "%s: could not start its thread: %s", what, strerror(error))
                 : LK_OK;
}
