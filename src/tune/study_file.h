/* The lines of a study's file, for study.c. */
#ifndef LKI_TUNE_STUDY_FILE_H
#define LKI_TUNE_STUDY_FILE_H

#include "tune/study.h"

/* Opens, locks and reads study->path, or begins it with the description. */
lk_status lki_study_file_open(lki_study *study, const char *description);
/* Fails if somebody is at work there. */
lk_status lki_study_file_check_rest(const char *path);

lk_status lki_study_write_begin(const lki_study *study, const lki_trial *trial);
lk_status lki_study_write_epoch(const lki_study *study, const lki_trial *trial); /* the last one */
lk_status lki_study_write_end(const lki_study *study, const lki_trial *trial);

/* study.c: what the lines stand for, in memory alone. */
lk_status lki_study_add(lki_study *study, const double *values, lki_trial **out);
lk_status lki_trial_add_epoch(lki_trial *trial, int64_t epoch, double value, bool prune);

#endif
