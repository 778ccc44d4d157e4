/* A series as a line of a chart: smoothed, cut to what is visible, and thinned to the chart's width without
 * losing a peak. Not thread-safe. */
#ifndef LKI_BOARD_CURVE_H
#define LKI_BOARD_CURVE_H

#include "board/series.h"
#include "board/text_out.h"

typedef enum lki_board_x { LKI_BOARD_X_STEP, LKI_BOARD_X_RELATIVE, LKI_BOARD_X_TIME } lki_board_x;

typedef struct lki_board_view {
    lki_board_x x;
    double from, to; /* what of x is visible; NaN: no limit */
    double smooth;   /* 0: not at all, up to less than 1: the weight of what was before, as TensorBoard's */
    int buckets;     /* of x; each gives at most its lowest and its highest value */
} lki_board_view;

/* {"n":…,"bad":…,"x":[…],"y":[…],"s":[…]}: n points in all, of which `bad` are not finite; "s" only if
 * smoothed. A series without times has no points over time. */
void lki_board_put_curve(lki_text_out *out, const lki_board_series *series, const lki_board_view *view);

#endif
