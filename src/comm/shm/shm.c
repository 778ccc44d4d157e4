/* The shm backend: what one step of a collective moves, stage by stage, and the pipeline of steps. See shm.h
 * for how it works. */
#include "comm/shm/shm.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/comm_own.h"
#include "comm/reduction.h"
#include "comm/shm/shared_window.h"
#include "comm/stall.h"
#include "tensor/layout.h"

#include <stdio.h>
#include <string.h>

/* ---- One step: its stages assume that it is ready, and fail if the notes of the ranks differ ---- */

/* Above this, ranks reduce a part each and gather the rest; below, each reduces all: one exchange less. Two
 * ranks read each other's data once either way. */
enum { SPLIT_NBYTES = 16384, WINDOW_NBYTES = 65536 };

static const lki_shm_note *note_of(lk_comm_request *request, lki_shm_note *note)
{
    const lk_comm_op *op = &request->op;
    bool reduces = op->kind == LK_COMM_ALL_REDUCE || op->kind == LK_COMM_REDUCE_SCATTER;
    *note = (lki_shm_note){
        .seq = request->seq,
        .count = op->count,
        .kind = (uint8_t)op->kind,
        .reduce = reduces ? (uint8_t)op->reduce : 0,
        .dtype = (uint8_t)op->dtype,
        .root = op->kind == LK_COMM_BROADCAST ? op->root : 0,
        .place = lki_shm_work_of(request)->place,
    };
    return note;
}

/* Where in the ranks' blocks of a window the collective's data lies, counted from 1; 0: it goes through the
 * slots, as few bytes do, which arrive sooner that way. */
static uint64_t place_of(const lki_shm_comm *shm, const lk_comm_op *op)
{
    size_t nbytes = (size_t)op->count * lki_dtype_nbytes(op->dtype);
    if (!op->window || op->kind != LK_COMM_ALL_REDUCE || op->send != op->recv || nbytes <= WINDOW_NBYTES ||
        !lki_window_holds(op->window, shm->base.rank, op->recv, nbytes))
        return 0;
    return 1 + (uint64_t)((char *)op->recv - (char *)lk_comm_window_block(op->window, shm->base.rank));
}

static void plan_request(lki_shm_comm *shm, lk_comm_request *request)
{
    const lk_comm_op *op = &request->op;
    lki_shm_work *work = lki_shm_work_of(request);
    int64_t per_step = (int64_t)(shm->slot_nbytes / lki_dtype_nbytes(op->dtype));
    if (op->kind == LK_COMM_REDUCE_SCATTER) per_step /= shm->base.size;
    work->step_elements = per_step;
    work->step_count = op->count > per_step ? (uint64_t)((op->count + per_step - 1) / per_step) : 1;
    work->first_step = shm->next_step;
    work->split = op->kind == LK_COMM_ALL_REDUCE && shm->base.size > 2 &&
                  (size_t)op->count * lki_dtype_nbytes(op->dtype) > SPLIT_NBYTES;
    work->place = place_of(shm, op);
    if (work->place) {
        work->step_elements = op->count;
        work->step_count = work->split = 1;
    }
    shm->next_step += work->step_count;
}

/* The elements [begin, begin + count) of the collective that a step moves. */
typedef struct span {
    int64_t begin, count;
    size_t nbytes; /* of an element */
} span;

static span span_of(lk_comm_request *request, uint64_t step)
{
    const lki_shm_work *work = lki_shm_work_of(request);
    int64_t begin = (int64_t)(step - work->first_step) * work->step_elements;
    int64_t left = request->op.count - begin;
    return (span){begin, left < work->step_elements ? left : work->step_elements,
                  lki_dtype_nbytes(request->op.dtype)};
}

/* Rank r's part of a split step, cut at whole cache lines: no two ranks write to one. */
static span part_of(const lki_shm_comm *shm, span whole, int rank)
{
    int64_t line = (int64_t)(64 / whole.nbytes);
    int64_t lines = (whole.count + line - 1) / line;
    int64_t begin = lines * rank / shm->base.size * line, end = lines * (rank + 1) / shm->base.size * line;
    if (begin > whole.count) begin = whole.count;
    if (end > whole.count) end = whole.count;
    return (span){begin, end - begin, whole.nbytes};
}

static void copy(void *to, const void *from, int64_t count, size_t nbytes)
{
    if (count > 0 && to != from) memcpy(to, from, (size_t)count * nbytes);
}

/* A line that a peer has read must be taken from it before it can be written through the caches again, one
 * after the other: where the two cores share no cache, that costs four times as much as all the rest. Such
 * copies are streamed. Small ones are quicker through the caches all the same; in the middle streaming costs
 * as much where the cores do share one; large ones go by how long the last of them took. */
enum {
    STREAM_LEAST_NBYTES = 16384,
    STREAM_MEASURED_NBYTES = 65536,
    FAR_NS_A_LINE = 8,
    MEASURE_EVERY = 32,
};

static void copy_measured(lki_shm_comm *shm, void *to, const void *from, size_t nbytes)
{
    int64_t start_ns = lki_now_ns();
    memcpy(to, from, nbytes);
    bool far = (lki_now_ns() - start_ns) * 64 > FAR_NS_A_LINE * (int64_t)nbytes;
    shm->far_peers = far && (shm->far_peers || shm->was_far); /* twice in a row: once may be bad luck */
    shm->was_far = far;
}

static void copy_to_peers(lki_shm_comm *shm, void *to, const void *from, int64_t count, size_t nbytes)
{
    size_t total = count > 0 ? (size_t)count * nbytes : 0;
    if (total < STREAM_LEAST_NBYTES)
        copy(to, from, count, nbytes);
    else if (total <= STREAM_MEASURED_NBYTES || (shm->far_peers && ++shm->large_copies % MEASURE_EVERY))
        lki_stream(to, from, total);
    else
        copy_measured(shm, to, from, total);
}

static const char *element(const void *data, int64_t index, size_t nbytes)
{
    return (const char *)data + (size_t)index * nbytes;
}

static void post_step(lki_shm_comm *shm, lk_comm_request *request, uint64_t step)
{
    const lk_comm_op *op = &request->op;
    lki_shm_slot *slot = lki_shm_slot_of(shm, shm->base.rank, step);
    span s = span_of(request, step);
    int me = shm->base.rank;
    note_of(request, &slot->note);
    if (lki_shm_work_of(request)->place) {
        /* It is where it can be read. */
    } else if (op->kind == LK_COMM_REDUCE_SCATTER) {
        for (int r = 0; r < shm->base.size; r++)
            if (r != me)
                copy_to_peers(shm, slot->data + (size_t)(r * s.count) * s.nbytes,
                              element(op->send, r * op->count + s.begin, s.nbytes), s.count, s.nbytes);
    } else if (lki_shm_work_of(request)->split) {
        span mine = part_of(shm, s, me); /* stays free for the result */
        int64_t after = mine.begin + mine.count;
        const char *from = element(op->send, s.begin, s.nbytes);
        copy_to_peers(shm, slot->data, from, mine.begin, s.nbytes);
        copy_to_peers(shm, slot->data + (size_t)after * s.nbytes, from + (size_t)after * s.nbytes,
                      s.count - after, s.nbytes);
    } else if (op->kind != LK_COMM_BROADCAST || op->root == me) {
        copy_to_peers(shm, slot->data, element(op->send, s.begin, s.nbytes), s.count, s.nbytes);
    }
    atomic_store_explicit(&slot->posted, step + 1, memory_order_release);
}

static lk_status mismatch(lki_shm_comm *shm, lk_comm_request *request, int rank, const lki_shm_note *theirs)
{
    if (theirs->seq == request->seq && theirs->place != lki_shm_work_of(request)->place)
        return lki_fail(LK_ERR_PEER, "ranks disagree: the data of rank %d lies elsewhere in the window",
                        lki_shm_name(shm, rank));
    return lki_fail(
        LK_ERR_PEER,
        "ranks disagree: rank %d is at %s #%llu of %lld %s (%s, root %d), rank %d at %s #%llu of %lld %s",
        lki_shm_name(shm, rank), lk_comm_kind_name((lk_comm_kind)theirs->kind),
        (unsigned long long)theirs->seq, (long long)theirs->count, lk_dtype_name((lk_dtype)theirs->dtype),
        lk_reduce_name((lk_reduce)theirs->reduce), theirs->root, lki_shm_name(shm, shm->base.rank),
        lk_comm_kind_name(request->op.kind), (unsigned long long)request->seq, (long long)request->op.count,
        lk_dtype_name(request->op.dtype));
}

/* Every step compares: it costs no cache line more than the flag beside it. */
static lk_status check_notes(lki_shm_comm *shm, lk_comm_request *request, uint64_t step)
{
    lki_shm_note mine;
    note_of(request, &mine);
    for (int r = 0; r < shm->base.size; r++) {
        if (r == shm->base.rank || (mine.kind == LK_COMM_BROADCAST && r != mine.root)) continue;
        const lki_shm_note *theirs = &lki_shm_slot_of(shm, r, step)->note;
        if (theirs->seq != mine.seq || theirs->count != mine.count || theirs->kind != mine.kind ||
            theirs->reduce != mine.reduce || theirs->dtype != mine.dtype || theirs->root != mine.root ||
            theirs->place != mine.place)
            return mismatch(shm, request, r, theirs);
    }
    return LK_OK;
}

/* out = the sum (or so) of one span of every rank: the peers' from their slots at `offset`, ours from our own
 * memory. */
static void reduce_span(lki_shm_comm *shm, lk_comm_request *request, uint64_t step, int64_t offset,
                        int64_t count, const void *own, void *out)
{
    size_t nbytes = lki_dtype_nbytes(request->op.dtype);
    for (int r = 0; r < shm->base.size; r++)
        shm->inputs[r] =
            r == shm->base.rank ? own : element(lki_shm_slot_of(shm, r, step)->data, offset, nbytes);
    if (count > 0)
        lki_reduce(out, shm->inputs, shm->base.size, count, request->op.dtype, request->op.reduce,
                   shm->base.size);
}

/* This rank's part of what lies in a window: from everybody's block into everybody's, a stretch that fits the
 * first cache at a time. The lines of a peer's block have just been read, so that writing them through the
 * caches takes no time to speak of, whether the cores share one or not; streaming them takes twice to five
 * times as long. */
static void reduce_in_window(lki_shm_comm *shm, lk_comm_request *request, span whole)
{
    enum { STRETCH_NBYTES = 16384 };
    const lk_comm_op *op = &request->op;
    span mine = part_of(shm, whole, shm->base.rank);
    size_t place = lki_shm_work_of(request)->place - 1;
    int64_t stretch = (int64_t)(STRETCH_NBYTES / mine.nbytes);
    for (int64_t begin = mine.begin, end = mine.begin + mine.count; begin < end; begin += stretch) {
        int64_t count = end - begin < stretch ? end - begin : stretch;
        size_t offset = place + (size_t)begin * mine.nbytes;
        char *out = (char *)lk_comm_window_block(op->window, shm->base.rank) + offset;
        for (int r = 0; r < shm->base.size; r++)
            shm->inputs[r] = (char *)lk_comm_window_block(op->window, r) + offset;
        lki_reduce(out, shm->inputs, shm->base.size, count, op->dtype, op->reduce, shm->base.size);
        for (int r = 0; r < shm->base.size; r++)
            if (r != shm->base.rank)
                copy((char *)lk_comm_window_block(op->window, r) + offset, out, count, mine.nbytes);
    }
}

static lk_status reduce_step(lki_shm_comm *shm, lk_comm_request *request, uint64_t step)
{
    const lk_comm_op *op = &request->op;
    span s = span_of(request, step);
    char *out = op->recv ? (char *)op->recv + (size_t)s.begin * s.nbytes : NULL;
    int me = shm->base.rank;
    LKI_TRY(check_notes(shm, request, step));
    switch (op->kind) {
    case LK_COMM_ALL_REDUCE:
        if (lki_shm_work_of(request)->place) {
            reduce_in_window(shm, request, s);
            atomic_store_explicit(&lki_shm_slot_of(shm, me, step)->reduced, step + 1, memory_order_release);
        } else if (lki_shm_work_of(request)->split) {
            lki_shm_slot *slot = lki_shm_slot_of(shm, me, step);
            span mine = part_of(shm, s, me);
            char *result = out + (size_t)mine.begin * s.nbytes;
            reduce_span(shm, request, step, mine.begin, mine.count,
                        element(op->send, s.begin + mine.begin, s.nbytes), result);
            copy_to_peers(shm, slot->data + (size_t)mine.begin * s.nbytes, result, mine.count, s.nbytes);
            atomic_store_explicit(&slot->reduced, step + 1, memory_order_release);
        } else {
            reduce_span(shm, request, step, 0, s.count, element(op->send, s.begin, s.nbytes), out);
        }
        break;
    case LK_COMM_REDUCE_SCATTER:
        reduce_span(shm, request, step, me * s.count, s.count,
                    element(op->send, me * op->count + s.begin, s.nbytes), out);
        break;
    case LK_COMM_BROADCAST:
        if (op->root != me) copy(out, lki_shm_slot_of(shm, op->root, step)->data, s.count, s.nbytes);
        break;
    case LK_COMM_ALL_GATHER:
        for (int r = 0; r < shm->base.size; r++) {
            const void *from = r == me ? element(op->send, s.begin, s.nbytes)
                                       : (const char *)lki_shm_slot_of(shm, r, step)->data;
            copy((char *)op->recv + (size_t)(r * op->count + s.begin) * s.nbytes, from, s.count, s.nbytes);
        }
        break;
    case LK_COMM_BARRIER: break;
    }
    return LK_OK;
}

static void gather_step(lki_shm_comm *shm, lk_comm_request *request, uint64_t step)
{
    span s = span_of(request, step);
    char *out = (char *)request->op.recv + (size_t)s.begin * s.nbytes;
    if (lki_shm_work_of(request)->place) return; /* the others have written it here */
    for (int r = 0; r < shm->base.size; r++) {
        span part = part_of(shm, s, r);
        if (r == shm->base.rank) continue;
        copy(out + (size_t)part.begin * s.nbytes,
             lki_shm_slot_of(shm, r, step)->data + (size_t)part.begin * s.nbytes, part.count, s.nbytes);
    }
}

/* ---- The pipeline ---- */

static lk_comm_request *request_at(const lki_shm_comm *shm, const lki_shm_cursor *cursor)
{
    return cursor->index < shm->ring_end ? shm->ring[cursor->index % LK_COMM_MAX_REQUESTS] : NULL;
}

static void move_on(lki_shm_cursor *cursor, lk_comm_request *request)
{
    const lki_shm_work *work = lki_shm_work_of(request);
    if (++cursor->step == work->first_step + work->step_count) cursor->index++;
}

/* A rank that has not consumed `step` yet; -1 where all have. */
static int not_consumed_by(lki_shm_comm *shm, uint64_t step)
{
    uint64_t all = UINT64_MAX;
    if (step < shm->all_consumed) return -1;
    for (int r = 0; r < shm->base.size; r++) {
        uint64_t theirs = atomic_load_explicit(&shm->header->ranks[r].consumed, memory_order_acquire);
        if (theirs <= step) return r;
        if (theirs < all) all = theirs;
    }
    shm->all_consumed = all;
    return -1;
}

static int not_posted_by(lki_shm_comm *shm, lk_comm_request *request, uint64_t step)
{
    int only = request->op.kind == LK_COMM_BROADCAST ? request->op.root : -1;
    for (int r = 0; r < shm->base.size; r++) {
        if (r == shm->base.rank || (only >= 0 && r != only)) continue;
        if (atomic_load_explicit(&lki_shm_slot_of(shm, r, step)->posted, memory_order_acquire) != step + 1)
            return r;
    }
    return -1;
}

static int not_reduced_by(lki_shm_comm *shm, uint64_t step)
{
    for (int r = 0; r < shm->base.size; r++) {
        if (r == shm->base.rank) continue;
        if (atomic_load_explicit(&lki_shm_slot_of(shm, r, step)->reduced, memory_order_acquire) != step + 1)
            return r;
    }
    return -1;
}

/* A value beyond every rank: there is no such step at the moment. */
enum { NOTHING_TO_DO = 1 << 30 };

static int gather_blocker(lki_shm_comm *shm)
{
    lk_comm_request *request = request_at(shm, &shm->gather);
    if (!request || shm->gather.step >= shm->reduce.step) return NOTHING_TO_DO;
    return lki_shm_work_of(request)->split ? not_reduced_by(shm, shm->gather.step) : -1;
}

static int reduce_blocker(lki_shm_comm *shm)
{
    lk_comm_request *request = request_at(shm, &shm->reduce);
    if (!request || shm->reduce.step >= shm->post.step) return NOTHING_TO_DO;
    return not_posted_by(shm, request, shm->reduce.step);
}

static int post_blocker(lki_shm_comm *shm)
{
    if (!request_at(shm, &shm->post)) return NOTHING_TO_DO;
    return shm->post.step < LKI_SHM_SLOT_COUNT ? -1
                                               : not_consumed_by(shm, shm->post.step - LKI_SHM_SLOT_COUNT);
}

int lki_shm_blocker(lki_shm_comm *shm)
{
    int gather = gather_blocker(shm), reduce = reduce_blocker(shm), post = post_blocker(shm);
    if (gather < 0 || reduce < 0 || post < 0) return -1;
    if (gather < shm->base.size) return gather;
    if (reduce < shm->base.size) return reduce;
    return post < shm->base.size ? post : -1;
}

static void finish(lki_shm_comm *shm, lk_comm_request *request)
{
    lki_shm_work_of(request)->finished = 1;
    if (!shm->owner_reports) atomic_store_explicit(&shm->mine->finished, request->seq, memory_order_relaxed);
}

static void run_gather(lki_shm_comm *shm)
{
    lk_comm_request *request = request_at(shm, &shm->gather);
    uint64_t index = shm->gather.index;
    if (lki_shm_work_of(request)->split) gather_step(shm, request, shm->gather.step);
    atomic_store_explicit(&shm->mine->consumed, shm->gather.step + 1, memory_order_release);
    move_on(&shm->gather, request);
    if (shm->gather.index != index) finish(shm, request);
}

/* Runs the stages as far as they go; what is furthest along first, since it frees slots. */
static lk_status advance(lki_shm_comm *shm)
{
    for (;;) {
        if (gather_blocker(shm) < 0) {
            run_gather(shm);
        } else if (reduce_blocker(shm) < 0) {
            lk_comm_request *request = request_at(shm, &shm->reduce);
            LKI_TRY(reduce_step(shm, request, shm->reduce.step));
            move_on(&shm->reduce, request);
        } else if (post_blocker(shm) < 0) {
            lk_comm_request *request = request_at(shm, &shm->post);
            post_step(shm, request, shm->post.step);
            move_on(&shm->post, request);
        } else {
            return LK_OK;
        }
        lki_shm_ring_bell(shm);
    }
}

static lk_status shm_start(lk_comm *comm, lk_comm_request *request)
{
    lki_shm_comm *shm = (lki_shm_comm *)comm;
    LKI_TRY(lki_shm_check_abort(shm));
    plan_request(shm, request);
    shm->ring[shm->ring_end++ % LK_COMM_MAX_REQUESTS] = request;
    if (!shm->owner_reports) {
        atomic_store_explicit(&shm->mine->kind, (int)request->op.kind, memory_order_relaxed);
        atomic_store_explicit(&shm->mine->count, request->op.count, memory_order_relaxed);
        atomic_store_explicit(&shm->mine->started, request->seq, memory_order_relaxed);
    }
    return advance(shm);
}

void lki_shm_report(lk_comm *comm, const lk_comm_progress *at)
{
    lki_shm_rank *mine = ((lki_shm_comm *)comm)->mine;
    atomic_store_explicit(&mine->kind, (int)at->kind, memory_order_relaxed);
    atomic_store_explicit(&mine->count, at->count, memory_order_relaxed);
    atomic_store_explicit(&mine->started, at->started, memory_order_relaxed);
    atomic_store_explicit(&mine->finished, at->finished, memory_order_relaxed);
}

void lki_shm_publish_activity(lk_comm *comm)
{
    lki_activity_publish(&((lki_shm_comm *)comm)->mine->activity);
}

static lk_status shm_test(lk_comm *comm, lk_comm_request *request, bool *done)
{
    lki_shm_comm *shm = (lki_shm_comm *)comm;
    if (!lki_shm_work_of(request)->finished) LKI_TRY(advance(shm));
    *done = lki_shm_work_of(request)->finished;
    return *done ? LK_OK : lki_shm_check_abort(shm);
}

static void shm_progress(lk_comm *comm, int rank, lk_comm_progress *out)
{
    const lki_shm_rank *theirs = &((lki_shm_comm *)comm)->header->ranks[rank];
    *out = (lk_comm_progress){
        .started = atomic_load(&theirs->started),
        .finished = atomic_load(&theirs->finished),
        .kind = (lk_comm_kind)atomic_load(&theirs->kind),
        .count = atomic_load(&theirs->count),
        .known = true,
    };
}

static bool shm_doing(lk_comm *comm, int rank, char *text, size_t capacity)
{
    const lki_shm_rank *theirs = &((lki_shm_comm *)comm)->header->ranks[rank];
    char activity[LKI_ACTIVITY_NBYTES + 1];
    lki_activity_read(&theirs->activity, activity, sizeof activity);
    return lki_stall_process(atomic_load(&theirs->pid), activity, text, capacity);
}

/* The first one counts. Rank -1: the sentence says itself who it was. */
static void publish_abort(lki_shm_comm *shm, int rank, const char *reason)
{
    lki_shm_header *header = shm->header;
    int none = 0;
    if (!atomic_compare_exchange_strong(&header->aborted, &none, 1)) return;
    header->abort_rank = rank;
    snprintf(header->abort_text, sizeof header->abort_text, "%s", reason);
    atomic_store(&header->aborted, 2);
    lki_shm_ring_bell(shm);
}

static void shm_abort(lk_comm *comm, const char *reason)
{
    publish_abort((lki_shm_comm *)comm, comm->rank, reason);
}

void lki_shm_forward_failure(lk_comm *comm, const char *sentence)
{
    publish_abort((lki_shm_comm *)comm, -1, sentence);
}

static void shm_free(lk_comm *comm)
{
    lki_shm_comm *shm = (lki_shm_comm *)comm;
    if (shm->mine) lki_activity_withdraw(&shm->mine->activity);
    lki_shm_watch_close(shm);
    lki_shm_detach(shm);
    lki_free(shm->inputs);
    lki_free(shm->names);
    lki_free(shm);
}

static const lk_comm_ops shm_ops = {
    LK_SIZE(lk_comm_ops), .name = "shm",          .start = shm_start,
    .test = shm_test,     .pause = lki_shm_pause, .progress = shm_progress,
    .abort = shm_abort,   .free = shm_free,       .share = lki_shm_share,
    .doing = shm_doing,
};

lk_status lki_comm_shm_create(lk_comm **out, const lki_shm_options *options)
{
    *out = NULL;
    if (options->size < 1 || options->size > LKI_SHM_MAX_RANKS || options->rank < 0 ||
        options->rank >= options->size)
        return lki_fail(LK_ERR_INVALID, "shm: there is no rank %d among %d ranks", options->rank,
                        options->size);
    lki_shm_comm *shm = LKI_NEW(lki_shm_comm);
    if (!shm) return LK_ERR_NOMEM;
    shm->base.timeout_ms = options->timeout_ms;
    lki_comm_init(&shm->base, &shm->own, &shm_ops, options->rank, options->size);
    shm->owner_reports = options->owner_reports;
    shm->inputs = LKI_NEW_ARRAY(const void *, options->size);
    shm->names = LKI_NEW_ARRAY(int, options->size);
    for (int r = 0; shm->names && r < options->size; r++)
        shm->names[r] = options->names ? options->names[r] : r;
    lk_status status = shm->inputs && shm->names ? lki_shm_attach(shm, options) : LK_ERR_NOMEM;
    if (status == LK_OK) status = lki_shm_watch_open(shm);
    if (status == LK_OK) lki_shm_publish_activity(&shm->base);
    if (status != LK_OK) {
        shm_free(&shm->base);
        return status;
    }
    *out = &shm->base;
    return LK_OK;
}
