/* Collectives between the ranks of a job, and what a backend that carries them implements.
 *
 * A comm knows pointers, counts, dtypes and operations; it knows no tensors. Every rank starts the
 * same collectives in the same order; the n-th one of each rank belong together and carry the
 * sequence number n, from 1. A collective is started, then tested or waited for; several may be
 * outstanding. What a reduction gives has the same bits on every rank.
 *
 *     lk_comm_request *request;
 *     lk_comm_op average = {.kind = LK_COMM_ALL_REDUCE, .reduce = LK_REDUCE_AVG, .dtype = LK_F32,
 *                           .send = gradient, .recv = gradient, .count = 7850};
 *     lk_comm_start(comm, &average, &request);
 *     // work that does not touch the gradient
 *     lk_comm_wait(comm, request);
 *
 * When a peer dies, disagrees or stays away beyond the timeout, the call returns LK_ERR_PEER or
 * LK_ERR_TIMEOUT with a sentence that names the rank, and the comm is broken from then on: every
 * later call fails with the same sentence.
 *
 * Thread rule: a comm belongs to one thread at a time; only lk_comm_abort may be called from
 * another. A comm is created after fork, never carried through one. Starting and waiting allocate
 * nothing. */
#ifndef LOCKSTEP_SYS_COMM_H
#define LOCKSTEP_SYS_COMM_H

#include <lockstep/sized.h>
#include <lockstep/status.h>
#include <lockstep/tensor.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* X(symbol, name) */
#define LK_COMM_KIND_LIST(X)                                                                                 \
    X(LK_COMM_ALL_REDUCE, "all-reduce")                                                                      \
    X(LK_COMM_BROADCAST, "broadcast")                                                                        \
    X(LK_COMM_ALL_GATHER, "all-gather")                                                                      \
    X(LK_COMM_REDUCE_SCATTER, "reduce-scatter")                                                              \
    X(LK_COMM_BARRIER, "barrier")

typedef enum lk_comm_kind {
#define X(symbol, name) symbol,
    LK_COMM_KIND_LIST(X)
#undef X
} lk_comm_kind;

/* X(symbol, name). AVG is the sum times 1/size and is for floats alone. MAX and MIN keep a NaN. */
#define LK_REDUCE_LIST(X)                                                                                    \
    X(LK_REDUCE_SUM, "sum")                                                                                  \
    X(LK_REDUCE_AVG, "avg")                                                                                  \
    X(LK_REDUCE_MAX, "max")                                                                                  \
    X(LK_REDUCE_MIN, "min")

typedef enum lk_reduce {
#define X(symbol, name) symbol,
    LK_REDUCE_LIST(X)
#undef X
} lk_reduce;

const char *lk_comm_kind_name(lk_comm_kind kind);
const char *lk_reduce_name(lk_reduce reduce);

typedef struct lk_comm_window lk_comm_window; /* see lk_comm_share */

/* One collective, as its caller describes it. Memory is the caller's and stays untouched by it
 * until the wait.
 *
 *     kind            send                recv                count
 *     all-reduce      count               count               of one rank's array; send == recv is
 * in place broadcast       (unused)            count               of the array; every rank gets
 * root's all-gather      count               count x size        of one rank's piece; pieces lie in
 * rank order reduce-scatter  count x size        count               of one rank's result; rank r
 * gets piece r barrier         (unused)            (unused)            0
 *
 * All-gather and reduce-scatter may be in place: send is then the rank's own piece of recv, or recv
 * of send. Otherwise the two must not overlap. */
typedef struct lk_comm_op {
    lk_comm_kind kind;
    lk_reduce reduce; /* all-reduce and reduce-scatter */
    lk_dtype dtype;
    int root; /* broadcast */
    const void *send;
    void *recv;
    int64_t count;
    /* A stream of a device, for comms with on_device: the collective takes its place among the
     * stream's work, is over for the host at once, and may be recorded. NULL: the memory is ready
     * now, and a wait waits for the end. */
    void *stream;
    bool blocking; /* the caller waits at once: there is nothing to overlap with */
    /* Optional, for an all-reduce in place: the data of every rank lies at the same place of its
     * block of this window, so the ranks need not copy it. */
    const lk_comm_window *window;
} lk_comm_op;

typedef enum lk_comm_state {
    LK_COMM_IDLE,
    LK_COMM_STARTED,
    LK_COMM_DONE,
    LK_COMM_FAILED,
} lk_comm_state;

enum {
    LK_COMM_MAX_REQUESTS = 64, /* outstanding at a time */
    LK_COMM_SCRATCH_WORDS = 12,
};

/* A collective under way. It lies in its comm's pool; the wait (or the test that says done) gives
 * it back. */
typedef struct lk_comm_request {
    lk_comm_op op;
    uint64_t seq;
    lk_comm_state state;
    int slot; /* its number in the pool, below LK_COMM_MAX_REQUESTS: no two outstanding ones share
                 it */
    uint64_t scratch[LK_COMM_SCRATCH_WORDS]; /* the backend's own, zeroed before start */
} lk_comm_request;

/* How far a rank has come: the last collective it started and the last it finished, 0 for none. */
typedef struct lk_comm_progress {
    uint64_t started, finished;
    lk_comm_kind kind; /* of the one it started last */
    int64_t count;
    bool known;  /* false: this backend cannot tell */
    bool silent; /* it was asked and has not answered: it is somewhere before */
} lk_comm_progress;

typedef struct lk_comm lk_comm;

/* What a backend implements. Slots are called on the comm's thread unless they say otherwise. */
typedef struct lk_comm_ops {
    size_t struct_size;
    const char *name;

    /* Required. Begins request->op, which has been checked, and may finish part of the work. Never
     * blocks for a peer. The request stays where it is until test says it is done. */
    lk_status (*start)(lk_comm *comm, lk_comm_request *request);

    /* Required. Moves every outstanding request on as far as it goes without waiting; *done says
     * whether this one is finished. A failure means the comm is broken. */
    lk_status (*test)(lk_comm *comm, lk_comm_request *request, bool *done);

    /* Optional. Blocks until something may have changed for `request` or about `deadline_ns`
     * (monotonic) has come, then returns; it also looks after the peers' lives and fails with
     * LK_ERR_PEER where one is gone. Without it the wait tests in a loop that yields the core. */
    lk_status (*pause)(lk_comm *comm, lk_comm_request *request, int64_t deadline_ns);

    /* Optional. How far `rank` has come, for the report of a stall. May take a second. */
    void (*progress)(lk_comm *comm, int rank, lk_comm_progress *out);

    /* Required. Makes this rank's and the peers' pending and later calls fail with LK_ERR_PEER and
     * this sentence, as far as the backend can reach them. Any thread, at any time before free; the
     * first call counts. */
    void (*abort)(lk_comm *comm, const char *reason);

    /* Required. Frees the context. Outstanding requests are given up. */
    void (*free)(lk_comm *comm);

    /* Optional, with on_device: whether all is well, as far as this rank knows; it waits for
     * nobody. */
    lk_status (*check)(lk_comm *comm);
    bool on_device; /* takes memory of a GPU, and streams */

    /* Optional. Behind lk_comm_share, which says what it does; called where there are several
     * ranks. */
    lk_status (*share)(lk_comm *comm, size_t nbytes, size_t common_nbytes, lk_comm_window **out);

    /* Optional. What `rank` does, in a few words for the report of a stall ("in callback Slow"), or
     * "". Returns whether it stands still: stopped, or not heard from. May take a second. */
    bool (*doing)(lk_comm *comm, int rank, char *text, size_t capacity);
} lk_comm_ops;

enum { LK_COMM_DEFAULT_TIMEOUT_MS = 300000 };

/* What everybody may read. Only timeout_ms may be set. */
struct lk_comm {
    const lk_comm_ops *ops;
    int rank, size;
    int64_t timeout_ms;   /* of one collective */
    void *context;        /* the backend's own */
    struct lki_comm *own; /* the library's */
};

/* A comm over a backend of your own. It owns `context` from here on, also if it fails and returns
 * NULL: `free` gets a comm with that context and frees it. The ops are copied and need no size. */
lk_comm *lk_comm_create(const lk_comm_ops *ops, int rank, int size, void *context);
#ifndef __cplusplus
LK_TAKES_SIZED_(lk_comm_ops)
static inline lk_comm *lk_comm_create_sized_(const lk_comm_ops *ops, int rank, int size, void *context)
{
    lk_comm_ops room;
    return lk_comm_create(lk_comm_ops_at_(ops, &room), rank, size, context);
}
#define lk_comm_create lk_comm_create_sized_
#endif

/* Starts a collective. Errors in the description (a count below 0, AVG of integers, a root that
 * does not exist) are LK_ERR_INVALID or LK_ERR_DTYPE and leave the comm as it was. */
lk_status lk_comm_start(lk_comm *comm, const lk_comm_op *op, lk_comm_request **out);

/* *done says whether it is finished; a finished request is given back and must not be used again.
 */
lk_status lk_comm_test(lk_comm *comm, lk_comm_request *request, bool *done);

/* Blocks until it is finished, a peer has failed or the timeout has passed; the request is given
 * back in every case. */
lk_status lk_comm_wait(lk_comm *comm, lk_comm_request *request);

/* Start and wait in one call. */
lk_status lk_comm_run(lk_comm *comm, const lk_comm_op *op);
lk_status lk_comm_all_reduce(lk_comm *comm, void *data, int64_t count, lk_dtype dtype, lk_reduce reduce);
lk_status lk_comm_broadcast(lk_comm *comm, void *data, int64_t count, lk_dtype dtype, int root);
lk_status lk_comm_all_gather(lk_comm *comm, const void *send, void *recv, int64_t count, lk_dtype dtype);
lk_status lk_comm_reduce_scatter(lk_comm *comm, const void *send, void *recv, int64_t count, lk_dtype dtype,
                                 lk_reduce reduce);
lk_status lk_comm_barrier(lk_comm *comm);

/* Memory that every rank of the comm can reach: a block of `nbytes` for each, and one of
 * `common_nbytes` that is the same for all. Collective. It is zeroed and aligned to pages. *out is
 * NULL, on every rank, where there is nothing to gain or no such memory: one rank, ranks of several
 * hosts, few bytes, ranks that ask for different amounts, or none left. A window outlives its comm
 * and is freed with its last user; the first one is who asked for it. Users may come and go on any
 * thread. */
lk_status lk_comm_share(lk_comm *comm, size_t nbytes, size_t common_nbytes, lk_comm_window **out);
void *lk_comm_window_block(const lk_comm_window *window, int rank);
void *lk_comm_window_common(const lk_comm_window *window);
lk_comm_window *lk_comm_window_use(lk_comm_window *window); /* one user more; returns it */
void lk_comm_window_release(lk_comm_window *window);        /* NULL is fine */

/* Whether the comm still works, for those whose collectives ran on a device's stream: a failure
 * there shows nowhere else. Fails like any collective would. */
lk_status lk_comm_check(lk_comm *comm);

/* Whether nothing is outstanding and nothing has failed, as far as this rank knows. Waits for
 * nobody. */
bool lk_comm_is_idle(const lk_comm *comm);

/* Tells the peers that this rank gives up, and why; they fail with that sentence. Any thread. */
void lk_comm_abort(lk_comm *comm, const char *reason);

/* NULL is fine. */
void lk_comm_free(lk_comm *comm);

/* The comm of a process that has no peers: for steps that must stay this rank's own inside a run on
 * several ranks (lk_step_options.comm). It is never freed. */
lk_comm *lk_comm_alone(void);

/* The last `limit` collectives as one line ("#16 all-reduce 7850 f32 done in 9 us; #17 ..."),
 * oldest first; returns text. */
const char *lk_comm_history(const lk_comm *comm, int limit, char *text, size_t capacity);

#ifdef __cplusplus
}
#endif
#endif
