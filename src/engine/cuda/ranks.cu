/* The ops between ranks, and assign.
 *
 * A comm that takes the GPU's memory gets its collectives on a stream, where a recording takes them over:
 * nothing waits for them but the work that needs their results. Any other comm gets copies in pinned memory:
 * the host waits for each, while the GPU goes on with what does not depend on it. */
#include "engine/cuda/cuda.cuh"

#include "graph/ddp.h"

#include <sched.h>
#include <stdio.h>
#include <time.h>

enum { SPIN_COUNT = 20000, SLEEP_NS = 20000, YIELD_EVERY = 32 };
static const int64_t drain_ns = 2000000000;

/* What a prepared call holds. */
typedef struct ranks_state {
    lki_cuda *cuda;
    bool looked_after; /* counted in cuda->comm_count */
    void *host;        /* pinned; NULL where the comm takes the GPU's memory */
    size_t nbytes;
    cudaEvent_t there; /* the copy in `host` is complete */
} ranks_state;

static ranks_state *state_of(const lk_call *call)
{
    return (ranks_state *)call->state;
}

static void free_ranks_state(void *data)
{
    ranks_state *state = (ranks_state *)data;
    if (!state) return;
    if (state->host || state->there) {
        cudaStreamSynchronize(state->cuda->compute); /* a copy may be under way */
        cudaStreamSynchronize(state->cuda->side);
    }
    cudaFreeHost(state->host);
    if (state->there) cudaEventDestroy(state->there);
    if (state->looked_after && --state->cuda->comm_count == 0) state->cuda->comm = NULL;
    lki_host->free(state);
}

static lk_status new_state(lki_cuda *cuda, lk_call *call, lk_comm *comm, size_t nbytes)
{
    ranks_state *state = (ranks_state *)lki_cuda_new_state(call, sizeof *state);
    if (!state) return LK_ERR_NOMEM;
    call->free_state = free_ranks_state;
    state->cuda = cuda;
    state->nbytes = nbytes;
    if (comm->ops->on_device) {
        cuda->comm = comm;
        cuda->comm_count++;
        state->looked_after = true;
        return LK_OK;
    }
    LKI_CUDA(cudaEventCreateWithFlags(&state->there, cudaEventDisableTiming));
    if (!nbytes) return LK_OK;
    return lki_cuda_malloc_host(&state->host, nbytes, cudaHostAllocDefault, "gradients on their way");
}

static lk_status not_recorded(const lki_cuda *cuda, const lk_comm *comm)
{
    return cuda->recording ? lki_cuda_fail(LK_ERR_UNSUPPORTED, "comm %s cannot be part of a recorded program",
                                           comm->ops->name)
                           : LK_OK;
}

/* For a comm that knows streams it is over for the host as soon as it has begun. */
static lk_status run_collective(lk_comm *comm, const lk_comm_op *op)
{
    lk_comm_request *request;
    LKI_TRY(lki_host->comm_start(comm, op, &request));
    return lki_host->comm_wait(comm, request);
}

static lk_comm_op reduction(lk_reduce reduce, lk_dtype dtype, const void *send, void *recv, int64_t count)
{
    lk_comm_op op = {};
    op.kind = LK_COMM_ALL_REDUCE;
    op.reduce = reduce;
    op.dtype = dtype;
    op.send = send;
    op.recv = recv;
    op.count = count;
    return op;
}

/* ---- all_reduce ---- */

static lk_status all_reduce(const lk_call *call)
{
    lki_cuda *cuda = lki_cuda_of(call);
    ranks_state *state = state_of(call);
    const lk_tensor *x = &call->in[0], *y = &call->out[0];
    lk_comm_op op = reduction(LK_REDUCE_SUM, x->dtype, x->data, y->data, lki_cuda_count(x));
    if (!y->data) /* nobody wants it, but the others wait for this rank's part */
        return lki_cuda_fail(LK_ERR_UNSUPPORTED, "all_reduce: its output is always wanted");
    if (call->attr->exchange.comm->ops->on_device) {
        op.stream = cuda->compute;
        return run_collective(call->attr->exchange.comm, &op);
    }
    LKI_TRY(not_recorded(cuda, call->attr->exchange.comm));
    op.send = op.recv = state->host;
    op.blocking = true;
    if (state->nbytes)
        LKI_CUDA(cudaMemcpyAsync(state->host, x->data, state->nbytes, cudaMemcpyDeviceToHost, cuda->compute));
    LKI_CUDA(cudaStreamSynchronize(cuda->compute));
    LKI_TRY(run_collective(call->attr->exchange.comm, &op));
    if (state->nbytes)
        LKI_CUDA(cudaMemcpyAsync(y->data, state->host, state->nbytes, cudaMemcpyHostToDevice, cuda->compute));
    return LK_OK;
}

/* ---- Buckets of gradients ---- */

static lk_status reduce_start(const lk_call *call)
{
    lki_cuda *cuda = lki_cuda_of(call);
    lki_bucket *bucket = call->attr->exchange.bucket;
    ranks_state *state = state_of(call);
    LKI_TRY(lki_cuda_fork(cuda));
    if (bucket->comm->ops->on_device) {
        lk_comm_op op = reduction(LK_REDUCE_AVG, bucket->dtype, bucket->data, bucket->data, bucket->count);
        op.stream = cuda->side;
        return run_collective(bucket->comm, &op);
    }
    LKI_TRY(not_recorded(cuda, bucket->comm));
    if (state->nbytes)
        LKI_CUDA(
            cudaMemcpyAsync(state->host, bucket->data, state->nbytes, cudaMemcpyDeviceToHost, cuda->side));
    LKI_CUDA(cudaEventRecord(state->there, cuda->side));
    bucket->staging = state;
    return LK_OK;
}

/* The copy back takes its place behind the backward half, and before what uses the gradients. */
static lk_status reduce_wait(const lk_call *call)
{
    lki_cuda *cuda = lki_cuda_of(call);
    lki_bucket *bucket = call->attr->exchange.bucket;
    if (bucket->comm->ops->on_device) return lki_cuda_join(cuda);
    ranks_state *state = (ranks_state *)bucket->staging;
    bucket->staging = NULL;
    if (!state) return lki_cuda_fail(LK_ERR_INVALID, "reduce_wait: nothing was started");
    LKI_CUDA(cudaEventSynchronize(state->there));
    lk_comm_op op = reduction(LK_REDUCE_AVG, bucket->dtype, state->host, state->host, bucket->count);
    op.blocking = true;
    LKI_TRY(run_collective(bucket->comm, &op));
    LKI_TRY(lki_cuda_join(cuda));
    if (state->nbytes)
        LKI_CUDA(
            cudaMemcpyAsync(bucket->data, state->host, state->nbytes, cudaMemcpyHostToDevice, cuda->compute));
    return LK_OK;
}

/* ---- assign ---- */

static lk_status assign(const lk_call *call)
{
    lki_cuda *cuda = lki_cuda_of(call);
    const lk_tensor *to = &call->in[0], *from = &call->in[1];
    size_t nbytes = (size_t)lki_cuda_count(to) * lki_cuda_dtype_nbytes(to->dtype);
    if (nbytes == 0 || to->data == from->data) return LK_OK;
    LKI_CUDA(cudaMemcpyAsync(to->data, from->data, nbytes, cudaMemcpyDeviceToDevice, cuda->compute));
    return LK_OK;
}

lk_status lki_cuda_prepare_ranks(lki_cuda *cuda, lk_call *call)
{
    const lki_bucket *bucket = call->attr->exchange.bucket;
    switch (call->op) {
    case LK_OP_ALL_REDUCE:
        call->run = all_reduce;
        return new_state(cuda, call, call->attr->exchange.comm,
                         (size_t)lki_cuda_count(&call->in[0]) * lki_cuda_dtype_nbytes(call->in[0].dtype));
    case LK_OP_REDUCE_START:
        call->run = reduce_start;
        return new_state(cuda, call, bucket->comm,
                         (size_t)bucket->count * lki_cuda_dtype_nbytes(bucket->dtype));
    case LK_OP_REDUCE_WAIT: call->run = reduce_wait; return LK_OK;
    case LK_OP_ASSIGN: call->run = assign; return LK_OK;
    default: return LK_OK; /* the caller says that there is none */
    }
}

/* ---- Waiting with other ranks ---- */

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* A rank that stays away keeps the GPU waiting, and nobody else would notice. */
static lk_status give_up(lki_cuda *cuda, int64_t timeout_ms)
{
    char text[160];
    snprintf(text, sizeof text, "no end of a step's collectives after %.1f s on rank %d of %d",
             (double)timeout_ms / 1e3, cuda->comm->rank, cuda->comm->size);
    lki_host->comm_abort(cuda->comm, text);
    lki_host->comm_check(cuda->comm); /* remembers it */
    return lki_cuda_fail(LK_ERR_TIMEOUT, "%s", text);
}

/* The sentence of the comm's failure, once the GPU has let go of the memory: it does so by itself when a comm
 * fails, and is not waited for without end. */
static lk_status failed(lki_cuda *cuda, lk_status status)
{
    int64_t deadline_ns = now_ns() + drain_ns;
    struct timespec moment = {0, SLEEP_NS};
    while (cudaStreamQuery(cuda->compute) == cudaErrorNotReady && now_ns() < deadline_ns)
        nanosleep(&moment, NULL);
    return status;
}

lk_status lki_cuda_wait(lki_cuda *cuda)
{
    if (!cuda->comm) {
        LKI_CUDA(cudaStreamSynchronize(cuda->compute));
        return LK_OK;
    }
    int64_t timeout_ms = cuda->comm->timeout_ms, deadline_ns = 0;
    for (int turn = 0;; turn++) {
        cudaError_t error = cudaStreamQuery(cuda->compute);
        if (error == cudaSuccess) return lki_host->comm_check(cuda->comm);
        if (error != cudaErrorNotReady) return lki_cuda_error(error, "a step");
        if (turn < SPIN_COUNT) {
            if (turn % YIELD_EVERY == 0) sched_yield(); /* the comm's own threads may have no other core */
            continue;
        }
        if (!deadline_ns) deadline_ns = now_ns() + timeout_ms * 1000000;
        lk_status status = lki_host->comm_check(cuda->comm);
        if (status == LK_OK && now_ns() >= deadline_ns) status = give_up(cuda, timeout_ms);
        if (status != LK_OK) return failed(cuda, status);
        struct timespec moment = {0, SLEEP_NS};
        nanosleep(&moment, NULL);
    }
}
