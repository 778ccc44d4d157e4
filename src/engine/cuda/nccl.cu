/* NCCL behind the comm's ops.
 *
 * Collectives are enqueued in the order in which they are started: on the caller's stream where he names one,
 * else on a stream of the comm's own, with an event for the end. Memory of the host travels through pinned
 * memory and a buffer on the device, both kept with the request.
 *
 * The communicator is a non-blocking one: no call of NCCL waits for a peer, so all can be given up from
 * another thread. Whoever gives up takes the communicator out of the comm under the lock: nobody uses it from
 * then on, and what runs on the device ends by itself. */
#include "engine/cuda/nccl.cuh"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    NAME_WAIT_MS = 3000, /* for the monitor to say who has died */
    SPIN_COUNT = 2000,   /* tests in a row before the core is given away */
    LOOK_EVERY = 64,     /* tests in a row between looks at NCCL's own state */
    LEAST_STAGING = 1 << 16,
};

/* What a request's scratch[0] says: nothing to wait for, an event, or an event and then a copy to the host.
 */
enum work_state { AT_ONCE, ON_DEVICE, ON_HOST };

static lki_nccl_comm *self_of(lk_comm *comm)
{
    return (lki_nccl_comm *)comm->context;
}

int64_t lki_nccl_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void lki_nccl_sleep_us(int us)
{
    struct timespec turn = {0, us * 1000L};
    nanosleep(&turn, NULL);
}

void lki_nccl_signals_off(sigset_t *before)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, before);
}

void lki_nccl_signals_on(const sigset_t *before)
{
    pthread_sigmask(SIG_SETMASK, before, NULL);
}

/* ---- Failing ---- */

static bool has_failed(lki_nccl_comm *self)
{
    return __atomic_load_n(&self->failed, __ATOMIC_ACQUIRE);
}

/* The first sentence counts. What runs on the device, here and so on the peers, comes to an end. */
static void give_up(lki_nccl_comm *self, const char *sentence)
{
    pthread_mutex_lock(&self->lock);
    ncclComm_t nccl = self->nccl;
    self->nccl = NULL;
    if (!self->failed) {
        snprintf(self->sentence, sizeof self->sentence, "%s", sentence);
        __atomic_store_n(&self->failed, true, __ATOMIC_RELEASE);
    }
    if (nccl) lki_nccl_start_abort(self, nccl);
    pthread_mutex_unlock(&self->lock);
}

void lki_nccl_fail(lk_comm *comm, const char *sentence)
{
    give_up(self_of(comm), sentence);
}

static void nccl_abort(lk_comm *comm, const char *reason)
{
    lki_nccl_comm *self = self_of(comm);
    char text[512];
    if (self->options.tell) {
        snprintf(text, sizeof text, "rank %d gave up: %s", comm->rank, reason);
        self->options.tell(self->options.context, text);
    }
    give_up(self, reason);
}

/* Names the rank that failed where the monitor knows it; NCCL itself knows only connections. */
static lk_status failure(lki_nccl_comm *self)
{
    char text[512];
    const lki_nccl_options *options = &self->options;
    if (options->failure && options->failure(options->context, NAME_WAIT_MS, text, sizeof text))
        return lki_cuda_fail(LK_ERR_PEER, "%s", text);
    return lki_cuda_fail(LK_ERR_PEER, "nccl: %s", self->sentence);
}

static lk_status nccl_failed(lki_nccl_comm *self, ncclResult_t result, const char *what)
{
    char text[400];
    snprintf(text, sizeof text, "%s: %s", what, self->library->GetErrorString(result));
    give_up(self, text);
    return failure(self);
}

lk_status lki_nccl_look(lki_nccl_comm *self, ncclResult_t *state)
{
    ncclResult_t asked = ncclSuccess;
    *state = ncclSuccess;
    pthread_mutex_lock(&self->lock);
    bool here = self->nccl != NULL;
    if (here) asked = self->library->CommGetAsyncError(self->nccl, state);
    pthread_mutex_unlock(&self->lock);
    if (!here) return failure(self);
    if (asked != ncclSuccess) *state = asked;
    if (*state == ncclSuccess || *state == ncclInProgress) return LK_OK;
    return nccl_failed(self, *state, "a collective failed");
}

/* The others are told: this rank's part will never come. */
static lk_status not_begun(lki_nccl_comm *self)
{
    char text[160];
    snprintf(text, sizeof text, "nccl: not even begun after %.1f s on rank %d of %d",
             (double)self->comm->timeout_ms / 1e3, self->comm->rank, self->comm->size);
    nccl_abort(self->comm, text);
    return lki_cuda_fail(LK_ERR_TIMEOUT, "%s", text);
}

/* Until NCCL has enqueued what it was told to. It waits for no peer in this, but for what threads of its own
 * do. */
static lk_status settle(lki_nccl_comm *self)
{
    int64_t deadline_ms = 0;
    for (int turn = 0;; turn++) {
        ncclResult_t state;
        LKI_TRY(lki_nccl_look(self, &state));
        if (state == ncclSuccess) return LK_OK;
        if (turn < SPIN_COUNT) {
            sched_yield();
            continue;
        }
        if (!deadline_ms) deadline_ms = lki_nccl_now_ms() + self->comm->timeout_ms;
        if (lki_nccl_now_ms() >= deadline_ms) return not_begun(self);
        lki_nccl_sleep_us(50);
    }
}

/* ---- Enqueueing ---- */

static ncclDataType_t type_of(lk_dtype dtype)
{
    switch (dtype) {
    case LK_F32: return ncclFloat32;
    case LK_F64: return ncclFloat64;
    case LK_BF16: return ncclBfloat16;
    case LK_F16: return ncclFloat16;
    case LK_I64: return ncclInt64;
    case LK_I32: return ncclInt32;
    case LK_U8:
    case LK_BOOL: return ncclUint8;
    }
    return ncclUint8;
}

static ncclRedOp_t reduction_of(const lk_comm_op *op)
{
    switch (op->reduce) {
    case LK_REDUCE_SUM: return op->dtype == LK_BOOL ? ncclMax : ncclSum; /* the sum of truths is "any" */
    case LK_REDUCE_AVG: return ncclAvg;
    case LK_REDUCE_MAX: return ncclMax;
    case LK_REDUCE_MIN: return ncclMin;
    }
    return ncclSum;
}

static bool is_float(lk_dtype dtype)
{
    return dtype == LK_F32 || dtype == LK_F64 || dtype == LK_BF16 || dtype == LK_F16;
}

/* One call of NCCL, under the lock: another thread may give the communicator up. */
static lk_status issue(lki_nccl_comm *self, const lk_comm_op *op, const void *send, void *recv,
                       ncclDataType_t type, cudaStream_t stream)
{
    const lki_nccl *nccl = self->library;
    ncclResult_t result = ncclSuccess;
    size_t count = (size_t)op->count;
    sigset_t before;
    lki_nccl_signals_off(&before);
    pthread_mutex_lock(&self->lock);
    bool here = self->nccl != NULL;
    if (here) {
        switch (op->kind) {
        case LK_COMM_ALL_REDUCE:
            result = nccl->AllReduce(send, recv, count, type, reduction_of(op), self->nccl, stream);
            break;
        case LK_COMM_BROADCAST:
            result = nccl->Broadcast(send, recv, count, type, op->root, self->nccl, stream);
            break;
        case LK_COMM_ALL_GATHER: result = nccl->AllGather(send, recv, count, type, self->nccl, stream); break;
        case LK_COMM_REDUCE_SCATTER:
            result = nccl->ReduceScatter(send, recv, count, type, reduction_of(op), self->nccl, stream);
            break;
        case LK_COMM_BARRIER:
            result = nccl->AllReduce(self->token, self->token, 1, ncclUint8, ncclMax, self->nccl, stream);
            break;
        }
    }
    pthread_mutex_unlock(&self->lock);
    lki_nccl_signals_on(&before);
    if (!here) return failure(self);
    if (result != ncclSuccess && result != ncclInProgress)
        return nccl_failed(self, result, "a collective could not be started");
    return result == ncclInProgress ? settle(self) : LK_OK;
}

static lk_status grow_keys(lki_nccl_comm *self, size_t nbytes)
{
    if (self->keys_nbytes >= nbytes) return LK_OK;
    if (self->keys) LKI_CUDA(cudaFree(self->keys)); /* it waits for who may still use them */
    self->keys = NULL;
    self->keys_nbytes = 0;
    LKI_TRY(lki_cuda_malloc((void **)&self->keys, nbytes, "maxima and minima over NCCL"));
    self->keys_nbytes = nbytes;
    return LK_OK;
}

/* A maximum or minimum of floats, as one of keys. An all-reduce of wide floats has room for them where its
 * result goes; others take some that belongs to the own stream. */
static lk_status enqueue_keys(lki_nccl_comm *self, const lk_comm_op *op, const void *send, void *recv,
                              cudaStream_t stream)
{
    bool scatters = op->kind == LK_COMM_REDUCE_SCATTER;
    size_t width = lki_nccl_key_nbytes(op->dtype);
    bool in_result = !scatters && width == lki_cuda_dtype_nbytes(op->dtype);
    int64_t count = scatters ? op->count * self->comm->size : op->count;
    if (!in_result && op->stream)
        return lki_cuda_fail(LK_ERR_UNSUPPORTED, "nccl: no max or min of %s that a stream orders",
                             lki_cuda_dtype_name(op->dtype));
    if (!in_result) LKI_TRY(grow_keys(self, (size_t)count * width));
    char *keys = in_result ? (char *)recv : self->keys;
    char *mine = scatters ? keys + (size_t)(op->count * self->comm->rank) * width : keys;
    LKI_TRY(lki_nccl_encode(keys, send, count, op->dtype, op->reduce, stream));
    LKI_TRY(issue(self, op, keys, mine, op->dtype == LK_F64 ? ncclInt64 : ncclInt32, stream));
    return lki_nccl_decode(recv, mine, op->count, op->dtype, stream);
}

static lk_status enqueue(lki_nccl_comm *self, const lk_comm_op *op, const void *send, void *recv,
                         cudaStream_t stream)
{
    bool reduces = op->kind == LK_COMM_ALL_REDUCE || op->kind == LK_COMM_REDUCE_SCATTER;
    bool orders = reduces && (op->reduce == LK_REDUCE_MAX || op->reduce == LK_REDUCE_MIN);
    if (orders && is_float(op->dtype)) return enqueue_keys(self, op, send, recv, stream);
    return issue(self, op, send, recv, type_of(op->dtype), stream);
}

/* ---- Memory of the host ---- */

static lk_status grow_staging(lki_nccl_staging *s, size_t nbytes)
{
    size_t room = LEAST_STAGING;
    if (s->nbytes >= nbytes) return LK_OK;
    while (room < nbytes) room *= 2;
    if (s->host) LKI_CUDA(cudaFreeHost(s->host));
    s->host = NULL;
    if (s->device) LKI_CUDA(cudaFree(s->device));
    s->device = NULL;
    s->nbytes = 0;
    LKI_TRY(lki_cuda_malloc_host((void **)&s->host, room, cudaHostAllocDefault, "a collective over NCCL"));
    LKI_TRY(lki_cuda_malloc((void **)&s->device, room, "a collective over NCCL"));
    s->nbytes = room;
    return LK_OK;
}

/* Where a collective's bytes lie in its buffer: all of it, what goes up to the device, what comes back. */
typedef struct layout {
    size_t whole, up, up_nbytes, down, down_nbytes;
} layout;

static layout layout_of(const lk_comm *comm, const lk_comm_op *op)
{
    size_t piece = (size_t)op->count * lki_cuda_dtype_nbytes(op->dtype);
    size_t all = piece * (size_t)comm->size, mine = piece * (size_t)comm->rank;
    bool is_root = op->root == comm->rank;
    switch (op->kind) {
    case LK_COMM_ALL_GATHER: return (layout){all, mine, piece, 0, all};
    case LK_COMM_REDUCE_SCATTER: return (layout){all, 0, all, mine, piece};
    case LK_COMM_BROADCAST: return (layout){piece, 0, is_root ? piece : 0, 0, is_root ? 0 : piece};
    default: return (layout){piece, 0, piece, 0, piece};
    }
}

static lk_status start_staged(lki_nccl_comm *self, lk_comm_request *request)
{
    const lk_comm_op *op = &request->op;
    lki_nccl_staging *s = &self->staging[request->slot];
    layout at = layout_of(self->comm, op);
    LKI_TRY(grow_staging(s, at.whole));
    if (at.up_nbytes) {
        memcpy(s->host + at.up, op->send, at.up_nbytes);
        LKI_CUDA(cudaMemcpyAsync(s->device + at.up, s->host + at.up, at.up_nbytes, cudaMemcpyHostToDevice,
                                 self->stream));
    }
    LKI_TRY(enqueue(self, op, s->device + at.up, s->device + at.down, self->stream));
    if (at.down_nbytes)
        LKI_CUDA(cudaMemcpyAsync(s->host + at.down, s->device + at.down, at.down_nbytes,
                                 cudaMemcpyDeviceToHost, self->stream));
    return LK_OK;
}

static lk_status is_on_device(const void *memory, bool *out)
{
    cudaPointerAttributes attributes;
    LKI_CUDA(cudaPointerGetAttributes(&attributes, memory));
    *out = attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
    return LK_OK;
}

/* ---- The ops ---- */

static lk_status nccl_start(lk_comm *comm, lk_comm_request *request)
{
    lki_nccl_comm *self = self_of(comm);
    const lk_comm_op *op = &request->op;
    bool send_on_device = true, recv_on_device = true;
    self->idle = 0;
    if (has_failed(self)) return failure(self);
    if (op->kind != LK_COMM_BARRIER && op->count == 0) return LK_OK;
    LKI_CUDA(cudaSetDevice(self->options.device));
    if (op->stream) return enqueue(self, op, op->send, op->recv, (cudaStream_t)op->stream);
    if (op->kind != LK_COMM_BARRIER) {
        LKI_TRY(is_on_device(op->send, &send_on_device));
        LKI_TRY(is_on_device(op->recv, &recv_on_device));
    }
    if (send_on_device != recv_on_device)
        return lki_cuda_fail(LK_ERR_INVALID, "nccl: what is sent lies on the %s, what is received on the %s",
                             send_on_device ? "GPU" : "host", recv_on_device ? "GPU" : "host");
    if (recv_on_device)
        LKI_TRY(enqueue(self, op, op->send, op->recv, self->stream));
    else
        LKI_TRY(start_staged(self, request));
    LKI_CUDA(cudaEventRecord(self->events[request->slot], self->stream));
    request->scratch[0] = recv_on_device ? ON_DEVICE : ON_HOST;
    return LK_OK;
}

static lk_status nccl_test(lk_comm *comm, lk_comm_request *request, bool *done)
{
    lki_nccl_comm *self = self_of(comm);
    const lk_comm_op *op = &request->op;
    ncclResult_t state;
    if (request->scratch[0] != AT_ONCE) {
        cudaError_t error = cudaEventQuery(self->events[request->slot]);
        if (error == cudaErrorNotReady) {
            if (has_failed(self)) return failure(self);
            return ++self->idle % LOOK_EVERY == 0 ? lki_nccl_look(self, &state) : LK_OK;
        }
        if (error != cudaSuccess) return lki_cuda_error(error, "a collective of NCCL");
    }
    if (has_failed(self)) return failure(self); /* then the end was not the proper one */
    if (request->scratch[0] == ON_HOST) {
        layout at = layout_of(comm, op);
        if (at.down_nbytes) memcpy(op->recv, self->staging[request->slot].host + at.down, at.down_nbytes);
    }
    *done = true;
    return LK_OK;
}

static lk_status nccl_pause(lk_comm *comm, lk_comm_request *request, int64_t deadline_ns)
{
    (void)request, (void)deadline_ns;
    if (self_of(comm)->idle > SPIN_COUNT)
        lki_nccl_sleep_us(50);
    else
        sched_yield(); /* NCCL's own threads may have no other core */
    return LK_OK;
}

static void nccl_progress(lk_comm *comm, int rank, lk_comm_progress *out)
{
    const lki_nccl_options *options = &self_of(comm)->options;
    if (options->progress) options->progress(options->context, rank, out);
}

static lk_status nccl_check(lk_comm *comm)
{
    lki_nccl_comm *self = self_of(comm);
    ncclResult_t state;
    return has_failed(self) ? failure(self) : lki_nccl_look(self, &state);
}

const lk_comm_ops lki_nccl_ops = {
    LK_SIZE(lk_comm_ops), "nccl",        nccl_start, nccl_test, nccl_pause, nccl_progress,
    nccl_abort,           lki_nccl_free, nccl_check, true,      nullptr,    nullptr,
};
