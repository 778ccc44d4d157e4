/* What a study tries next. The values depend on the seed, the number of the trial and the trials before it
 * alone, so a study that goes on tries what it would have tried. One thread. */
#ifndef LKI_TUNE_SEARCH_H
#define LKI_TUNE_SEARCH_H

#include "tune/study.h"

typedef enum lki_search_kind { LKI_SEARCH_RANDOM, LKI_SEARCH_GRID, LKI_SEARCH_TPE } lki_search_kind;

typedef struct lki_search {
    lki_search_kind kind;
    int startup_trials; /* of TPE: trials that are random */
    int candidates;     /* of TPE: how many values are compared */
} lki_search;

/* How many trials a grid has; 0: a parameter's values cannot be counted, or are too many. */
int64_t lki_search_grid_count(const lki_study *study);

/* Writes the values of the next trial, by parameter. A grid must have one left; its last parameter changes
 * first. */
lk_status lki_search_next(const lki_search *search, const lki_study *study, double *values);

#endif
