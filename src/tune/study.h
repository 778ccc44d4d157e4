/* A study: its parameters, its trials, and the file that keeps them.
 *
 * STUDY.jsonl only grows: a first line that says what is searched, then a line for each trial that begins,
 * each epoch that one reports and each trial that ends. A line is written with one call and synced, so a
 * study that is killed at any moment goes on from its file; a last line that is not whole is cut off. The
 * file is locked while the study is open here, or in a process that was forked meanwhile. One thread. */
#ifndef LKI_TUNE_STUDY_H
#define LKI_TUNE_STUDY_H

#include "tune/range.h"

#include <lockstep/status.h>

typedef struct lki_parameter_space {
    const char *name;
    lki_range range;
} lki_parameter_space;

typedef enum lki_trial_state {
    LKI_TRIAL_OPEN, /* running, or to go on */
    LKI_TRIAL_COMPLETE,
    LKI_TRIAL_PRUNED,
    LKI_TRIAL_FAILED,
} lki_trial_state;

typedef struct lki_trial_epoch {
    int64_t epoch;
    double value; /* of the best epoch so far */
} lki_trial_epoch;

typedef struct lki_trial {
    int number;
    lki_trial_state state;
    double *values; /* by parameter */
    lki_trial_epoch *epochs;
    int epoch_count;
    bool is_to_end; /* it was told that it is pruned */
    char *sentence; /* why it failed; NULL: it did not */
} lki_trial;

typedef struct lki_study {
    const lki_parameter_space *parameters; /* borrowed */
    int parameter_count;
    bool minimize;
    uint64_t seed;
    lki_trial **trials; /* by number */
    int trial_count;
    char *path;
    int fd; /* -1: it is kept in memory alone */
} lki_study;

/* Of the file: `description` is one line of JSON, an object, that says what is searched. A file that is there
 * is read, and must begin with the same description: LK_ERR_CONFIG names the first key that differs.
 * LK_ERR_INVALID if another process has it open. A path of NULL keeps nothing. The zeroed study's own fields
 * above `trials` are set by the caller before. */
lk_status lki_study_open(lki_study *study, const char *path, const char *description);
void lki_study_close(lki_study *study);

/* Adds a trial with these values (by parameter), which are copied. The trial belongs to the study. */
lk_status lki_study_begin(lki_study *study, const double *values, lki_trial **out);
/* An epoch that was reported already is passed over: a trial that goes on may repeat its last one. */
lk_status lki_study_report(lki_study *study, lki_trial *trial, int64_t epoch, double value, bool prune);
/* `sentence`: of a failure, else NULL. */
lk_status lki_study_end(lki_study *study, lki_trial *trial, lki_trial_state state, const char *sentence);

/* The value of the last report; NaN if there is none. */
double lki_trial_value(const lki_trial *trial);
/* Whether `a` is the better value. NaN is worse than any number. */
bool lki_study_is_better(const lki_study *study, double a, double b);
/* The best complete trial, the earliest of equal ones; NULL if there is none. */
const lki_trial *lki_study_best(const lki_study *study);
int lki_study_count(const lki_study *study, lki_trial_state state);

#endif
