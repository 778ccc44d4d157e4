/* Running one program as many ranks.
 *
 * The role of a process comes from the first of these that is there: the launch flags; RANK,
 * WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT; Slurm; MPI. Otherwise the process is alone
 * and may fork ranks on this host:
 *
 *     lk_status train(void *context)
 *     {
 *         printf("%s: rank %d of %d\n", (const char *)context, lk_rank(), lk_world_size());
 *         return LK_OK;
 *     }
 *     lk_status status = lk_distributed_run(train, "mnist", .nproc = 4);
 *
 * Your function may train several times; all ranks must make the same calls in the same order.
 * The caller itself is rank 0, so what its function computes is there when the call returns. If a
 * rank fails, all ranks stop, and the error names the first one that failed. Forked ranks never
 * outlive the caller.
 *
 * Threads: call these functions from the main thread. */
#ifndef LOCKSTEP_LAUNCH_H
#define LOCKSTEP_LAUNCH_H

#include <lockstep/arguments.h>
#include <lockstep/status.h>

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Removes the launch flags from the command line and remembers them for this process:
 * --world-size N; --rank or -r N; --host, --master, --master-addr or -m ADDR; --port N; --nproc
 * N. Fails with LK_ERR_CONFIG if a value is wrong. Call it before anything that trains. */
lk_status lk_launch_arguments(int *argc, char **argv);

/* Return the role of this process. Inside a run this is the rank that it runs as. Before and
 * after a run it is what the flags, the environment, Slurm or MPI say, or 0 of 1. The local rank
 * counts within the host and is known only inside a run. */
int lk_rank(void);
int lk_world_size(void);
int lk_local_rank(void);

/* What a rank runs. A status other than LK_OK stops the job; lk_error() has the sentence. */
typedef lk_status (*lk_rank_function)(void *context);

typedef struct lk_distributed_run_options {
    size_t struct_size;
    int nproc;       /* ranks on this host; 0: the flag --nproc, or one per core */
    bool no_pinning; /* does not bind ranks to cores */
} lk_distributed_run_options;

/* Runs the function as each rank, and returns the status of the first rank that failed. If this
 * process is a rank already, it runs the function once, as that rank. Call it before the process
 * has other threads. */
lk_status lk_distributed_run_with(lk_rank_function function, void *context,
                                  const lk_distributed_run_options *options);
#define lk_distributed_run(...) LK_CALL2_(lk_distributed_run_with, lk_distributed_run_options, __VA_ARGS__, )

typedef struct lk_comm_connect_options {
    size_t struct_size;
    const char *address; /* "HOST:PORT" at which rank 0 listens and the others find it */
    /* Or a file that all ranks reach and that does not exist yet. Rank 0 writes its address there,
     * with a port that is free, and removes the file when all ranks have come. */
    const char *file;
    int64_t join_timeout_ms; /* for all ranks to come; 0: 120 s */
    int64_t timeout_ms;      /* of a collective; 0: 300 s */
} lk_comm_connect_options;

/* Returns a comm (lockstep/sys/comm.h) of processes that you have started yourself, for
 * lk_step_options.comm. Every rank calls it with its own number. Ranks of one host share memory.
 * Ranks of several hosts speak TCP, which needs a few threads per host. Nothing is forked or
 * pinned. The secret of the job is LOCKSTEP_TOKEN, or else the user's key file. NULL on failure.
 * Free the comm with lk_comm_free. */
struct lk_comm *lk_comm_connect_with(int rank, int size, const lk_comm_connect_options *options);
#define lk_comm_connect(...) LK_CALL2_(lk_comm_connect_with, lk_comm_connect_options, __VA_ARGS__, )

#ifdef __cplusplus
}
#endif
#endif
