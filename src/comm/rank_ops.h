/* The ops of a plan that talk to other ranks, and assign, which ends a batch norm over all ranks: the same
 * for every engine whose memory is the host's. */
#ifndef LKI_COMM_RANK_OPS_H
#define LKI_COMM_RANK_OPS_H

#include <lockstep/graph.h>
#include <lockstep/sys/comm.h>
#include <lockstep/sys/engine.h>

/* A slice of the flat gradients that travels as a whole: nothing is copied to communicate. */
typedef struct lki_bucket {
    lk_comm *comm;
    lk_dtype dtype;
    void *data;
    int64_t count;
    const lk_comm_window *window; /* that it lies in; NULL: in memory of this rank's own */
    lk_param **params;            /* whose gradients lie in it */
    int param_count;
    lk_comm_request *request; /* while it is under way */
    void *staging;            /* while it is under way on an engine whose memory the comm cannot read */
} lki_bucket;

/* Sets call->run. LK_ERR_UNSUPPORTED for other ops. */
lk_status lki_host_prepare(lk_call *call);

#endif
