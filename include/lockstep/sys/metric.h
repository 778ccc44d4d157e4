/* Metrics of your own: what a metric keeps, and how the ranks' states become one.
 *
 * A metric is a context with an lk_metric_ops: `update` looks at a batch, `compute` makes the values, and
 * `parts` lists what the context keeps, each part with the way it joins. At the end of a loader the library
 * joins the parts of all ranks; `compute` then sees the state of one rank that had seen every batch. The
 * parts are also what a checkpoint inside an epoch keeps, so resume needs nothing more:
 *
 *     typedef struct peak { double highest; int64_t seen; } peak;
 *     static int parts(void *context, lk_metric_part *out)
 *     {
 *         peak *own = context;
 *         out[0] = (lk_metric_part){LK_JOIN_MAX, LK_F64, &own->highest, 1};
 *         out[1] = (lk_metric_part){LK_JOIN_SUM, LK_I64, &own->seen, 1};
 *         return 2;
 *     }
 *
 * A sum of doubles depends on the order of its additions, and so on how samples were dealt to the ranks. Keep
 * counts as i64, and sums of fractions as lk_exact_sum: then a metric has the same bits at any number of
 * ranks. Thread rule: a metric belongs to one thread. */
#ifndef LOCKSTEP_SYS_METRIC_H
#define LOCKSTEP_SYS_METRIC_H

#include <lockstep/metric.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { LK_METRIC_MAX_PARTS = 8 };

/* The sum of any number of doubles, without rounding: the order of the additions does not show, nor who made
 * them. Zeroed memory is the sum of none. */
typedef struct lk_exact_sum {
    int64_t words[72]; /* metric/exact.c says what they hold */
} lk_exact_sum;

void lk_exact_sum_add(lk_exact_sum *sum, double value);
/* Adds a * b without rounding the product, unless it is below the smallest normal number. */
void lk_exact_sum_add_product(lk_exact_sum *sum, double a, double b);
/* Adds another sum. */
void lk_exact_sum_merge(lk_exact_sum *sum, const lk_exact_sum *other);
/* The double nearest to the sum. Infinities and NaN give what adding them gives. */
double lk_exact_sum_value(const lk_exact_sum *sum);

#ifdef __cplusplus
}
#endif
#endif
