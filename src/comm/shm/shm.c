/* The shm backend: the pipeline of steps. See shm.h for how it works. */
#include "comm/shm/shm.h"
#include "comm/comm_own.h"

#include "base/memory.h"
#include "base/status.h"
#include "comm/shm/shared_window.h"

#include <stdio.h>

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
    if (lki_shm_work_of(request)->split) lki_shm_gather(shm, request, shm->gather.step);
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
            LKI_TRY(lki_shm_reduce(shm, request, shm->reduce.step));
            move_on(&shm->reduce, request);
        } else if (post_blocker(shm) < 0) {
            lk_comm_request *request = request_at(shm, &shm->post);
            lki_shm_post(shm, request, shm->post.step);
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
    lki_shm_plan(shm, request);
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
    if (status != LK_OK) {
        shm_free(&shm->base);
        return status;
    }
    *out = &shm->base;
    return LK_OK;
}
