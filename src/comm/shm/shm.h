/* The shared memory behind the shm backend, and the pipeline over it.
 *
 * Every collective is cut into steps. A step moves at most one slot of data per rank. Steps are numbered
 * through the life of the comm. All ranks start the same collectives in the same order, so step t is the same
 * step everywhere. Each rank owns SLOT_COUNT slots, which it alone writes. Step t uses slot t % SLOT_COUNT of
 * each rank and goes through three stages:
 *
 *     post     when every peer has consumed step t - SLOT_COUNT:
 *              copy my data into my slot and set its `posted` to t + 1
 *     reduce   when the peers have posted t: combine what they posted, in rank order
 *     gather   when the peers have reduced t, if each rank reduces only a part:
 *              copy their parts out; then set my `consumed` to t + 1
 *
 * If the data lies in a window (shared_window.h), a step is a whole collective: `post` announces the data,
 * `reduce` writes this rank's part of the result to every rank, and `gather` waits for theirs.
 *
 * A rank runs the stages of its steps in order, as far as possible, whenever it starts, tests or waits. */
#ifndef LKI_COMM_SHM_SHM_H
#define LKI_COMM_SHM_SHM_H

#include "base/activity.h"
#include "comm/comm.h"
#include "comm/comm_own.h"

#include <stdatomic.h>
#include <stdint.h>

enum {
    LKI_SHM_SLOT_COUNT = 8,
    LKI_SHM_VERSION = 2,
    LKI_SHM_LINE = 128, /* two cache lines: the prefetcher fetches pairs */
    LKI_SHM_MAX_RANKS = 1024,
};
#define LKI_SHM_MAGIC 0x6b636f6c6d68736bULL

#define LKI_SHM_ALIGNED _Alignas(LKI_SHM_LINE)

/* What a rank says that it is doing; the others compare it with their own. */
typedef struct lki_shm_note {
    uint64_t seq;
    int64_t count;
    uint8_t kind, reduce, dtype;
    int32_t root;
    uint64_t place; /* 0, or 1 + where in the ranks' blocks of a window the data lies */
} lki_shm_note;

/* Before the data of each slot. */
typedef struct lki_shm_slot {
    LKI_SHM_ALIGNED _Atomic uint64_t posted; /* t + 1, once the note and the data of step t are there */
    lki_shm_note note;
    LKI_SHM_ALIGNED _Atomic uint64_t reduced; /* t + 1, once this rank's part of step t is reduced */
    LKI_SHM_ALIGNED unsigned char data[];
} lki_shm_slot;

typedef enum lki_shm_presence {
    LKI_SHM_ABSENT,
    LKI_SHM_JOINING,
    LKI_SHM_HERE,
    LKI_SHM_LEFT
} lki_shm_presence;

/* One a rank; written by it alone, but for `ended`. */
typedef struct lki_shm_rank {
    LKI_SHM_ALIGNED _Atomic uint64_t consumed; /* steps below this one are over for this rank */
    LKI_SHM_ALIGNED _Atomic int presence;
    _Atomic int pid;
    _Atomic int ended; /* of forked ranks, in their first segment: the process is over, or about to be */
    _Atomic uint64_t started, finished; /* sequence numbers, for the report of a stall */
    _Atomic int kind;
    _Atomic int64_t count;
    lki_activity activity; /* for the same report */
} lki_shm_rank;

typedef struct lki_shm_header {
    _Atomic uint64_t magic; /* set last */
    uint32_t version, size;
    uint64_t slot_nbytes, segment_nbytes;
    _Atomic int aborted; /* 0, then 1 while the text is written, then 2 */
    int abort_rank;
    char abort_text[512];
    _Atomic int left_count;
    LKI_SHM_ALIGNED _Atomic uint32_t sleepers; /* ranks that sleep, or are about to */
    LKI_SHM_ALIGNED _Atomic uint32_t bell;     /* the futex they sleep on */
    LKI_SHM_ALIGNED lki_shm_rank ranks[];
} lki_shm_header;

/* What a request needs here; lies in its scratch. */
typedef struct lki_shm_work {
    uint64_t first_step, step_count;
    int64_t step_elements; /* of one step; of one piece for reduce-scatter */
    uint64_t finished;     /* 1 when all steps are over */
    uint64_t split;        /* 1: each rank reduces a part and gathers the rest */
    uint64_t place;        /* of the note; where it is not 0, nothing is copied through slots */
} lki_shm_work;

/* Where a stage stands: the request at ring[index % LK_COMM_MAX_REQUESTS] and the step within. */
typedef struct lki_shm_cursor {
    uint64_t index, step;
} lki_shm_cursor;

typedef struct lki_shm_comm {
    lk_comm base;
    lki_comm own;
    lki_shm_header *header;
    size_t segment_nbytes, slot_nbytes, slot_stride;
    unsigned char *slots;
    lki_shm_rank *mine;
    int *pidfds;           /* -1 for this process and where there is none */
    int64_t next_check_ns; /* when the peers' lives are looked at again */
    bool crowded;          /* more ranks than cores: do not spin */
    uint64_t next_step;    /* that the next request begins with */
    uint64_t all_consumed; /* known to be consumed by all: steps below */
    uint64_t ring_end;
    lk_comm_request *ring[LK_COMM_MAX_REQUESTS];
    lki_shm_cursor post, reduce, gather;
    char *unlink_path;  /* rank 0's, until all have joined */
    int *names;         /* what ranks are called in sentences */
    bool owner_reports; /* progress is published by who owns this comm */
    const void **inputs;
    bool far_peers, was_far; /* large copies to them are better streamed; the last one measured says so */
    uint64_t large_copies;
} lki_shm_comm;

static inline lki_shm_slot *lki_shm_slot_of(const lki_shm_comm *shm, int rank, uint64_t step)
{
    size_t index = (size_t)rank * LKI_SHM_SLOT_COUNT + step % LKI_SHM_SLOT_COUNT;
    return (lki_shm_slot *)(shm->slots + index * shm->slot_stride);
}

static inline lki_shm_work *lki_shm_work_of(lk_comm_request *request)
{
    return (lki_shm_work *)request->scratch;
}

/* shm_segment.c: mapping and joining. */
lk_status lki_shm_attach(lki_shm_comm *shm, const lki_shm_options *options);
void lki_shm_detach(lki_shm_comm *shm);

/* Rank r's number in the job, for sentences. */
static inline int lki_shm_name(const lki_shm_comm *shm, int rank)
{
    return shm->names[rank];
}

/* shm.c: the rank that the next stage waits for; -1 where something can be done now. */
int lki_shm_blocker(lki_shm_comm *shm);

/* shm_wait.c: waking, sleeping, and noticing that a peer is gone. */
void lki_shm_wake(lki_shm_comm *shm);
lk_status lki_shm_fail_aborted(const lki_shm_comm *shm);
lk_status lki_shm_pause(lk_comm *comm, lk_comm_request *request, int64_t deadline_ns);
lk_status lki_shm_watch_open(lki_shm_comm *shm);
void lki_shm_watch_close(lki_shm_comm *shm);

/* Wakes who sleeps, after something was posted. */
static inline void lki_shm_ring_bell(lki_shm_comm *shm)
{
    /* The flag must be out before sleepers is read; the sleeper does the two in the other order. */
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&shm->header->sleepers, memory_order_relaxed) != 0) lki_shm_wake(shm);
}

static inline lk_status lki_shm_check_abort(const lki_shm_comm *shm)
{
    bool aborted = atomic_load_explicit(&shm->header->aborted, memory_order_acquire) == 2;
    return aborted ? lki_shm_fail_aborted(shm) : LK_OK;
}

#endif
