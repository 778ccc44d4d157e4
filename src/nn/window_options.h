/* Windows of convolutions and pools: from "one number or one an axis" to an lk_window, and inputs without a
 * batch axis. */
#ifndef LKI_NN_WINDOW_OPTIONS_H
#define LKI_NN_WINDOW_OPTIONS_H

#include "nn/module.h"

/* out[i] for i < rank: each[i] where any of `each` is set, else `all`; a zero becomes `standard`. */
void lki_spread(int64_t *out, int rank, int64_t all, const int64_t *each, int64_t standard);

/* LK_ERR_INVALID naming type and argument where one of the numbers is below `least`. */
lk_status lki_check_each(const char *type, const char *argument, const int64_t *numbers, int rank,
                         int64_t least);

/* (c, s...) -> (1, c, s...) for an input of rank spatial + 1; others pass. lki_unbatch undoes it for the
 * output. */
lk_value *lki_batch(lk_value *x, int spatial_rank, bool *was_added);
lk_value *lki_unbatch(lk_value *y, bool was_added);

#endif
