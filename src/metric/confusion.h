/* The confusion matrix as its pictures see it. */
#ifndef LKI_METRIC_CONFUSION_H
#define LKI_METRIC_CONFUSION_H

#include "metric/metric.h"

typedef struct lki_confusion_metric {
    lk_metric base;
    int64_t *counts;   /* (classes, classes): row = true class, column = predicted class */
    int64_t *row_sums; /* (classes): samples of each true class */
    char **class_names;
    bool normalize;
} lki_confusion_metric;

/* The metric as a confusion matrix; NULL with an error where it is another metric, or has not yet seen its
 * classes. */
const lki_confusion_metric *lki_confusion_of(const lk_metric *metric);

/* What a cell shows: its count, or its share of the row. An empty row has shares of 0. */
double lki_confusion_cell(const lki_confusion_metric *metric, int64_t row, int64_t column);
/* The share of the row whatever the options say: how dark the cell is. */
double lki_confusion_share(const lki_confusion_metric *metric, int64_t row, int64_t column);
/* The cell as text: "812", or "0.87" where normalized. */
void lki_confusion_cell_text(char *text, size_t capacity, const lki_confusion_metric *metric, int64_t row,
                             int64_t column);

#endif
