/* Which values of a plan are in memory at once when that takes the most. */
#ifndef LKI_GRAPH_PEAK_H
#define LKI_GRAPH_PEAK_H

#include "graph/plan.h"

/* A value of the arena: the op and the layer (or NULL) that computed it. */
typedef struct lki_peak_value {
    const char *op, *layer;
    size_t nbytes;
} lki_peak_value;

/* The call at which most bytes of the arena are in use, and whose bytes those are, the largest first. */
typedef struct lki_peak {
    const char *op, *layer; /* of the call; the layer may be NULL */
    lki_section section;
    size_t nbytes;
    lki_peak_value *values;
    int value_count;
} lki_peak;

/* The texts belong to the plan; lki_free(out->values) frees the rest. */
lk_status lki_plan_find_peak(const lki_plan *plan, lki_peak *out);

#endif
