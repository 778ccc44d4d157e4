/* Which trials end early. */
#ifndef LKI_TUNE_PRUNER_H
#define LKI_TUNE_PRUNER_H

#include "tune/study.h"

typedef enum lki_pruner_kind { LKI_PRUNER_NONE, LKI_PRUNER_MEDIAN, LKI_PRUNER_HALVING } lki_pruner_kind;

/* Median: a trial ends if its best value so far is worse than the median of what the complete trials had at
 * the same epoch. Halving: at the epochs min_epochs * factor^(rate + k) a trial goes on only if it is among
 * the best 1 / factor of the trials that came there before it. */
typedef struct lki_pruner {
    lki_pruner_kind kind;
    int startup_trials, warmup_epochs, interval_epochs;    /* median */
    int min_epochs, reduction_factor, early_stopping_rate; /* halving */
} lki_pruner;

/* Whether `trial`, which reports `value` at `epoch`, is to end. It need not be in the study's list. */
lk_status lki_pruner_asks(const lki_pruner *pruner, const lki_study *study, const lki_trial *trial,
                          int64_t epoch, double value, bool *prune);

#endif
