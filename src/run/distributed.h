/* A run as one of several ranks.
 *
 * lki_distributed_train resolves who this process is (flags, environment, Slurm, MPI, or ddp in the call),
 * forks local ranks where asked, connects them, and trains in each. The process that called is rank 0 of
 * those it forks: it returns with the trained model, the others end. */
#ifndef LKI_RUN_DISTRIBUTED_H
#define LKI_RUN_DISTRIBUTED_H

#include <lockstep/runner.h>
#include <lockstep/sys/comm.h>

#include "metric/across_ranks.h"
#include "step/current_ranks.h"

/* Which of the run's ranks this is, and how it reaches the others. */
typedef struct lki_run_ranks {
    lk_comm *comm;             /* NULL outside of a run on several ranks */
    lki_current_ranks current; /* entered while such a run goes on */
    lki_metric_collectives collectives;
    const char *launch_note; /* what ddp was asked for and did not do; NULL: nothing */
    bool told_difference;    /* that the ranks' metrics differ: compare_metrics.h */
} lki_run_ranks;

/* Runs `train` in every rank; in a run of one process just calls it. */
lk_status lki_distributed_train(lk_runner *runner, lk_status (*train)(lk_runner *runner));

/* The runner works through whole loaders by itself, whatever its last run was part of: evaluations, and runs
 * of one process. Where the process is one of several ranks, each of them does, and rank 0 is the master. */
void lki_distributed_alone(lk_runner *runner);

/* Where one rank wants to stop all do. */
lk_status lki_distributed_agree_to_stop(lk_runner *runner);
/* At the end of an epoch: the same, and rank 0's learning rates become every rank's. */
lk_status lki_distributed_agree(lk_runner *runner);

/* Where rank 0 says that its models' weights have `changed`, every rank takes them. A rank 0 that fails
 * before it ends the wait of the others too. */
lk_status lki_distributed_share_models(lk_runner *runner, bool changed);

/* At the end of a run: a signal that one rank has not stopped at is every rank's. */
lk_status lki_distributed_share_signal(lk_runner *runner);

/* Between two epochs of a job that goes on without some ranks: LK_ERR_STOPPED if any of them have come back.
 * The launcher's next attempt takes them in. */
lk_status lki_distributed_take_in(lk_runner *runner);

/* After a stop that the ranks have agreed on: returns when all of them have saved what they have to. */
lk_status lki_distributed_leave_together(lk_runner *runner);

#endif
