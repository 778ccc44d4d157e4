#include "tune/parzen.h"

#include "base/memory.h"
#include "base/status.h"

#include <math.h>

enum { FULL_WEIGHTS = 25, NARROWEST = 100 };

/* ---- The space of the kernels ---- */

/* Where a value's cell ends, on one side (-1 or 1); the value itself for side 0. */
static double position(const lki_range *range, double value, int side)
{
    double half = range->kind == LKI_RANGE_INT && range->log ? 0.5 : range->step / 2;
    double span = range->log ? log(range->high) - log(range->low) : range->high - range->low;
    if (range->points) { /* their cells are even in the space of the kernels */
        double cell = range->points > 1 ? span / (double)(range->points - 1) : span > 0 ? span : 1;
        return (range->log ? log(value) : value) + side * cell / 2;
    }
    value += side * half;
    return range->log ? log(value) : value;
}

static bool has_cells(const lki_range *range)
{
    return range->points || range->step > 0 || range->kind == LKI_RANGE_INT;
}

static double value_at(const lki_range *range, double at)
{
    if (range->points) {
        double low = position(range, range->low, 0), high = position(range, range->high, 0);
        double index = high > low ? round((at - low) / (high - low) * (double)(range->points - 1)) : 0;
        double last = (double)(range->points - 1);
        return lki_range_value(range, (int64_t)(index < 0 ? 0 : index > last ? last : index));
    }
    return lki_range_round(range, range->log ? exp(at) : at);
}

/* ---- The kernels ---- */

/* All weigh the same up to 25; of more, the oldest count - 25 rise from 1 / count to 1. */
static void set_weights(lki_parzen *p)
{
    int trials = p->count - 1, old = trials - FULL_WEIGHTS;
    double sum = 1; /* the prior's */
    for (int i = 0; i < trials; i++) {
        double first = 1.0 / trials;
        p->weights[i] = i >= old ? 1 : old == 1 ? first : first + (1 - first) * i / (old - 1);
        sum += p->weights[i];
    }
    p->weights[trials] = 1;
    for (int i = 0; i < p->count; i++) p->weights[i] /= sum;
}

/* The kernels from the lowest centre to the highest; equal ones in their own order. */
static void sort_by_centre(const lki_parzen *p, int *order)
{
    for (int i = 0; i < p->count; i++) {
        int at = i;
        for (; at > 0 && p->centres[order[at - 1]] > p->centres[i]; at--) order[at] = order[at - 1];
        order[at] = i;
    }
}

/* The larger gap to a neighbour; beyond the outermost kernels the bounds are no neighbours, unless there are
 * but two. */
static lk_status set_widths(lki_parzen *p)
{
    int *order = LKI_NEW_ARRAY(int, p->count);
    if (!order) return LK_ERR_NOMEM;
    double span = p->high - p->low, narrowest = span / fmin(NARROWEST, 1.0 + p->count);
    sort_by_centre(p, order);
    for (int i = 0; i < p->count; i++) {
        double here = p->centres[order[i]];
        double left = here - (i > 0 ? p->centres[order[i - 1]] : p->low);
        double right = (i + 1 < p->count ? p->centres[order[i + 1]] : p->high) - here;
        double width = fmax(left, right);
        if (i == 0 && p->count >= 2) width = right;
        if (i + 1 == p->count && p->count >= 2) width = left;
        p->widths[order[i]] = fmin(fmax(width, narrowest), span);
    }
    p->widths[p->count - 1] = span; /* the prior's */
    lki_free(order);
    return LK_OK;
}

lk_status lki_parzen_init(lki_parzen *p, const lki_range *range, const double *values, int count)
{
    *p = (lki_parzen){.range = range, .count = count + 1};
    p->weights = LKI_NEW_ARRAY(double, p->count);
    p->centres = LKI_NEW_ARRAY(double, p->count);
    p->widths = LKI_NEW_ARRAY(double, p->count);
    lk_status status = p->weights && p->centres && p->widths ? LK_OK : LK_ERR_NOMEM;
    bool is_choice = range->kind == LKI_RANGE_CHOICE;
    if (!status) {
        p->low = is_choice ? range->low : position(range, range->low, -1);
        p->high = is_choice ? range->high : position(range, range->high, 1);
        for (int i = 0; i < count; i++) p->centres[i] = is_choice ? values[i] : position(range, values[i], 0);
        p->centres[count] = (p->low + p->high) / 2;
        set_weights(p);
        if (!is_choice) status = set_widths(p);
    }
    if (status) lki_parzen_fini(p);
    return status;
}

void lki_parzen_fini(lki_parzen *p)
{
    lki_free(p->weights);
    lki_free(p->centres);
    lki_free(p->widths);
    *p = (lki_parzen){0};
}

/* ---- Densities ---- */

/* P(a < Z < b) of a standard normal Z, from the side on which the two differ. */
static double normal_mass(double a, double b)
{
    if (a > 0) return normal_mass(-b, -a);
    return (erfc(-b * M_SQRT1_2) - erfc(-a * M_SQRT1_2)) / 2;
}

static double kernel(const lki_parzen *p, int k, double value)
{
    double centre = p->centres[k], width = p->widths[k];
    double inside = normal_mass((p->low - centre) / width, (p->high - centre) / width);
    if (has_cells(p->range)) {
        double left = fmax(position(p->range, value, -1), p->low);
        double right = fmin(position(p->range, value, 1), p->high);
        return normal_mass((left - centre) / width, (right - centre) / width) / inside;
    }
    double away = (position(p->range, value, 0) - centre) / width;
    return exp(-away * away / 2) / sqrt(2 * M_PI) / width / inside;
}

/* A trial's kernel: (1/kernels + 1 for its own choice) / (choices/kernels + 1); the prior's is even. */
static double choice_kernel(const lki_parzen *p, int k, double value)
{
    double choices = p->range->high + 1, share = 1.0 / p->count;
    if (k == p->count - 1) return 1 / choices;
    return (share + (p->centres[k] == value)) / (choices * share + 1);
}

double lki_parzen_log(const lki_parzen *p, double value)
{
    double sum = 0;
    for (int k = 0; k < p->count; k++)
        sum += p->weights[k] *
               (p->range->kind == LKI_RANGE_CHOICE ? choice_kernel(p, k, value) : kernel(p, k, value));
    return log(sum);
}

/* ---- Drawing ---- */

static int draw_kernel(const lki_parzen *p, lk_generator *generator)
{
    double at = lk_generator_f64(generator);
    for (int k = 0; k + 1 < p->count; k++) {
        if (at < p->weights[k]) return k;
        at -= p->weights[k];
    }
    return p->count - 1;
}

/* Box and Muller's. */
static double draw_normal(lk_generator *generator)
{
    double radius = sqrt(-2 * log1p(-lk_generator_f64(generator)));
    return radius * cos(2 * M_PI * lk_generator_f64(generator));
}

static double draw_choice(const lki_parzen *p, int k, lk_generator *generator)
{
    double at = lk_generator_f64(generator);
    for (int choice = 0; choice < (int)p->range->high; choice++) {
        double mass = choice_kernel(p, k, choice);
        if (at < mass) return choice;
        at -= mass;
    }
    return p->range->high;
}

/* A centre lies between the bounds and no kernel is wider than they are apart: at least one draw in three is
 * inside. */
double lki_parzen_draw(const lki_parzen *p, lk_generator *generator)
{
    int k = draw_kernel(p, generator);
    double at;
    if (p->range->kind == LKI_RANGE_CHOICE) return draw_choice(p, k, generator);
    do {
        at = p->centres[k] + p->widths[k] * draw_normal(generator);
    } while (at < p->low || at > p->high);
    return value_at(p->range, at);
}
