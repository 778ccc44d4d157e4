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

#ifdef __cplusplus
}
#endif
#endif
