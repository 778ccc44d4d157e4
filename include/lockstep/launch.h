/* Running one program as many ranks.
 *
 * Who a process is comes, in this order, from: the launch flags; RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR,
 * MASTER_PORT; Slurm; MPI; else it is alone, and may fork ranks of its own on this host:
 *
 *     static lk_status train(void *context)
 *     {
 *         printf("rank %d of %d\n", lk_rank(), lk_world_size());
 *         return lk_train(context, .model = model, .optimizer = optimizer, .num_epochs = 8);
 *     }
 *
 *     lk_status status = lk_distributed_run(train, runner, .nproc = 4);
 *
 * The function may train, and train again: all ranks make the same calls in the same order. The caller itself
 * is rank 0, so what its function computes is there when the call returns. When a rank fails, all stop, and
 * the error names the first one that failed. Forked ranks never outlive the caller. */
#ifndef LOCKSTEP_LAUNCH_H
#define LOCKSTEP_LAUNCH_H

#include <lockstep/arguments.h>
#include <lockstep/status.h>

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Takes the launch flags out of the command line and remembers them for this process: --world-size N, --rank
 * | -r N,
 * --host | --master | --master-addr | -m ADDR, --port N, --nproc N. LK_ERR_CONFIG where a value is wrong.
 * Call it before anything that trains. */
lk_status lk_launch_arguments(int *argc, char **argv);

/* Who this process is: inside a run the rank that it runs as; before and after, what the flags, the
 * environment, Slurm or MPI say, and 0 of 1 where they say nothing. The local rank counts within the host,
 * and is known inside a run. */
int lk_rank(void);
int lk_world_size(void);
int lk_local_rank(void);

/* What a rank runs. A status other than LK_OK stops the job; the sentence is in lk_error(). */
typedef lk_status (*lk_rank_function)(void *context);

typedef struct lk_distributed_run_options {
    size_t struct_size;
    int nproc;       /* ranks to run on this host; 0: the flag --nproc, else one a core */
    bool no_pinning; /* leave ranks free to move between cores */
} lk_distributed_run_options;

/* Runs the function as each rank. Where flags or the environment say that this process is a rank already, it
 * is run once, as that rank. Call it from the main thread, before other threads exist. */
lk_status lk_distributed_run_with(lk_rank_function function, void *context,
                                  const lk_distributed_run_options *options);
#define lk_distributed_run(...) LK_CALL2_(lk_distributed_run_with, lk_distributed_run_options, __VA_ARGS__, )

#ifdef __cplusplus
}
#endif
#endif
