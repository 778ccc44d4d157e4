/* What all backends share: checks, sequence numbers, the pool of requests, the flight recorder, the timeout;
 * and the ops of a graph that are collectives. */
#include "comm/comm_own.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "base/trace.h"
#include "comm/rank_ops.h"
#include "comm/stall.h"
#include "tensor/layout.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

enum {
    HISTORY_IN_ERRORS = 3,
    STOPPED_MS = 5000, /* that nobody looks beyond a deadline: this process did not run */
    HEARSAY_MS = 2000, /* what a rank that knows no culprit waits for the word of one that does */
};

const char *lk_comm_kind_name(lk_comm_kind kind)
{
    static const char *const names[] = {
#define X(symbol, name) name,
        LK_COMM_KIND_LIST(X)
#undef X
    };
    return (size_t)kind < sizeof names / sizeof *names ? names[kind] : "unknown collective";
}

const char *lk_reduce_name(lk_reduce reduce)
{
    static const char *const names[] = {
#define X(symbol, name) name,
        LK_REDUCE_LIST(X)
#undef X
    };
    return (size_t)reduce < sizeof names / sizeof *names ? names[reduce] : "unknown reduction";
}

void lki_comm_init(lk_comm *comm, lki_comm *own, const lk_comm_ops *ops, int rank, int size)
{
    comm->ops = ops;
    comm->own = own;
    comm->rank = rank;
    comm->size = size;
    if (comm->timeout_ms == 0) comm->timeout_ms = LK_COMM_DEFAULT_TIMEOUT_MS;
    comm->own->origin_ns = lki_now_ns();
    comm->own->origin_ticks = lki_now_ticks();
    comm->own->free_count = LK_COMM_MAX_REQUESTS;
    for (int i = 0; i < LK_COMM_MAX_REQUESTS; i++)
        comm->own->free_list[i] = (uint8_t)(LK_COMM_MAX_REQUESTS - 1 - i);
}

/* A comm that was made with lk_comm_create, in one block. */
typedef struct created_comm {
    lk_comm comm;
    lki_comm own;
    lk_comm_ops ops; /* the copy that comm.ops points at */
} created_comm;

static lk_status check_ops(const lk_comm_ops *ops, int rank, int size)
{
    if (!ops->name || !ops->start || !ops->test || !ops->abort || !ops->free)
        return lki_fail(LK_ERR_INVALID, "a comm needs a name, start, test, abort and free");
    if (size < 1 || rank < 0 || rank >= size)
        return lki_fail(LK_ERR_INVALID, "comm %s: rank %d is not one of %d ranks", ops->name, rank, size);
    return LK_OK;
}

#undef lk_comm_create /* the header fills in a size that is missing */
lk_comm *lk_comm_create(const lk_comm_ops *given, int rank, int size, void *context)
{
    lk_comm_ops ops;
    lk_status status = lki_take(&ops, sizeof ops, given, "lk_comm_ops");
    if (status == LK_OK) status = check_ops(&ops, rank, size);
    created_comm *made = status == LK_OK ? LKI_NEW(created_comm) : NULL;
    if (!made) {
        lk_comm gone = {.ops = &ops, .rank = rank, .size = size, .context = context};
        if (ops.free) ops.free(&gone);
        return NULL;
    }
    made->ops = ops;
    made->comm.context = context;
    made->own.is_created = true;
    lki_comm_init(&made->comm, &made->own, &made->ops, rank, size);
    return &made->comm;
}

/* What is done for every collective takes tens of nanoseconds, as a small one through MPI takes but half a
 * microsecond: it is compiled into its callers, so that a description goes straight into the request, and
 * what is done about failures stays out of the way. */
#define INLINE static inline __attribute__((always_inline))
#define COLD   static __attribute__((cold, noinline))

/* Whether `op` obviously keeps the rules below. */
INLINE bool is_plain(const lk_comm_op *op)
{
    enum { SMALL_COUNT = 1 << 27 };
    return op->kind == LK_COMM_ALL_REDUCE && op->reduce == LK_REDUCE_SUM && (unsigned)op->dtype <= LK_BOOL &&
           (uint64_t)op->count < SMALL_COUNT && op->send && op->recv && !op->stream;
}

/* The rules that every backend may rely on. */
static __attribute__((noinline)) lk_status check_op(const lk_comm *comm, const lk_comm_op *op)
{
    const char *name = lk_comm_kind_name(op->kind);
    bool reduces = op->kind == LK_COMM_ALL_REDUCE || op->kind == LK_COMM_REDUCE_SCATTER;
    if ((unsigned)op->kind > LK_COMM_BARRIER)
        return lki_fail(LK_ERR_INVALID, "no collective has the number %d", op->kind);
    if (op->stream && !comm->ops->on_device)
        return lki_fail(LK_ERR_INVALID, "%s: comm %s knows no streams of a device", name, comm->ops->name);
    if (op->kind == LK_COMM_BARRIER) return LK_OK;
    if (op->count < 0 || op->count > INT64_MAX / 16 / comm->size)
        return lki_fail(LK_ERR_INVALID, "%s: impossible count %lld", name, (long long)op->count);
    if ((unsigned)op->dtype > LK_BOOL)
        return lki_fail(LK_ERR_DTYPE, "%s: no dtype has the number %d", name, op->dtype);
    if (op->count > 0 && (!op->recv || (!op->send && op->kind != LK_COMM_BROADCAST)))
        return lki_fail(LK_ERR_INVALID, "%s: the memory is NULL", name);
    if (op->kind == LK_COMM_BROADCAST && (op->root < 0 || op->root >= comm->size))
        return lki_fail(LK_ERR_INVALID, "%s: root %d is not one of %d ranks", name, op->root, comm->size);
    if (!reduces) return LK_OK;
    if ((unsigned)op->reduce > LK_REDUCE_MIN)
        return lki_fail(LK_ERR_INVALID, "%s: no reduction has the number %d", name, op->reduce);
    if (op->reduce == LK_REDUCE_AVG && !lki_dtype_is_float(op->dtype))
        return lki_fail(LK_ERR_DTYPE, "%s: avg needs a floating dtype, found %s", name,
                        lk_dtype_name(op->dtype));
    return LK_OK;
}

COLD lk_status broken(const lk_comm *comm)
{
    return lki_fail(comm->own->broken, "%s", comm->own->broken_text);
}

/* Keeps the current error sentence: the comm cannot be used again. */
COLD lk_status break_comm(lk_comm *comm, lk_status status, const lk_comm_request *request)
{
    char count[48] = "";
    if (comm->own->broken) return broken(comm);
    if (request->op.kind != LK_COMM_BARRIER)
        snprintf(count, sizeof count, " of %lld %s", (long long)request->op.count,
                 lk_dtype_name(request->op.dtype));
    lki_fail_prefix(status, "%s #%llu%s", lk_comm_kind_name(request->op.kind),
                    (unsigned long long)request->seq, count);
    comm->own->broken = status;
    snprintf(comm->own->broken_text, sizeof comm->own->broken_text, "%s", lk_error());
    return broken(comm);
}

/* The description goes into the flight recorder once; only how it went is added. */
INLINE void record(lk_comm *comm, const lk_comm_request *request)
{
    comm->own->records[request->seq % LKI_COMM_RECORD_COUNT] = (lki_comm_record){
        .seq = request->seq,
        .kind = request->op.kind,
        .dtype = request->op.dtype,
        .state = LK_COMM_STARTED,
        .count = request->op.count,
        .start_ticks = lki_now_ticks(),
    };
}

INLINE void give_back(lk_comm *comm, lk_comm_request *request, lk_comm_state state)
{
    lki_comm_record *record = &comm->own->records[request->seq % LKI_COMM_RECORD_COUNT];
    if (request->state != LK_COMM_STARTED) return;
    request->state = state;
    if (record->seq == request->seq) { /* else it was forgotten for later ones */
        record->state = state;
        record->end_ticks = lki_now_ticks();
    }
    if (state == LK_COMM_DONE && request->seq > comm->own->finished_seq)
        __atomic_store_n(&comm->own->finished_seq, request->seq, __ATOMIC_RELAXED);
    comm->own->free_list[comm->own->free_count++] = (uint8_t)request->slot;
}

COLD lk_status too_many(const lk_comm_op *op)
{
    return lki_fail(LK_ERR_RANGE, "%s: %d collectives are outstanding already: wait for one first",
                    lk_comm_kind_name(op->kind), LK_COMM_MAX_REQUESTS);
}

COLD lk_status fail_request(lk_comm *comm, lk_comm_request *request, lk_status status)
{
    status = break_comm(comm, status, request);
    give_back(comm, request, LK_COMM_FAILED);
    return status;
}

INLINE lk_status start(lk_comm *comm, const lk_comm_op *op, bool blocking, lk_comm_request **out)
{
    *out = NULL;
    if (comm->own->broken) return broken(comm);
    if (!is_plain(op)) LKI_TRY(check_op(comm, op));
    if (comm->own->free_count == 0) return too_many(op);
    int slot = comm->own->free_list[--comm->own->free_count];
    lk_comm_request *request = &comm->own->requests[slot];
    request->slot = slot;
    request->op = *op;
    if (op->kind == LK_COMM_BARRIER)
        request->op = (lk_comm_op){.kind = LK_COMM_BARRIER, .dtype = LK_U8, .stream = op->stream};
    if (op->kind == LK_COMM_BROADCAST) request->op.send = op->recv;
    request->op.blocking = blocking;
    request->seq = comm->own->last_seq + 1;
    __atomic_store_n(&comm->own->last_seq, request->seq, __ATOMIC_RELAXED); /* a monitor may look */
    request->state = LK_COMM_STARTED;
    memset(request->scratch, 0, sizeof request->scratch);
    record(comm, request);
    lk_status status = comm->ops->start(comm, request);
    if (status != LK_OK) return fail_request(comm, request, status);
    *out = request;
    return LK_OK;
}

lk_status lk_comm_start(lk_comm *comm, const lk_comm_op *op, lk_comm_request **out)
{
    return start(comm, op, op->blocking, out);
}

lk_status lk_comm_test(lk_comm *comm, lk_comm_request *request, bool *done)
{
    *done = false;
    if (comm->own->broken) return broken(comm);
    lk_status status = comm->ops->test(comm, request, done);
    if (status != LK_OK) return fail_request(comm, request, status);
    if (*done) give_back(comm, request, LK_COMM_DONE);
    return LK_OK;
}

/* The deadline has come. LK_OK once, with a later deadline, where nobody is known to be behind: a peer may
 * know more. */
static lk_status timed_out(lk_comm *comm, const lk_comm_request *request, int64_t *deadline_ns,
                           bool *listened)
{
    char behind[500], history[200];
    bool known = lki_stall_describe(comm, request->seq, behind, sizeof behind) > 0;
    if (!known && !*listened && comm->ops->progress) {
        *listened = true;
        *deadline_ns += HEARSAY_MS * 1000000LL;
        return LK_OK;
    }
    return lki_fail(LK_ERR_TIMEOUT, "no end after %.1f s on rank %d of %d%s; last here: %s",
                    (double)comm->timeout_ms / 1e3, comm->rank, comm->size,
                    known ? behind : "; no rank is known to be behind",
                    lk_comm_history(comm, HISTORY_IN_ERRORS, history, sizeof history));
}

/* Between two looks at the request. Where the thread may be held up inside a call of the backend, the monitor
 * does it. Returns when to come back. */
static int64_t look_at_stall(lk_comm *comm, const lk_comm_request *request, lki_stall *stall, int64_t now,
                             int64_t deadline_ns)
{
    if (comm->own->is_watched) return deadline_ns;
    if (now - stall->seen_ns > STOPPED_MS * 1000000LL) *stall = (lki_stall){.begin_ns = now};
    stall->seen_ns = now;
    int64_t look_ns = lki_stall_next(stall);
    if (now >= look_ns) lki_stall_look(stall, comm, request->seq, request->op.kind);
    return look_ns < deadline_ns ? look_ns : deadline_ns;
}

/* Until `request` is over; `status` is what a first test said of it, which found it under way. */
static __attribute__((noinline)) lk_status wait_on(lk_comm *comm, lk_comm_request *request, lk_status status)
{
    bool done = false, listened = false;
    int64_t deadline_ns = 0, begin_ns = lki_now_ns();
    lki_stall stall = {0};
    for (int64_t now = begin_ns;; now = lki_now_ns()) {
        if (deadline_ns == 0 || now - deadline_ns > STOPPED_MS * 1000000LL)
            deadline_ns = now + comm->timeout_ms * 1000000; /* a job that was stopped begins anew */
        if (status == LK_OK && now >= deadline_ns) status = timed_out(comm, request, &deadline_ns, &listened);
        int64_t until_ns = look_at_stall(comm, request, &stall, now, deadline_ns);
        if (status == LK_OK && comm->ops->pause) status = comm->ops->pause(comm, request, until_ns);
        if (status == LK_OK && !comm->ops->pause) sched_yield();
        if (status == LK_OK) status = comm->ops->test(comm, request, &done);
        if (status == LK_OK && done) break;
        if (status == LK_OK) continue;
        status = fail_request(comm, request, status);
        if (status == LK_ERR_TIMEOUT)
            comm->ops->abort(comm, comm->own->broken_text); /* spare the others the wait */
        return status;
    }
    comm->own->waited_ns += lki_now_ns() - begin_ns;
    give_back(comm, request, LK_COMM_DONE);
    return LK_OK;
}

int64_t lki_comm_waited_ns(const lk_comm *comm)
{
    return comm->own->waited_ns;
}

COLD lk_status give_up(lk_comm *comm, lk_comm_request *request)
{
    give_back(comm, request, LK_COMM_FAILED);
    return broken(comm);
}

INLINE lk_status wait(lk_comm *comm, lk_comm_request *request)
{
    bool done = false;
    if (comm->own->broken) return give_up(comm, request);
    lk_status status = comm->ops->test(comm, request, &done);
    if (status != LK_OK || !done) return wait_on(comm, request, status);
    give_back(comm, request, LK_COMM_DONE);
    return LK_OK;
}

INLINE lk_status run(lk_comm *comm, const lk_comm_op *op)
{
    lk_comm_request *request;
    int64_t begin_ns = lki_trace_begin();
    LKI_TRY(start(comm, op, true, &request));
    LKI_TRY(wait(comm, request));
    lki_trace_end(LKI_TRACE_COMMUNICATION, lk_comm_kind_name(op->kind), begin_ns);
    return LK_OK;
}

lk_status lk_comm_wait(lk_comm *comm, lk_comm_request *request)
{
    return wait(comm, request);
}

lk_status lk_comm_run(lk_comm *comm, const lk_comm_op *op)
{
    return run(comm, op);
}

lk_status lk_comm_all_reduce(lk_comm *comm, void *data, int64_t count, lk_dtype dtype, lk_reduce reduce)
{
    return run(comm, &(lk_comm_op){.kind = LK_COMM_ALL_REDUCE,
                                   .reduce = reduce,
                                   .dtype = dtype,
                                   .send = data,
                                   .recv = data,
                                   .count = count});
}

lk_status lk_comm_broadcast(lk_comm *comm, void *data, int64_t count, lk_dtype dtype, int root)
{
    return lk_comm_run(
        comm,
        &(lk_comm_op){.kind = LK_COMM_BROADCAST, .dtype = dtype, .root = root, .recv = data, .count = count});
}

lk_status lk_comm_all_gather(lk_comm *comm, const void *send, void *recv, int64_t count, lk_dtype dtype)
{
    return lk_comm_run(
        comm, &(lk_comm_op){
                  .kind = LK_COMM_ALL_GATHER, .dtype = dtype, .send = send, .recv = recv, .count = count});
}

lk_status lk_comm_reduce_scatter(lk_comm *comm, const void *send, void *recv, int64_t count, lk_dtype dtype,
                                 lk_reduce reduce)
{
    return lk_comm_run(comm, &(lk_comm_op){.kind = LK_COMM_REDUCE_SCATTER,
                                           .reduce = reduce,
                                           .dtype = dtype,
                                           .send = send,
                                           .recv = recv,
                                           .count = count});
}

lk_status lk_comm_barrier(lk_comm *comm)
{
    return lk_comm_run(comm, &(lk_comm_op){.kind = LK_COMM_BARRIER});
}

lk_status lk_comm_check(lk_comm *comm)
{
    if (comm->own->broken) return broken(comm);
    lk_status status = comm->ops->check ? comm->ops->check(comm) : LK_OK;
    if (status != LK_OK) {
        comm->own->broken = status;
        snprintf(comm->own->broken_text, sizeof comm->own->broken_text, "%s", lk_error());
    }
    return status;
}

bool lk_comm_is_idle(const lk_comm *comm)
{
    return comm->own->free_count == LK_COMM_MAX_REQUESTS && !comm->own->broken;
}

void lk_comm_abort(lk_comm *comm, const char *reason)
{
    if (comm) comm->ops->abort(comm, reason && *reason ? reason : "no reason given");
}

void lk_comm_free(lk_comm *comm)
{
    if (!comm) return;
    bool is_created = comm->own->is_created;
    comm->ops->free(comm);
    if (is_created) lki_free(comm);
}

/* The clock has run beside the counter since the comm began. */
static double us_a_tick(const lk_comm *comm)
{
    double ticks = (double)(lki_now_ticks() - comm->own->origin_ticks);
    return ticks > 0 ? (double)(lki_now_ns() - comm->own->origin_ns) / ticks / 1e3 : 0;
}

static size_t describe_record(const lk_comm *comm, const lki_comm_record *record, char *text, size_t capacity)
{
    static const char *const states[] = {"idle", "started", "done", "failed"};
    int length = snprintf(text, capacity, "#%llu %s", (unsigned long long)record->seq,
                          lk_comm_kind_name(record->kind));
    if (record->kind != LK_COMM_BARRIER && length > 0 && (size_t)length < capacity)
        length += snprintf(text + length, capacity - (size_t)length, " %lld %s", (long long)record->count,
                           lk_dtype_name(record->dtype));
    if (length > 0 && (size_t)length < capacity)
        length += snprintf(text + length, capacity - (size_t)length, " %s", states[record->state]);
    if (record->end_ticks && length > 0 && (size_t)length < capacity)
        length += snprintf(text + length, capacity - (size_t)length, " in %.0f us",
                           (double)(record->end_ticks - record->start_ticks) * us_a_tick(comm));
    return length > 0 ? (size_t)length : 0;
}

const char *lk_comm_history(const lk_comm *comm, int limit, char *text, size_t capacity)
{
    size_t length = 0;
    if (capacity == 0) return text;
    snprintf(text, capacity, "none");
    if (limit > LKI_COMM_RECORD_COUNT) limit = LKI_COMM_RECORD_COUNT;
    uint64_t last = comm->own->last_seq, first = last > (uint64_t)limit ? last - (uint64_t)limit + 1 : 1;
    for (uint64_t seq = first; seq <= last && length + 4 < capacity; seq++) {
        if (seq > first) length += (size_t)snprintf(text + length, capacity - length, "; ");
        length += describe_record(comm, &comm->own->records[seq % LKI_COMM_RECORD_COUNT], text + length,
                                  capacity - length);
    }
    return text;
}

/* ---- Collectives as ops of a graph, on the host ---- */

static lk_status run_all_reduce(const lk_call *call)
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
    case LK_OP_ALL_REDUCE: call->run = run_all_reduce; return LK_OK;
    case LK_OP_REDUCE_START: call->run = reduce_start; return LK_OK;
    case LK_OP_REDUCE_POLL: call->run = reduce_poll; return LK_OK;
    case LK_OP_REDUCE_WAIT: call->run = reduce_wait; return LK_OK;
    case LK_OP_ASSIGN: call->run = assign; return LK_OK;
    default: return lki_fail(LK_ERR_UNSUPPORTED, "%s is not an op of the host", lk_op_name(call->op));
    }
}
