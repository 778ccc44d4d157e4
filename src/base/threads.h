/* A pool of threads that split loops: lki_parallel_for cuts [0, count) into one contiguous chunk a lane.
 *
 * There is a lane for each thread, unless a pool is made with a number of lanes of its own, which its threads
 * then share. Chunks depend only on `count` and the number of lanes, so a kernel whose chunks write disjoint
 * outputs gives the same bits every time, and with a fixed number of lanes on any number of threads. The
 * caller works too; a pool of one thread runs the loop in place. One loop at a time per pool: the pool
 * belongs to the thread that replays the plan. Pools are created after fork: threads do not survive it. */
#ifndef LKI_BASE_THREADS_H
#define LKI_BASE_THREADS_H

#include <lockstep/status.h>

#include <stdint.h>

typedef struct lki_pool lki_pool;

/* `thread_count` of 0 means the cores this process may run on (its affinity); `lane_count` of 0 one lane a
 * thread. Threads beyond the number of lanes are not started. */
lk_status lki_pool_create(lki_pool **out, int thread_count, int lane_count);
void lki_pool_free(lki_pool *pool);
int lki_pool_lane_count(const lki_pool *pool);

/* No chunk may wait for another: one thread may run both. */
typedef void (*lki_loop_body)(int64_t begin, int64_t end, int lane, void *context);

/* Runs body over [0, count) with at least `grain` iterations a chunk: small loops stay on the caller. */
void lki_parallel_for(lki_pool *pool, int64_t count, int64_t grain, lki_loop_body body, void *context);

/* The cores that this process may run on: its affinity, or its share of the quota of its control groups, if
 * that is less. */
int lki_core_count(void);
int lki_affinity_count(void);
/* So many processes like this one share the quota. */
void lki_share_cores(int process_count);

#endif
