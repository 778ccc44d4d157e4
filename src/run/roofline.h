/* What this machine does at most, measured with the run's engine: the rate of a large product, and the
 * traffic of an elementwise op over as many bytes as the op in question moves, so that what lies in a cache
 * is held against that cache. */
#ifndef LKI_RUN_ROOFLINE_H
#define LKI_RUN_ROOFLINE_H

#include <lockstep/sys/engine.h>

#include "base/trace.h"

enum { LKI_ROOF_SIZES = 48 };

/* Zero: nothing is measured yet. */
typedef struct lki_roofline {
    lk_engine *engine;
    double flops[LK_BOOL + 1];     /* per second */
    double nbytes[LKI_ROOF_SIZES]; /* per second, over 2^i bytes */
} lki_roofline;

/* The least time that the site's work takes, and what limits it; below 0 if that is not known. */
lk_status lki_roofline_seconds(lki_roofline *roofline, const lki_trace_site *site, double *seconds,
                               const char **limit);

#endif
