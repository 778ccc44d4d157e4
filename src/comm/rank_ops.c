#include "comm/rank_ops.h"

#include "base/status.h"

#include <string.h>

static lk_status all_reduce(const lk_call *call)
{
    const lk_tensor *x = &call->in[0], *y = &call->out[0];
    lk_comm_op op = {.kind = LK_COMM_ALL_REDUCE,
                     .reduce = LK_REDUCE_SUM,
                     .dtype = x->dtype,
                     .send = x->data,
                     .recv = y->data,
                     .count = lk_tensor_count(x)};
    return lk_comm_run(call->attr->exchange.comm, &op);
}

static lk_status reduce_start(const lk_call *call)
{
    lki_bucket *bucket = call->attr->exchange.bucket;
    lk_comm_op op = {.kind = LK_COMM_ALL_REDUCE,
                     .reduce = LK_REDUCE_AVG,
                     .dtype = bucket->dtype,
                     .send = bucket->data,
                     .recv = bucket->data,
                     .count = bucket->count,
                     .window = bucket->window};
    return lk_comm_start(bucket->comm, &op, &bucket->request);
}

/* A look at one request moves all of them on: what a comm does without a thread of its own, it does now. */
static lk_status reduce_poll(const lk_call *call)
{
    lki_bucket *bucket = call->attr->exchange.bucket;
    bool done = false;
    if (!bucket->request) return LK_OK;
    lk_status status = lk_comm_test(bucket->comm, bucket->request, &done);
    if (status != LK_OK || done) bucket->request = NULL; /* it has been given back */
    return status;
}

static lk_status reduce_wait(const lk_call *call)
{
    lki_bucket *bucket = call->attr->exchange.bucket;
    lk_comm_request *request = bucket->request;
    bucket->request = NULL;
    if (!request) return LK_OK; /* a poll has seen its end */
    return lk_comm_wait(bucket->comm, request);
}

static lk_status assign(const lk_call *call)
{
    memmove(call->in[0].data, call->in[1].data, lk_tensor_nbytes(&call->in[0]));
    return LK_OK;
}

lk_status lki_host_prepare(lk_call *call)
{
    switch (call->op) {
    case LK_OP_ALL_REDUCE: call->run = all_reduce; return LK_OK;
    case LK_OP_REDUCE_START: call->run = reduce_start; return LK_OK;
    case LK_OP_REDUCE_POLL: call->run = reduce_poll; return LK_OK;
    case LK_OP_REDUCE_WAIT: call->run = reduce_wait; return LK_OK;
    case LK_OP_ASSIGN: call->run = assign; return LK_OK;
    default: return lki_fail(LK_ERR_UNSUPPORTED, "%s is not an op of the host", lk_op_name(call->op));
    }
}
