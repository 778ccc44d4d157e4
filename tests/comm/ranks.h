/* Runs one function as the ranks of a job: as forked processes or as threads.
 *
 * A rank's function returns NULL when all is well, or a sentence; cmocka's own asserts belong to the parent
 * alone. */
#ifndef LKT_RANKS_H
#define LKT_RANKS_H

#include "lktest.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

typedef const char *(*rank_body)(int rank, int size, void *context);

enum { KILLED_ON_PURPOSE = SIGKILL };

/* A sentence for a failed check inside a rank. */
static inline const char *rank_failure(int rank, const char *file, int line, const char *what)
{
    static _Thread_local char text[1400];
    snprintf(text, sizeof text, "rank %d: %s:%d: %s [%s]", rank, file, line, what, lk_error());
    return text;
}

#define rank_check(condition)                                                                                \
    do {                                                                                                     \
        if (!(condition)) return rank_failure(rank, __FILE__, __LINE__, #condition);                         \
    } while (0)
#define rank_ok(call) rank_check((call) == LK_OK)

/* Memory that processes and threads share, zeroed; for counters of the tests themselves. */
static inline void *shared_zeros(size_t nbytes)
{
    void *memory = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) fail_msg("mmap failed");
    return memory;
}

/* `killed` is the rank that is expected to die by SIGKILL, or -1. */
static inline void run_processes_but(int size, int killed, rank_body body, void *context)
{
    pid_t pids[64];
    bool failed = false;
    fflush(NULL);
    for (int rank = 0; rank < size; rank++) {
        pids[rank] = fork();
        if (pids[rank] == 0) {
            alarm(120); /* a hang is a failure, not a stuck suite */
            const char *failure = body(rank, size, context);
            if (failure) fprintf(stderr, "%s\n", failure);
            fflush(NULL);
            _exit(failure ? 1 : 0);
        }
    }
    for (int rank = 0; rank < size; rank++) {
        int status = 0;
        waitpid(pids[rank], &status, 0);
        bool fine = rank == killed ? WIFSIGNALED(status) && WTERMSIG(status) == KILLED_ON_PURPOSE
                                   : WIFEXITED(status) && WEXITSTATUS(status) == 0;
        if (!fine) {
            fprintf(stderr, "rank %d of %d: wait status 0x%x\n", rank, size, status);
            failed = true;
        }
    }
    if (failed) fail_msg("a rank failed; see above");
}

static inline void run_processes(int size, rank_body body, void *context)
{
    run_processes_but(size, -1, body, context);
}

typedef struct rank_thread {
    rank_body body;
    int rank, size;
    void *context;
    char failure[1400];
} rank_thread;

static inline void *rank_thread_main(void *argument)
{
    rank_thread *thread = argument;
    const char *failure = thread->body(thread->rank, thread->size, thread->context);
    if (failure) snprintf(thread->failure, sizeof thread->failure, "%s", failure);
    return NULL;
}

static inline void run_threads(int size, rank_body body, void *context)
{
    rank_thread ranks[16];
    pthread_t threads[16];
    for (int rank = 0; rank < size; rank++) {
        ranks[rank] = (rank_thread){.body = body, .rank = rank, .size = size, .context = context};
        if (pthread_create(&threads[rank], NULL, rank_thread_main, &ranks[rank]))
            fail_msg("pthread_create failed");
    }
    for (int rank = 0; rank < size; rank++) pthread_join(threads[rank], NULL);
    for (int rank = 0; rank < size; rank++)
        if (ranks[rank].failure[0]) fail_msg("%s", ranks[rank].failure);
}

#endif
