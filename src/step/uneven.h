/* Batches of different sizes on the ranks of a step, and rows of different weights.
 *
 * A rank whose batch weighs w (the number of its rows, or the sum of their weights) has the gradient g of its
 * own mean. The gradient of all rows is sum(w g) / sum(w). So each rank scales g by w n / sum(w), and the
 * average over the n ranks is what one process would have. A rank without rows takes part with zeros. It
 * still records the step, for a stand-in of two rows that is never run, so that it knows as the others do
 * which parameters the loss does not reach. */
#ifndef LKI_STEP_UNEVEN_H
#define LKI_STEP_UNEVEN_H

#include <lockstep/step.h>

#include "graph/graph.h"

typedef struct lki_uneven {
    double weight; /* of this rank's batch */
    double scale;  /* of its gradients */
    bool is_empty; /* the batch has no rows */
} lki_uneven;

/* Whether the step's ranks tell each other how much their batches weigh. */
bool lki_step_is_uneven(const lk_step *step);

lk_status lki_uneven_check(const lk_step_options *options);

/* Before a batch: how much it weighs. */
lk_status lki_uneven_begin(lk_step *step, const lk_input *fields, int count, bool training);

/* Fields of two rows without values, shaped like those of a batch that has none. */
void lki_uneven_stand_in(const lk_input *fields, int count, lk_tensor *tensors, lk_input *out);

/* After the criterion: the ranks' losses become the loss of all rows. Fails on every rank if it is not finite
 * on one, or if nobody has rows. */
lk_status lki_uneven_exchange(lk_step *step);

/* After the backward half: scales this rank's gradients, or clears them. */
lk_status lki_uneven_scale(lk_step *step);

/* sum(w l) / sum(w) in place of the mean. */
lk_value *lki_weigh_rows(lk_graph *graph, lk_value *loss, lk_value *weights, int64_t row_count);

#endif
