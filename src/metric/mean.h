/* The spread of batch means, which the accuracy metrics and the batch mean report as "/std": `width` moments
 * side by side, which become width × ranks moments once the ranks have been joined. */
#ifndef LKI_METRIC_MEAN_H
#define LKI_METRIC_MEAN_H

#include "metric/exact.h"
#include "metric/metric.h"
#include "metric/moments.h"

typedef struct lki_spread {
    lki_metric_array moments; /* of lki_moments */
    int width;
    double last[LK_MAX_TOPK]; /* the last batch's means */
} lki_spread;

/* Width 0 is that of a spread which does not know it yet; it is initialised once more when it does. */
lk_status lki_spread_init(lki_spread *spread, int width);
void lki_spread_reset(lki_spread *spread);
static inline void lki_spread_add(lki_spread *spread, int index, double batch_mean, double count)
{
    lki_moments_add((lki_moments *)spread->moments.data + index, batch_mean, count);
    spread->last[index] = batch_mean;
}
lki_metric_part lki_spread_part(lki_spread *spread);
bool lki_spread_is_sound(const lki_spread *spread);
/* Over all ranks, put together in rank order. */
double lki_spread_std(const lki_spread *spread, int index);

/* A batch of single samples for lk_mean_metric: sample i adds sums[i] to what is divided and weights[i] to
 * what it is divided by. The batch's own mean is the quotient of the two sums. Nothing happens without
 * samples. */
lk_status lki_mean_metric_add_samples(lk_metric *metric, const double *sums, const double *weights,
                                      int64_t count);

#endif
