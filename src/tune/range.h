/* What a parameter of a study may be: a range of numbers, or choices.
 *
 * A value is a double: the number itself, or the index of a choice. Numbers are rounded to six significant
 * digits, so that the value in a table or on a command line is the one that was tried. Plain data; any
 * thread. */
#ifndef LKI_TUNE_RANGE_H
#define LKI_TUNE_RANGE_H

#include <lockstep/random.h>

#include <stdbool.h>
#include <stdint.h>

typedef enum lki_range_kind { LKI_RANGE_FLOAT, LKI_RANGE_INT, LKI_RANGE_CHOICE } lki_range_kind;

typedef struct lki_range {
    lki_range_kind kind;
    double low, high; /* both included; of choices 0 and count - 1 */
    bool log;         /* the logarithm is uniform, not the number */
    double step;      /* between neighbours; 0: any number. Not with log, but for integers, where it is 1 */
    int64_t points;   /* so many values, evenly spaced (in the logarithm if `log`); 0: not said */
} lki_range;

/* Moves `high` down to the last number that is a whole number of steps above `low`. */
void lki_range_settle(lki_range *range);

/* How many values there are; 0: any number between the bounds. And the index-th, from the lowest. */
int64_t lki_range_count(const lki_range *range);
double lki_range_value(const lki_range *range, int64_t index);

/* A value from the whole range; all are equally likely, or their logarithms are. */
double lki_range_draw(const lki_range *range, lk_generator *generator);

/* The number as it is kept: six significant digits, inside the bounds; an integer, or a step, exactly. */
double lki_range_round(const lki_range *range, double number);

#endif
