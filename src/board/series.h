/* A metric of a run over its epochs, samples or steps, as it was read from the logs. Not thread-safe. */
#ifndef LKI_BOARD_SERIES_H
#define LKI_BOARD_SERIES_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Where a series was read. A run logs most metrics in several files: the board shows the copy with the most
 * points. If two have as many, it shows the earlier of this list. */
typedef enum lki_board_kind {
    LKI_BOARD_EVENTS, /* TensorBoard's files: they have times */
    LKI_BOARD_JSONL,
    LKI_BOARD_CSV,
    LKI_BOARD_KIND_COUNT,
} lki_board_kind;

/* What its steps count. */
typedef enum lki_board_axis { LKI_BOARD_EPOCH, LKI_BOARD_SAMPLE, LKI_BOARD_STEP } lki_board_axis;

typedef struct lki_board_series {
    lki_board_kind kind;
    lki_board_axis axis;
    char *loader, *metric;
    int64_t count, capacity;
    double *step, *value;
    double *time; /* seconds since the epoch; NaN: the log has none */
    int64_t finite_count;
    int64_t lowest, highest; /* indices of the extreme finite values */
} lki_board_series;

typedef struct lki_board_series_list {
    lki_board_series *items;
    int count, capacity;
} lki_board_series_list;

/* The series, made if it is new. NULL if memory ends. The pointer lives until the next call. */
lki_board_series *lki_board_series_claim(lki_board_series_list *list, lki_board_kind kind,
                                         lki_board_axis axis, const char *loader, const char *metric);
lk_status lki_board_series_add(lki_board_series *series, double step, double time, double value);
/* Removes all series that were read from files of a kind. */
void lki_board_series_drop(lki_board_series_list *list, lki_board_kind kind);
void lki_board_series_fini(lki_board_series_list *list);

/* Whether this copy of the metric is the one to show. */
bool lki_board_series_is_shown(const lki_board_series_list *list, const lki_board_series *series);

const char *lki_board_axis_name(lki_board_axis axis);

#endif
