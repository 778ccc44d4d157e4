/* Precision, recall and F1 from counts, exactly as scikit-learn has them.
 *
 *     precision = tp / (tp + fp)    recall = tp / (tp + fn)    f1 = 2 P R / (P + R), 0 where both are 0
 *
 * where 0/0 is the caller's zero_division. */
#ifndef LKI_METRIC_CLASSIFICATION_H
#define LKI_METRIC_CLASSIFICATION_H

#include <stdint.h>

typedef struct lki_prf {
    double precision, recall, f1;
} lki_prf;

typedef struct lki_prf_averages {
    lki_prf macro, micro, weighted;
} lki_prf_averages;

lki_prf lki_prf_of_counts(int64_t tp, int64_t fp, int64_t fn, double zero_division);

/* counts: (3, classes) tp, fp, fn. `per_class` may be NULL; otherwise it has room for every class. */
lki_prf_averages lki_prf_average(const int64_t *counts, int64_t class_count, double zero_division,
                                 lki_prf *per_class);

#endif
