/* An engine whose memory is not the host's: the reference kernels over memory of its own.
 *
 * It stands where a GPU stands, on a machine that has none: operands live in memory that the library's host
 * code has no pointers to, calls between record_begin and record_end are kept and replayed, and numbers reach
 * the kernels only through begin_step. Work is done by a thread of its own, later: a lazy engine does nothing
 * before somebody waits for it, and then no more than was waited for; an eager one works as soon as it can.
 * What would be wrong on a GPU (a host address in a call, numbers or batches read too early or too late, a
 * stale copy, a wait that is missing) is wrong here, in its values and under a thread sanitizer. */
#ifndef LKT_FAR_ENGINE_H
#define LKT_FAR_ENGINE_H

#include <lockstep/sys/engine.h>

typedef struct lkt_far_options {
    bool eager;
    bool waits_always;    /* has no marks: the host cannot run ahead */
    size_t memory_nbytes; /* 0: as much as there is */
    int full_records;     /* so many recordings, the first ones, find no room */
} lkt_far_options;

#define lkt_far_engine_open(...) lkt_far_engine_create((lkt_far_options){__VA_ARGS__})
lk_engine *lkt_far_engine_create(lkt_far_options options);
/* How many programs were recorded, how often one was replayed, and how often somebody waited for a mark while
 * there was more to do. */
int lkt_far_record_count(const lk_engine *engine);
int lkt_far_replay_count(const lk_engine *engine);
int lkt_far_ahead_count(const lk_engine *engine);

#endif
