#include "tune/range.h"

#include "base/number_text.h"

#include <math.h>

enum { NUMBER_CAPACITY = 64 };

static double clamp(const lki_range *range, double number)
{
    return number < range->low ? range->low : number > range->high ? range->high : number;
}

static double six_digits(double number)
{
    char text[NUMBER_CAPACITY];
    lki_snprintf(text, sizeof text, "%.6g", number);
    return lki_strtod(text, NULL);
}

static bool is_log_integer(const lki_range *range)
{
    return range->kind == LKI_RANGE_INT && range->log;
}

void lki_range_settle(lki_range *range)
{
    if (range->step <= 0) return;
    /* A step such as 0.1 is not exact: a little less than a whole number of steps is one. */
    double steps = floor((range->high - range->low) / range->step + 1e-8);
    range->high = range->low + steps * range->step;
    if (range->kind == LKI_RANGE_FLOAT) range->high = six_digits(range->high);
}

int64_t lki_range_count(const lki_range *range)
{
    if (range->points) return range->points;
    if (range->step <= 0) return 0;
    return (int64_t)floor((range->high - range->low) / range->step + 0.5) + 1;
}

double lki_range_value(const lki_range *range, int64_t index)
{
    double part = range->points > 1 ? (double)index / (double)(range->points - 1) : 0;
    if (!range->points) return lki_range_round(range, range->low + (double)index * range->step);
    double number = range->log ? exp(log(range->low) + part * (log(range->high) - log(range->low)))
                               : range->low + part * (range->high - range->low);
    return lki_range_round(range, number);
}

double lki_range_round(const lki_range *range, double number)
{
    if (range->kind == LKI_RANGE_CHOICE) return clamp(range, round(number));
    if (range->step > 0) number = range->low + round((number - range->low) / range->step) * range->step;
    return clamp(range, range->kind == LKI_RANGE_INT ? round(number) : six_digits(number));
}

double lki_range_draw(const lki_range *range, lk_generator *generator)
{
    int64_t count = lki_range_count(range);
    /* Half of the lowest and of the highest integer's share lies beyond them. */
    double beyond = is_log_integer(range) ? 0.5 : 0;
    if (count && !is_log_integer(range)) return lki_range_value(range, lk_randint(count, generator));
    double low = range->log ? log(range->low - beyond) : range->low;
    double high = range->log ? log(range->high + beyond) : range->high;
    double number = low + lk_generator_f64(generator) * (high - low);
    return lki_range_round(range, range->log ? exp(number) : number);
}
