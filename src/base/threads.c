#define _GNU_SOURCE
#include "base/cgroup.h"
#include "base/threads.h"

#include "base/float_mode.h"
#include "base/memory.h"
#include "base/status.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

enum { SPIN_COUNT = 4000 };

typedef struct loop {
    lki_loop_body body;
    void *context;
    int64_t count;
    int chunk_count;
    lki_float_mode mode; /* the caller's: all threads of a loop treat denormals alike */
} loop;

struct lki_pool {
    int thread_count; /* the caller included */
    int lane_count;   /* the largest number of chunks of a loop */
    pthread_t *workers;
    int worker_count;
    pthread_mutex_t lock;
    pthread_cond_t work_ready;
    loop current;
    atomic_uint_fast64_t generation; /* one more for each loop; workers wait for it to change */
    atomic_int pending;              /* workers that have not finished the current loop */
    atomic_bool stopping;
};

typedef struct worker_start {
    lki_pool *pool;
    int thread;
} worker_start;

int lki_affinity_count(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        int count = CPU_COUNT(&set);
        if (count > 0) return count;
    }
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

/* Read once: -1 before that. */
static atomic_int quota = -1;
static atomic_int sharers = 1;

void lki_share_cores(int process_count)
{
    atomic_store(&sharers, process_count > 0 ? process_count : 1);
}

int lki_core_count(void)
{
    int cores = lki_affinity_count(), allowed = atomic_load(&quota);
    if (allowed < 0) {
        allowed = lki_cgroup_cores("/proc/self/cgroup", "/sys/fs/cgroup");
        atomic_store(&quota, allowed);
    }
    if (allowed == 0) return cores;
    allowed /= atomic_load(&sharers);
    if (allowed < 1) allowed = 1;
    return allowed < cores ? allowed : cores;
}

static void run_chunk(const loop *work, int lane)
{
    int64_t begin = work->count * lane / work->chunk_count;
    int64_t end = work->count * (lane + 1) / work->chunk_count;
    if (begin < end) work->body(begin, end, lane, work->context);
}

/* A thread's lanes lie next to each other, as the numbers that they work on do. */
static void run_lanes(const loop *work, int thread, int thread_count)
{
    if (thread_count > work->chunk_count) thread_count = work->chunk_count;
    if (thread >= thread_count) return;
    int begin = (int)((int64_t)work->chunk_count * thread / thread_count);
    int end = (int)((int64_t)work->chunk_count * (thread + 1) / thread_count);
    for (int lane = begin; lane < end; lane++) run_chunk(work, lane);
}

/* Loops of a training step follow one another within microseconds, so a worker spins a little before it
 * sleeps. */
static uint_fast64_t wait_for_work(lki_pool *pool, uint_fast64_t seen)
{
    for (int spin = 0; spin < SPIN_COUNT; spin++) {
        uint_fast64_t generation = atomic_load_explicit(&pool->generation, memory_order_acquire);
        if (generation != seen) return generation;
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
    pthread_mutex_lock(&pool->lock);
    while (atomic_load_explicit(&pool->generation, memory_order_acquire) == seen)
        pthread_cond_wait(&pool->work_ready, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
    return atomic_load_explicit(&pool->generation, memory_order_acquire);
}

static void *worker_main(void *argument)
{
    worker_start start = *(worker_start *)argument;
    lki_free(argument);
    uint_fast64_t seen = 0;
    for (;;) {
        seen = wait_for_work(start.pool, seen);
        if (atomic_load(&start.pool->stopping)) return NULL;
        lki_float_mode_restore(start.pool->current.mode);
        run_lanes(&start.pool->current, start.thread, start.pool->thread_count);
        atomic_fetch_sub_explicit(&start.pool->pending, 1, memory_order_release);
    }
}

static void publish(lki_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add_explicit(&pool->generation, 1, memory_order_release);
    pthread_cond_broadcast(&pool->work_ready);
    pthread_mutex_unlock(&pool->lock);
}

static lk_status start_workers(lki_pool *pool)
{
    for (int thread = 1; thread < pool->thread_count; thread++) {
        worker_start *start = LKI_NEW(worker_start);
        if (!start) return LK_ERR_NOMEM;
        *start = (worker_start){pool, thread};
        if (pthread_create(&pool->workers[pool->worker_count], NULL, worker_main, start)) {
            lki_free(start);
            return lki_fail(LK_ERR_NOMEM, "could not start thread %d of %d", thread + 1, pool->thread_count);
        }
        pool->worker_count++;
    }
    return LK_OK;
}

lk_status lki_pool_create(lki_pool **out, int thread_count, int lane_count)
{
    *out = NULL;
    lki_pool *pool = LKI_NEW(lki_pool);
    if (!pool) return LK_ERR_NOMEM;
    pool->thread_count = thread_count > 0 ? thread_count : lki_core_count();
    pool->lane_count = lane_count > 0 ? lane_count : pool->thread_count;
    if (pool->thread_count > pool->lane_count) pool->thread_count = pool->lane_count;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->work_ready, NULL);
    pool->workers = LKI_NEW_ARRAY(pthread_t, pool->thread_count);
    lk_status status = pool->workers ? start_workers(pool) : LK_ERR_NOMEM;
    if (status != LK_OK) {
        lki_pool_free(pool);
        return status;
    }
    *out = pool;
    return LK_OK;
}

void lki_pool_free(lki_pool *pool)
{
    if (!pool) return;
    atomic_store(&pool->stopping, true);
    publish(pool);
    for (int i = 0; i < pool->worker_count; i++) pthread_join(pool->workers[i], NULL);
    pthread_cond_destroy(&pool->work_ready);
    pthread_mutex_destroy(&pool->lock);
    lki_free(pool->workers);
    lki_free(pool);
}

int lki_pool_lane_count(const lki_pool *pool)
{
    return pool ? pool->lane_count : 1;
}

void lki_parallel_for(lki_pool *pool, int64_t count, int64_t grain, lki_loop_body body, void *context)
{
    if (count <= 0) return;
    int64_t chunks = grain > 0 ? count / grain : count;
    int lanes = lki_pool_lane_count(pool);
    if (chunks > lanes) chunks = lanes;
    if (chunks <= 1) {
        body(0, count, 0, context);
        return;
    }
    if (pool->worker_count == 0) {
        loop alone = {.body = body, .context = context, .count = count, .chunk_count = (int)chunks};
        run_lanes(&alone, 0, 1);
        return;
    }
    pool->current = (loop){body, context, count, (int)chunks, lki_float_mode_now()};
    atomic_store_explicit(&pool->pending, pool->worker_count, memory_order_relaxed);
    publish(pool);
    run_lanes(&pool->current, 0, pool->thread_count);
    while (atomic_load_explicit(&pool->pending, memory_order_acquire) > 0) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#else
        sched_yield();
#endif
    }
}
