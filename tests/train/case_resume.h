/* One run with everything that has a state: shuffled loaders, dropout, batch norm, Adam, a schedule, averaged
 * weights, accumulation, clipping and metrics that remember what they saw, the user's own among them. */
#ifndef LKT_TRAIN_CASE_RESUME_H
#define LKT_TRAIN_CASE_RESUME_H

#include "case.h"

enum { LKT_RUN_EPOCHS = 5, LKT_RUN_BATCHES = 12 };

typedef struct lkt_run_options {
    const char *logdir;
    int num_epochs;           /* LKT_RUN_EPOCHS */
    int64_t stop_batch;       /* raise `signal` at this train batch of the whole run; 0: never */
    int64_t stop_valid_epoch; /* raise it in the valid loader of this epoch */
    int64_t fail_batch;       /* fail at this train batch */
    int signal;               /* SIGTERM */
    int save_every_batches;
    int save_every; /* the run's */
    const char *autoresume, *resume;
    int batch_size;  /* 8 */
    bool epoch_logs; /* loggers of the caller's own write no batches down */
    int nproc;       /* ranks */
    bool plateau;    /* a schedule that looks at the metric, instead of MultiStepLR */
    bool swa;        /* instead of EMA */
    bool restarts;   /* groups of accumulated batches begin anew in each epoch */
    char hash[65];   /* out: the model's weights at the end */
} lkt_run_options;

lk_status lkt_whole_run(lkt_run_options *options);
/* Weights, logs and checkpoints of two finished runs are the same, byte for byte. */
void lkt_same_runs(const lkt_run_options *actual, const lkt_run_options *expected);

#endif
