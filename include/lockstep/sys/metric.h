/* Metrics of your own: what a metric keeps, and how the ranks' states become one.
 *
 * `update` looks at a batch and changes your context, `compute` makes values of it, and `parts`
 * lists what of the context is its state, each with the way it joins. The library does the rest: it
 * resets the parts before each pass over a loader, joins those of all ranks at the loader's end, so
 * that `compute` sees the state of one rank that had seen every batch, and keeps them in a
 * checkpoint inside an epoch:
 *
 *     static struct { double highest; int64_t seen; } peak;
 *     static const char *const names[] = {"max_logit", "seen", NULL};
 *     lk_status update(void *context, const lk_tensor *outputs, const lk_tensor *targets);
 *     lk_status compute(void *context, double *values);
 *     lk_metric *metric = lk_custom_metric(.name = "peak", .context = &peak, .value_names = names,
 *                                          .update = update, .compute = compute,
 *                                          .parts = {{LK_JOIN_MAX, LK_F64, &peak.highest, 1},
 *                                                    {LK_JOIN_SUM, LK_I64, &peak.seen, 1}});
 *     lk_train(runner, .callbacks = lk_callbacks(lk_metric_callback(metric, NULL, NULL)));
 *
 * Neither function needs to know of ranks, and padding (lk_batch.padding) never reaches `update`. A
 * sum of doubles depends on the order of its additions, and so on how samples were dealt to the
 * ranks. Keep counts as i64, and sums of fractions as lk_exact_sum: then a metric has the same bits
 * at any number of ranks. Thread rule: a metric belongs to one thread. */
#ifndef LOCKSTEP_SYS_METRIC_H
#define LOCKSTEP_SYS_METRIC_H

#include <lockstep/arguments.h>
#include <lockstep/metric.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The sum of any number of doubles, without rounding: the order of the additions does not show, nor
 * who made them. Zeroed memory is the sum of none. */
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

/* An array that grows, for what must be kept sample by sample. Zeroed memory is empty. */
typedef struct lk_metric_array {
    void *data;
    int64_t count, capacity;
    size_t element_nbytes; /* the library's: that of the part's dtype */
} lk_metric_array;

/* Adds `count` elements to an array that is a part of a metric. */
lk_status lk_metric_array_append(lk_metric_array *array, const void *elements, int64_t count);

/* How a part of the ranks' states becomes one, and what it is before the first batch. */
typedef enum lk_join {
    LK_JOIN_SUM,       /* 0. f64: added without rounding, then rounded once */
    LK_JOIN_EXACT_SUM, /* the sum of none; data is lk_exact_sum[count], and dtype does not matter */
    LK_JOIN_MAX,       /* the lowest number there is: -inf. i64 or f64; a NaN stays */
    LK_JOIN_MIN,       /* the highest: inf */
    /* Empty; data is an lk_metric_array of dtype: rank after rank. Its memory is the metric's. */
    LK_JOIN_CONCAT
} lk_join;

typedef struct lk_metric_part {
    lk_join join;
    lk_dtype dtype;
    void *data;    /* stays where it is as long as the metric lives; NULL ends the list */
    int64_t count; /* of elements, the same on all ranks; CONCAT: does not matter */
} lk_metric_part;

enum { LK_METRIC_MAX_PARTS = 8 };

typedef struct lk_custom_metric_options {
    size_t struct_size;
    const char *name; /* for error sentences */
    void *context;
    const char *const *value_names; /* at least one; NULL-terminated */
    /* The batch's samples that count: outputs (samples, ...) and targets, which are NULL where the
     * batch has none. Called with at least one sample. */
    lk_status (*update)(void *context, const lk_tensor *outputs, const lk_tensor *targets);
    /* Writes one value per name. Also called before any batch was seen. */
    lk_status (*compute)(void *context, double *values);
    void (*reset)(void *context); /* optional: what is not among the parts */
    void (*free)(void *context);  /* optional: called once, also if the constructor fails */
    lk_metric_part parts[LK_METRIC_MAX_PARTS];
    const char *prefix, *suffix; /* put around every name */
} lk_custom_metric_options;

/* NULL with the reason where something is missing or a part cannot be joined so. Texts are copied.
 */
#define lk_custom_metric(...) LK_CALL0_(lk_custom_metric_with, lk_custom_metric_options, __VA_ARGS__)
lk_metric *lk_custom_metric_with(const lk_custom_metric_options *options);

#ifdef __cplusplus
}
#endif
#endif
