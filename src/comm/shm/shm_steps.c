/* What one step of a collective moves, stage by stage. */
#include "comm/shm/shm.h"

#include "base/clock.h"
#include "base/status.h"
#include "comm/reduction.h"
#include "comm/shm/shared_window.h"
#include "tensor/layout.h"

#include <string.h>

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

void lki_shm_plan(lki_shm_comm *shm, lk_comm_request *request)
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

void lki_shm_post(lki_shm_comm *shm, lk_comm_request *request, uint64_t step)
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

lk_status lki_shm_reduce(lki_shm_comm *shm, lk_comm_request *request, uint64_t step)
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

void lki_shm_gather(lki_shm_comm *shm, lk_comm_request *request, uint64_t step)
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
