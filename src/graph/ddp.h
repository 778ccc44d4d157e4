/* Distributed data parallel: what the ddp pass needs to know about the flat gradients.
 *
 * Buckets (comm/rank_ops.h) follow the order in which the backward half finishes gradients, the last
 * parameters first; the first bucket is small, so that communication begins early. */
#ifndef LKI_GRAPH_DDP_H
#define LKI_GRAPH_DDP_H

#include "comm/rank_ops.h"
#include "graph/graph.h"

typedef struct lki_ddp {
    lki_bucket *buckets; /* in the order in which they are started */
    int bucket_count;
    bool polls; /* look after them between ops: engines with memory of their own have streams for that */
} lki_ddp;

/* A comm carries LK_COMM_MAX_REQUESTS collectives at a time, and what is not a bucket needs room, too. */
enum {
    LKI_BUCKET_NBYTES = 4 << 20,
    LKI_FIRST_BUCKET_DIVISOR = 4,
    LKI_BUCKETS_UNDER_WAY = LK_COMM_MAX_REQUESTS / 2
};

/* A bucket is closed as soon as it holds so many bytes. `bucket_nbytes` is the option, 0 the default. */
static inline int64_t lki_bucket_room(int index, int64_t bucket_nbytes)
{
    int64_t room = bucket_nbytes ? bucket_nbytes : (int64_t)LKI_BUCKET_NBYTES;
    return index == 0 ? room / LKI_FIRST_BUCKET_DIVISOR : room;
}

/* The pass: starts the averaging of each bucket as soon as its last gradient is there, moves it on between
 * the ops that follow, and waits for all before the end. */
lk_status lki_pass_ddp(lk_graph *graph, const lki_ddp *ddp);

/* batch_norm over the batches of all ranks of graph->sync_comm, out of smaller ops; the arguments are
 * lk_op_batch_norm's. */
lk_value *lki_record_sync_batch_norm(lk_value *x, lk_value *weight, lk_value *bias, lk_value *running_mean,
                                     lk_value *running_var, double momentum, double eps);

#endif
