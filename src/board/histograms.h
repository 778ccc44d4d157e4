/* Histograms of a run, as they were read from event files: a list per loader and tag. Not thread-safe. */
#ifndef LKI_BOARD_HISTOGRAMS_H
#define LKI_BOARD_HISTOGRAMS_H

#include <lockstep/sys/logger.h>

#include "board/text_out.h"

/* A series keeps at most this many: when it is full, every second one goes, and so of those that follow. */
enum { LKI_BOARD_MAX_HISTOGRAMS = 64, LKI_BOARD_MAX_BUCKETS = 128 };

typedef struct lki_board_histogram {
    double step, min;
    int bucket_count;
    double *limits, *counts; /* one block; the limits own it */
} lki_board_histogram;

typedef struct lki_board_histograms {
    char *loader, *tag;
    lki_board_histogram items[LKI_BOARD_MAX_HISTOGRAMS];
    int count;
    int64_t seen, stride;
} lki_board_histograms;

typedef struct lki_board_histogram_list {
    lki_board_histograms **items;
    int count;
} lki_board_histogram_list;

/* Copies the histogram; one that belongs to more tags than the board shows is left out. */
lk_status lki_board_histogram_add(lki_board_histogram_list *list, const char *loader, const char *tag,
                                  double step, const lk_histogram *histogram);
void lki_board_histograms_fini(lki_board_histogram_list *list);

/* [{"loader": "train", "tag": "weights/0.weight", "items": [{"step": 1, "min": …, "limits": […], "counts":
 * […]}]}]
 */
void lki_board_put_histograms(lki_text_out *out, const lki_board_histogram_list *list);

#endif
