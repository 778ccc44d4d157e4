/* The one place where metrics meet the other ranks.
 *
 * The state of a metric is sums of integers and exact sums, which are added up without rounding, extremes,
 * and joined arrays, which are laid one after the other in rank order. So a metric over all ranks is the
 * metric of one rank that had seen every batch, bit for bit, however the batches fell. All metrics of a
 * loader go through together: at most five collectives, whatever their number. */
#ifndef LKI_METRIC_ACROSS_RANKS_H
#define LKI_METRIC_ACROSS_RANKS_H

#include <lockstep/metric.h>

/* How to reach the other ranks; the runner fills it in from its comm. Calls come from the caller's thread, in
 * the same order on every rank. */
typedef struct lki_metric_collectives {
    int rank, world_size;
    void *context;
    /* Adds up over the ranks, in place. */
    lk_status (*allreduce_sum_i64)(void *context, int64_t *data, int64_t count);
    /* Every rank gives nbytes; out receives world_size × nbytes in rank order. nbytes is the same on all
     * ranks. */
    lk_status (*allgather)(void *context, void *out, const void *in, size_t nbytes);
} lki_metric_collectives;

/* After this every rank's metrics hold the state of all ranks until they are reset. Every rank passes the
 * same list. With one rank, or for a metric that has been reduced already, nothing happens. */
lk_status lki_metric_reduce(lk_metric *const *metrics, int metric_count,
                            const lki_metric_collectives *collectives);

#endif
