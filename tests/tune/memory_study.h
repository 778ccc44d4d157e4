/* Studies in memory: trials with made-up epochs. */
#ifndef TESTS_TUNE_MEMORY_STUDY_H
#define TESTS_TUNE_MEMORY_STUDY_H

#include "lktest.h"

#include "tune/study.h"

/* A trial that has reported these values from epoch 1 on, and ended. */
static inline lki_trial *add_trial(lki_study *study, const double *values, const double *reports, int count,
                                   lki_trial_state state)
{
    lki_trial *trial;
    lkt_ok(lki_study_begin(study, values, &trial));
    for (int i = 0; i < count; i++) lkt_ok(lki_study_report(study, trial, i + 1, reports[i], false));
    if (state != LKI_TRIAL_OPEN) lkt_ok(lki_study_end(study, trial, state, NULL));
    return trial;
}

#endif
