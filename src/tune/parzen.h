/* The density of a parameter's values in some trials: a mixture of one kernel per trial and a broad prior, as
 * the tree-structured Parzen estimator (TPE) uses it.
 *
 * Numbers: normal distributions, cut off at the bounds; a kernel is as wide as the larger gap to its
 * neighbours, but neither narrower than 1 / min(100, 1 + kernels) of the range nor wider than it. A number
 * with steps, and an integer, has the mass of its cell. Choices: each kernel gives its own choice 1 more than
 * the share of the prior. The older of more than 25 trials weigh less. One thread. */
#ifndef LKI_TUNE_PARZEN_H
#define LKI_TUNE_PARZEN_H

#include "tune/range.h"

#include <lockstep/status.h>

typedef struct lki_parzen {
    const lki_range *range; /* borrowed */
    int count;              /* kernels, the prior last */
    double *weights;        /* (count), 1 in all */
    double *centres;        /* (count): in the logarithm if the range is, or the indices of choices */
    double *widths;         /* (count): standard deviations; unused by choices */
    double low, high;       /* the bounds of `centres`, with half a cell beyond the outermost values */
} lki_parzen;

/* `values` (count) are those of the trials, the oldest first. */
lk_status lki_parzen_init(lki_parzen *parzen, const lki_range *range, const double *values, int count);
void lki_parzen_fini(lki_parzen *parzen);

double lki_parzen_draw(const lki_parzen *parzen, lk_generator *generator);

/* The logarithm of the density of a value, or of its probability if the values can be counted. */
double lki_parzen_log(const lki_parzen *parzen, double value);

#endif
