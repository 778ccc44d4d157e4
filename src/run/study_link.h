/* The line from a trial of `lockstep tune` to its study, which waits in the parent process.
 *
 * A trial is a process that the study has forked. It joins with its end of a socket pair before it runs. Rank
 * 0 then reports, and waits for each answer. One thread; ranks that are forked later inherit it unused. */
#ifndef LKI_RUN_STUDY_LINK_H
#define LKI_RUN_STUDY_LINK_H

#include <lockstep/status.h>

#include <stdbool.h>
#include <stdint.h>

typedef enum lki_study_word {
    LKI_STUDY_EPOCH,  /* an epoch and its value; the study answers with a byte: 1 if the trial is to end */
    LKI_STUDY_FAILED, /* the run's sentence; no answer */
} lki_study_word;

/* One packet. */
typedef struct lki_study_message {
    lki_study_word word;
    int64_t epoch;
    double value;
    char sentence[1024];
} lki_study_message;

/* What the study watches, for the callback that reports: NULL keys are the run's own. */
typedef struct lki_study_metric {
    const char *loader_key, *metric_key; /* borrowed, for the life of the process */
    bool minimize;
    const char *logdir; /* of the run that counts; borrowed likewise; NULL: each run does */
} lki_study_metric;

/* This process is a trial from now on. `fd` stays the caller's. */
void lki_study_join(int fd, lki_study_metric metric);

/* NULL: this process is no trial. */
const lki_study_metric *lki_study_joined(void);

/* Whether this process is a trial, and the run with this logdir the one that counts. */
bool lki_study_watches(const char *logdir);

/* LK_ERR_PEER if the study has ended. */
lk_status lki_study_tell_epoch(int64_t epoch, double value, bool *prune);
lk_status lki_study_tell_failure(const char *sentence);

#endif
