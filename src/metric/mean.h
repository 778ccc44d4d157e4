/* Several running means side by side, as the accuracy metrics and the batch mean keep them: `width` moments,
 * which become width × ranks moments once the ranks have been joined. */
#ifndef LKI_METRIC_MEAN_H
#define LKI_METRIC_MEAN_H

#include "metric/metric.h"
#include "metric/moments.h"

typedef struct lki_mean_state {
    lki_metric_array moments; /* of lki_moments */
    int width;
    double last[LK_MAX_TOPK]; /* the last batch's values */
} lki_mean_state;

/* Width 0 is that of a state which does not know it yet; it is initialised once more when it does. */
lk_status lki_mean_state_init(lki_mean_state *state, int width);
void lki_mean_state_reset(lki_mean_state *state);
void lki_mean_state_add(lki_mean_state *state, int index, double value, double count);
int lki_mean_state_parts(lki_mean_state *state, lki_metric_part *parts);
bool lki_mean_state_is_sound(const lki_mean_state *state);
/* The moments of `index` over all ranks, put together in rank order. */
lki_moments lki_mean_state_total(const lki_mean_state *state, int index);

#endif
