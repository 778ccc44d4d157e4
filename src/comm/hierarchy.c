/* Ranks of several hosts. A collective goes through three phases, each a collective of another comm:
 *
 *                     up (this host)                leaders (between hosts)      down (this host)
 *     all-reduce      all-reduce                    all-reduce                   broadcast
 *     broadcast       broadcast, on root's host     broadcast from its leader    broadcast, on the other
 * hosts all-gather      all-gather                    all-gather, padded           broadcast reduce-scatter
 * all-reduce                    all-reduce                   broadcast; each keeps its piece barrier barrier
 * barrier                      barrier
 *
 * Up and down are two comms, so that the next collective may go up while this one comes down: within each
 * comm the order is the same on all ranks. A collective enters a phase only after the one before it has. */
#include "comm/comm.h"
#include "comm/comm_own.h"

#include "base/activity.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/reduction.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

typedef enum phase { PHASE_NONE, PHASE_UP, PHASE_LEADERS, PHASE_DOWN, PHASE_OVER } phase;

/* What a request holds; lies in its scratch. */
typedef struct tree_work {
    uint64_t phase;
    lk_comm_request *inner; /* of the phase's comm; NULL: nothing to wait for */
    char *staging;          /* of all-gather and reduce-scatter */
} tree_work;

_Static_assert(sizeof(tree_work) <= sizeof(((lk_comm_request *)0)->scratch), "the work of a request fits");

typedef struct tree_comm {
    lk_comm base;
    lki_comm own;
    lk_comm *up, *down, *leaders;
    lki_monitor *monitor;
    void (*on_free)(void *context);
    void *context;
    int host, host_count, local_size, widest; /* widest: the most ranks on one host */
    int *host_of, *local_of;                  /* by rank */
    int *rank_counts;                         /* by host */
    _Atomic uint64_t started, finished;       /* what the monitor's thread reads */
    _Atomic int kind;
    _Atomic int64_t count;
    lki_activity activity; /* where there is no `up` to show it */
    uint64_t ring_begin, ring_end;
    lk_comm_request *ring[LK_COMM_MAX_REQUESTS];
    char *staging[LK_COMM_MAX_REQUESTS]; /* by request; grown when needed, kept */
    size_t staging_nbytes[LK_COMM_MAX_REQUESTS];
} tree_comm;

static tree_work *work_of(lk_comm_request *request)
{
    return (tree_work *)request->scratch;
}

static lk_reduce inner_reduce(const lk_comm_op *op)
{
    return op->reduce == LK_REDUCE_AVG ? LK_REDUCE_SUM : op->reduce;
}

static size_t piece_nbytes(const lk_comm_op *op)
{
    return (size_t)op->count * lk_dtype_nbytes(op->dtype);
}

/* All-gather: the host's pieces, then every host's, each padded to the widest. Reduce-scatter: the whole
 * array. */
static size_t staging_needed(const tree_comm *tree, const lk_comm_op *op)
{
    if (op->kind == LK_COMM_ALL_GATHER)
        return piece_nbytes(op) * (size_t)tree->widest * (size_t)(1 + tree->host_count);
    if (op->kind == LK_COMM_REDUCE_SCATTER) return piece_nbytes(op) * (size_t)tree->base.size;
    return 0;
}

static lk_status take_staging(tree_comm *tree, lk_comm_request *request)
{
    size_t slot = (size_t)request->slot, nbytes = staging_needed(tree, &request->op);
    if (nbytes > tree->staging_nbytes[slot]) {
        char *grown = lki_realloc(tree->staging[slot], nbytes, "a collective between hosts");
        if (!grown) return LK_ERR_NOMEM;
        tree->staging[slot] = grown;
        tree->staging_nbytes[slot] = nbytes;
    }
    work_of(request)->staging = tree->staging[slot];
    return LK_OK;
}

static void copy(void *to, const void *from, size_t nbytes)
{
    if (nbytes > 0 && to != from) memmove(to, from, nbytes);
}

/* Starts an inner collective, or does without where this host has one rank: then what it would leave is put
 * in place. */
static lk_status start_inner(tree_comm *tree, lk_comm *comm, lk_comm_request *request, lk_comm_op inner)
{
    /* Written only where it changes: the inner comm's own thread reads it. */
    if (comm && comm->timeout_ms != tree->base.timeout_ms)
        __atomic_store_n(&comm->timeout_ms, tree->base.timeout_ms, __ATOMIC_RELAXED);
    inner.dtype = request->op.dtype;
    inner.blocking = request->op.blocking;
    if (comm) return lk_comm_start(comm, &inner, &work_of(request)->inner);
    if (inner.kind != LK_COMM_BROADCAST && inner.kind != LK_COMM_BARRIER)
        copy(inner.recv, inner.send, (size_t)inner.count * lk_dtype_nbytes(inner.dtype));
    return LK_OK;
}

static lk_status start_up(tree_comm *tree, lk_comm_request *request)
{
    const lk_comm_op *op = &request->op;
    char *staging = work_of(request)->staging;
    lk_comm_op inner = {
        .kind = op->kind, .reduce = inner_reduce(op), .send = op->send, .recv = op->recv, .count = op->count};
    switch (op->kind) {
    case LK_COMM_ALL_REDUCE:
    case LK_COMM_BARRIER: break;
    case LK_COMM_REDUCE_SCATTER:
        inner.kind = LK_COMM_ALL_REDUCE;
        inner.recv = staging;
        inner.count = op->count * tree->base.size;
        break;
    case LK_COMM_ALL_GATHER: inner.recv = staging; break;
    case LK_COMM_BROADCAST:
        if (tree->host_of[op->root] != tree->host) return LK_OK;
        inner.root = tree->local_of[op->root];
        break;
    }
    return start_inner(tree, tree->up, request, inner);
}

static lk_status start_leaders(tree_comm *tree, lk_comm_request *request)
{
    const lk_comm_op *op = &request->op;
    char *staging = work_of(request)->staging;
    lk_comm_op inner = {
        .kind = op->kind, .reduce = inner_reduce(op), .send = op->recv, .recv = op->recv, .count = op->count};
    if (!tree->leaders) return LK_OK;
    switch (op->kind) {
    case LK_COMM_ALL_REDUCE:
    case LK_COMM_BARRIER: break;
    case LK_COMM_REDUCE_SCATTER:
        inner.kind = LK_COMM_ALL_REDUCE;
        inner.send = inner.recv = staging;
        inner.count = op->count * tree->base.size;
        break;
    case LK_COMM_ALL_GATHER:
        inner.send = staging;
        inner.recv = staging + piece_nbytes(op) * (size_t)tree->widest;
        inner.count = op->count * tree->widest;
        break;
    case LK_COMM_BROADCAST: inner.root = tree->host_of[op->root]; break;
    }
    return start_inner(tree, tree->leaders, request, inner);
}

/* The leader puts the hosts' pieces in rank order. */
static void unpack_gathered(tree_comm *tree, lk_comm_request *request)
{
    size_t piece = piece_nbytes(&request->op);
    const char *hosts = work_of(request)->staging + piece * (size_t)tree->widest;
    for (int r = 0; r < tree->base.size; r++) {
        size_t index = (size_t)tree->host_of[r] * (size_t)tree->widest + (size_t)tree->local_of[r];
        copy((char *)request->op.recv + piece * (size_t)r, hosts + piece * index, piece);
    }
}

static lk_status start_down(tree_comm *tree, lk_comm_request *request)
{
    const lk_comm_op *op = &request->op;
    lk_comm_op down = {.kind = LK_COMM_BROADCAST, .recv = op->recv, .count = op->count};
    if (op->kind == LK_COMM_ALL_GATHER) {
        if (tree->leaders) unpack_gathered(tree, request);
        down.count = op->count * tree->base.size;
    }
    if (op->kind == LK_COMM_REDUCE_SCATTER) {
        down.recv = work_of(request)->staging;
        down.count = op->count * tree->base.size;
    }
    if (op->kind == LK_COMM_ALL_REDUCE && op->reduce == LK_REDUCE_AVG && tree->leaders)
        lki_scale(op->recv, op->count, op->dtype, tree->base.size);
    if (op->kind == LK_COMM_BROADCAST && tree->host_of[op->root] == tree->host)
        return LK_OK; /* they have it */
    if (op->kind == LK_COMM_BARRIER) down = (lk_comm_op){.kind = LK_COMM_BARRIER};
    return start_inner(tree, tree->down, request, down);
}

static void finish(tree_comm *tree, lk_comm_request *request)
{
    const lk_comm_op *op = &request->op;
    if (op->kind != LK_COMM_REDUCE_SCATTER) return;
    copy(op->recv, work_of(request)->staging + piece_nbytes(op) * (size_t)tree->base.rank, piece_nbytes(op));
    if (op->reduce == LK_REDUCE_AVG) lki_scale(op->recv, op->count, op->dtype, tree->base.size);
}

static lk_comm *comm_of(const tree_comm *tree, phase phase)
{
    return phase == PHASE_UP ? tree->up : phase == PHASE_LEADERS ? tree->leaders : tree->down;
}

static lk_status enter(tree_comm *tree, lk_comm_request *request, phase next)
{
    work_of(request)->phase = next;
    switch (next) {
    case PHASE_UP: return start_up(tree, request);
    case PHASE_LEADERS: return start_leaders(tree, request);
    case PHASE_DOWN: return start_down(tree, request);
    default: finish(tree, request); return LK_OK;
    }
}

/* Moves one request on as far as it goes, but into no phase that the one before it (`limit`) has not entered.
 */
static lk_status advance_one(tree_comm *tree, lk_comm_request *request, uint64_t limit)
{
    tree_work *work = work_of(request);
    while (work->phase != PHASE_OVER) {
        bool done = true;
        if (work->inner) LKI_TRY(lk_comm_test(comm_of(tree, (phase)work->phase), work->inner, &done));
        if (!done) return LK_OK;
        work->inner = NULL;
        if (work->phase + 1 > limit) return LK_OK;
        LKI_TRY(enter(tree, request, (phase)(work->phase + 1)));
    }
    return LK_OK;
}

static lk_status advance(tree_comm *tree)
{
    uint64_t limit = PHASE_OVER;
    for (uint64_t i = tree->ring_begin; i < tree->ring_end; i++) {
        lk_comm_request *request = tree->ring[i % LK_COMM_MAX_REQUESTS];
        LKI_TRY(advance_one(tree, request, limit));
        limit = work_of(request)->phase;
        if (limit == PHASE_OVER && i == tree->ring_begin) tree->ring_begin++;
    }
    return LK_OK;
}

/* Ends the comms of this rank in the words of what happened elsewhere. Any thread. */
static void forward(void *context, const char *sentence)
{
    tree_comm *tree = context;
    if (tree->up) lki_shm_forward_failure(tree->up, sentence);
    if (tree->down) lki_shm_forward_failure(tree->down, sentence);
    if (tree->leaders) tree->leaders->ops->abort(tree->leaders, sentence);
}

/* A failure in one comm is everyone's: this host's ranks and, through the monitor, the other hosts' are told.
 */
static lk_status fail_all(tree_comm *tree, lk_status status)
{
    lki_error first = {0};
    lki_error_keep(&first, status);
    if (tree->monitor) { /* which may know of an earlier one */
        lki_monitor_fail(tree->monitor, first.sentence);
        lki_monitor_failure(tree->monitor, 0, first.sentence, sizeof first.sentence);
    }
    if (tree->leaders) forward(tree, first.sentence);
    return lki_error_restore(&first);
}

/* Says how far this rank is: to this host's leader through shared memory, to the own monitor here. */
static void report(tree_comm *tree, const lk_comm_request *request, uint64_t finished)
{
    lk_comm_progress at = {.started = tree->own.last_seq,
                           .finished = finished,
                           .kind = request->op.kind,
                           .count = request->op.count};
    if (tree->up) lki_shm_report(tree->up, &at);
    atomic_store_explicit(&tree->kind, (int)at.kind, memory_order_relaxed);
    atomic_store_explicit(&tree->count, at.count, memory_order_relaxed);
    atomic_store_explicit(&tree->started, at.started, memory_order_relaxed);
    atomic_store_explicit(&tree->finished, at.finished, memory_order_relaxed);
}

void lki_hierarchy_progress(lk_comm *comm, lk_comm_progress *out)
{
    tree_comm *tree = (tree_comm *)comm;
    *out = (lk_comm_progress){.started = tree->started,
                              .finished = tree->finished,
                              .kind = (lk_comm_kind)tree->kind,
                              .count = tree->count,
                              .known = true};
}

static lk_status tree_start(lk_comm *comm, lk_comm_request *request)
{
    tree_comm *tree = (tree_comm *)comm;
    report(tree, request, comm->own->finished_seq);
    lk_status status = take_staging(tree, request);
    if (status != LK_OK) return status;
    tree->ring[tree->ring_end++ % LK_COMM_MAX_REQUESTS] = request;
    status = advance(tree);
    return status == LK_OK ? LK_OK : fail_all(tree, status);
}

static lk_status tree_test(lk_comm *comm, lk_comm_request *request, bool *done)
{
    tree_comm *tree = (tree_comm *)comm;
    if (work_of(request)->phase != PHASE_OVER) {
        lk_status status = advance(tree);
        if (status != LK_OK) return fail_all(tree, status);
    }
    *done = work_of(request)->phase == PHASE_OVER;
    if (*done && request->seq == comm->own->last_seq) report(tree, request, request->seq);
    return LK_OK;
}

/* Waits in the comm that the oldest request is in: everything else waits for that one. */
static lk_status tree_pause(lk_comm *comm, lk_comm_request *request, int64_t deadline_ns)
{
    tree_comm *tree = (tree_comm *)comm;
    lk_status status = LK_OK;
    (void)request;
    if (tree->ring_begin == tree->ring_end) return LK_OK;
    lk_comm_request *oldest = tree->ring[tree->ring_begin % LK_COMM_MAX_REQUESTS];
    lk_comm *inner = comm_of(tree, (phase)work_of(oldest)->phase);
    if (!inner || !work_of(oldest)->inner) return LK_OK;
    if (inner->ops->pause)
        status = inner->ops->pause(inner, work_of(oldest)->inner, deadline_ns);
    else
        sched_yield();
    return status == LK_OK ? LK_OK : fail_all(tree, status);
}

static void tree_progress(lk_comm *comm, int rank, lk_comm_progress *out)
{
    tree_comm *tree = (tree_comm *)comm;
    if (tree->host_of[rank] == tree->host && tree->up)
        tree->up->ops->progress(tree->up, tree->local_of[rank], out);
    else if (tree->monitor)
        lki_monitor_progress(tree->monitor, rank, out);
    else if (tree->leaders && tree->leaders->ops->progress && tree->rank_counts[tree->host_of[rank]] == 1)
        tree->leaders->ops->progress(tree->leaders, tree->host_of[rank], out);
    /* Which rank of a larger host is behind is seen there. */
}

static bool tree_doing(lk_comm *comm, int rank, char *text, size_t capacity)
{
    tree_comm *tree = (tree_comm *)comm;
    if (tree->host_of[rank] == tree->host && tree->up)
        return tree->up->ops->doing(tree->up, tree->local_of[rank], text, capacity);
    return tree->monitor && lki_monitor_doing(tree->monitor, rank, text, capacity);
}

void lki_hierarchy_doing(lk_comm *comm, char *text, size_t capacity)
{
    lki_activity_read(&((tree_comm *)comm)->activity, text, capacity);
}

static void tree_abort(lk_comm *comm, const char *reason)
{
    tree_comm *tree = (tree_comm *)comm;
    char sentence[512];
    snprintf(sentence, sizeof sentence, "rank %d gave up: %.450s", comm->rank, reason);
    if (tree->monitor) lki_monitor_fail(tree->monitor, sentence);
    forward(tree, sentence);
}

static void tree_free(lk_comm *comm)
{
    tree_comm *tree = (tree_comm *)comm;
    lki_activity_withdraw(&tree->activity);
    if (tree->monitor) lki_monitor_on_failure(tree->monitor, NULL, NULL);
    lk_comm_free(tree->leaders);
    if (tree->on_free) tree->on_free(tree->context); /* ends the monitor, which looks at the comms below */
    lk_comm_free(tree->up);
    lk_comm_free(tree->down);
    for (int i = 0; i < LK_COMM_MAX_REQUESTS; i++) lki_free(tree->staging[i]);
    lki_free(tree->host_of);
    lki_free(tree->local_of);
    lki_free(tree->rank_counts);
    lki_free(tree);
}

static const lk_comm_ops tree_ops = {
    LK_SIZE(lk_comm_ops), .name = "hierarchy", .start = tree_start,
    .test = tree_test,    .pause = tree_pause, .progress = tree_progress,
    .abort = tree_abort,  .free = tree_free,   .doing = tree_doing,
};

void lki_comm_describe(const lk_comm *comm, char *text, size_t capacity)
{
    const tree_comm *tree = (const tree_comm *)comm;
    const char *name = comm->ops->name;
    if (comm->ops == &tree_ops && tree->leaders) {
        name = tree->leaders->ops->name;
        if (tree->widest > 1) {
            snprintf(text, capacity, "shm within hosts, %s between", name);
            return;
        }
    }
    snprintf(text, capacity, "%s", name);
}

static lk_status number_ranks(tree_comm *tree, const lki_hierarchy_options *options)
{
    tree->host_of = LKI_NEW_ARRAY(int, options->size);
    tree->local_of = LKI_NEW_ARRAY(int, options->size);
    tree->rank_counts = LKI_NEW_ARRAY(int, options->size);
    if (!tree->host_of || !tree->local_of || !tree->rank_counts) return LK_ERR_NOMEM;
    int *counts = tree->rank_counts;
    for (int r = 0; r < options->size; r++) {
        int host = options->host_of[r];
        tree->host_of[r] = host;
        tree->local_of[r] = counts[host]++;
        if (counts[host] > tree->widest) tree->widest = counts[host];
        if (host + 1 > tree->host_count) tree->host_count = host + 1;
    }
    tree->host = options->host_of[options->rank];
    tree->local_size = counts[tree->host];
    return LK_OK;
}

lk_status lki_comm_hierarchy_create(lk_comm **out, const lki_hierarchy_options *options)
{
    *out = NULL;
    tree_comm *tree = LKI_NEW(tree_comm);
    if (!tree) return LK_ERR_NOMEM;
    lk_status status = number_ranks(tree, options);
    if (status != LK_OK) {
        lki_free(tree->host_of);
        lki_free(tree->local_of);
        lki_free(tree->rank_counts);
        lki_free(tree);
        return status;
    }
    tree->up = options->up;
    tree->down = options->down;
    tree->leaders = options->leaders;
    tree->monitor = options->monitor;
    tree->on_free = options->on_free;
    tree->context = options->context;
    tree->base.timeout_ms = options->timeout_ms;
    lki_comm_init(&tree->base, &tree->own, &tree_ops, options->rank, options->size);
    if (tree->monitor) lki_monitor_on_failure(tree->monitor, forward, tree);
    if (tree->up) /* `down` has been made after it */
        lki_shm_publish_activity(tree->up);
    else
        lki_activity_publish(&tree->activity);
    *out = &tree->base;
    return LK_OK;
}
