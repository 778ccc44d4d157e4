#include "optim/suggest_lr.h"

#include <math.h>

enum { LEAST_STEPS = 8 };

/* The mean of the losses around step i, less of them at the ends. A loss that is not finite ends the test. */
static double mean_around(const double *losses, int64_t count, int64_t i, int64_t reach)
{
    double sum = 0;
    if (reach > i) reach = i;
    if (reach > count - 1 - i) reach = count - 1 - i;
    for (int64_t k = i - reach; k <= i + reach; k++) sum += losses[k];
    return sum / (double)(2 * reach + 1);
}

double lki_suggest_lr(const double *rates, const double *losses, int64_t count, double *smoothed)
{
    int64_t finite = 0, lowest = 0;
    double best = NAN, steepest = 0, least = INFINITY;
    while (finite < count && isfinite(losses[finite])) finite++;
    int64_t reach = finite / 25 + 1;
    for (int64_t i = 0; i < count; i++) {
        double mean = i < finite ? mean_around(losses, finite, i, reach) : NAN;
        if (smoothed) smoothed[i] = mean;
        if (!(mean < least)) continue;
        least = mean;
        lowest = i;
    }
    if (finite < LEAST_STEPS) return NAN;
    for (int64_t i = reach; i + reach <= lowest; i++) {
        double width = log(rates[i + reach] / rates[i - reach]);
        double fall =
            mean_around(losses, finite, i + reach, reach) - mean_around(losses, finite, i - reach, reach);
        if (!(width > 0) || !(fall / width < steepest)) continue;
        steepest = fall / width;
        best = rates[i];
    }
    return best;
}
