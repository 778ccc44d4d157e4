/* A pool of threads that split loops: lki_parallel_for cuts [0, count) into one contiguous chunk a thread.
 *
 * Chunks depend only on `count` and the number of threads, so a kernel whose chunks write disjoint outputs
 * gives the same bits every time. The caller works too; a pool of one thread runs the loop in place. One loop
 * at a time per pool: the pool belongs to the thread that replays the plan. Pools are created after fork:
 * threads do not survive it. */
#ifndef LKI_BASE_THREADS_H
#define LKI_BASE_THREADS_H

#include <lockstep/status.h>

#include <stdint.h>

typedef struct lki_pool lki_pool;

/* `thread_count` of 0 means the cores this process may run on (its affinity). */
lk_status lki_pool_create(lki_pool **out, int thread_count);
void lki_pool_free(lki_pool *pool);
int lki_pool_thread_count(const lki_pool *pool);

typedef void (*lki_loop_body)(int64_t begin, int64_t end, int thread, void *context);

/* Runs body over [0, count) with at least `grain` iterations a chunk: small loops stay on the caller. */
void lki_parallel_for(lki_pool *pool, int64_t count, int64_t grain, lki_loop_body body, void *context);

/* The cores that this process may run on: its affinity, or its share of the quota of its control groups, if
 * that is less. */
int lki_core_count(void);
int lki_affinity_count(void);
/* So many processes like this one share the quota. */
void lki_share_cores(int process_count);

#endif
