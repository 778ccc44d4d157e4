/* An engine whose memory is not the host's: the reference kernels over memory of its own.
 *
 * It stands where a GPU stands, on a machine that has none: operands live in memory that the library's host
 * code has no pointers to, calls between record_begin and record_end are kept and replayed, and numbers reach
 * the kernels only through begin_step. What would be wrong on a GPU (a host address in a call, numbers read
 * too early, a stale copy) is wrong here. */
#ifndef LKT_FAR_ENGINE_H
#define LKT_FAR_ENGINE_H

#include <lockstep/sys/engine.h>

lk_engine *lkt_far_engine_open(void);
/* How many programs were recorded, and how often one was replayed. */
int lkt_far_record_count(const lk_engine *engine);
int lkt_far_replay_count(const lk_engine *engine);

#endif
