/* Threads of the library's own that never take a signal: those are the program's. */
#ifndef LKI_COMM_QUIET_THREAD_H
#define LKI_COMM_QUIET_THREAD_H

#include <lockstep/status.h>

#include <pthread.h>

lk_status lki_quiet_thread_start(pthread_t *thread, void *(*run)(void *), void *context, const char *what);

#endif
