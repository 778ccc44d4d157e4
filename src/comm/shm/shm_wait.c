/* Waiting for a peer: spin, then yield, then sleep; and noticing that it will never come. */
#define _GNU_SOURCE
#include "comm/shm/shm.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    SPIN_COUNT = 3000,        /* some 60 us: longer than any message takes */
    CROWDED_SPIN_COUNT = 100, /* where a peer may need this very core */
    YIELD_COUNT = 20,
    SLEEP_MS = 50,
    CHECK_MS = 200, /* between two looks at the peers' lives */
};

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    __asm__ volatile("" ::: "memory");
#endif
}

void lki_shm_wake(lki_shm_comm *shm)
{
    atomic_fetch_add(&shm->header->bell, 1);
    syscall(SYS_futex, &shm->header->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

lk_status lki_shm_fail_aborted(const lki_shm_comm *shm)
{
    const lki_shm_header *header = shm->header;
    if (header->abort_rank < 0) return lki_fail(LK_ERR_PEER, "%s", header->abort_text);
    if (header->abort_rank == shm->base.rank)
        return lki_fail(LK_ERR_PEER, "this rank gave up: %s", header->abort_text);
    return lki_fail(LK_ERR_PEER, "rank %d gave up: %s", lki_shm_name(shm, header->abort_rank),
                    header->abort_text);
}

static int open_pidfd(pid_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

lk_status lki_shm_watch_open(lki_shm_comm *shm)
{
    shm->crowded = sysconf(_SC_NPROCESSORS_ONLN) < shm->base.size;
    shm->pidfds = LKI_NEW_ARRAY(int, shm->base.size);
    if (!shm->pidfds) return LK_ERR_NOMEM;
    for (int r = 0; r < shm->base.size; r++) {
        pid_t pid = atomic_load(&shm->header->ranks[r].pid);
        shm->pidfds[r] = pid == getpid() ? -1 : open_pidfd(pid);
    }
    return LK_OK;
}

void lki_shm_watch_close(lki_shm_comm *shm)
{
    for (int r = 0; shm->pidfds && r < shm->base.size; r++)
        if (shm->pidfds[r] >= 0) close(shm->pidfds[r]);
    lki_free(shm->pidfds);
    shm->pidfds = NULL;
}

/* A pidfd becomes readable when the process ends, reaped or not; without one, the pid must at least exist. */
static bool is_dead(const lki_shm_comm *shm, int rank)
{
    pid_t pid = atomic_load(&shm->header->ranks[rank].pid);
    if (pid == getpid()) return false;
    if (shm->pidfds[rank] < 0) return kill(pid, 0) != 0 && errno == ESRCH;
    struct pollfd poll_one = {.fd = shm->pidfds[rank], .events = POLLIN};
    return poll(&poll_one, 1, 0) == 1;
}

/* A rank that ended without saying goodbye is an error at once; one that left properly only where we wait for
 * it. */
static lk_status check_peers(lki_shm_comm *shm)
{
    for (int r = 0; r < shm->base.size; r++) {
        if (r == shm->base.rank) continue;
        bool dead = is_dead(shm, r);
        int presence = atomic_load(&shm->header->ranks[r].presence);
        if (dead && presence != LKI_SHM_LEFT)
            return lki_fail(LK_ERR_PEER, "rank %d (process %d) died: it had finished %llu collectives",
                            lki_shm_name(shm, r), atomic_load(&shm->header->ranks[r].pid),
                            (unsigned long long)atomic_load(&shm->header->ranks[r].finished));
        if (presence == LKI_SHM_LEFT && lki_shm_blocker(shm) == r)
            return lki_fail(LK_ERR_PEER, "rank %d has left the job: it had finished %llu collectives",
                            lki_shm_name(shm, r),
                            (unsigned long long)atomic_load(&shm->header->ranks[r].finished));
    }
    return LK_OK;
}

/* Sleeps until the bell rings, at most SLEEP_MS. */
static void sleep_a_little(lki_shm_comm *shm)
{
    struct timespec limit = {.tv_nsec = SLEEP_MS * 1000000L};
    atomic_fetch_add(&shm->header->sleepers, 1);
    uint32_t bell = atomic_load(&shm->header->bell);
    atomic_thread_fence(memory_order_seq_cst);
    if (lki_shm_blocker(shm) >= 0 && atomic_load(&shm->header->aborted) == 0)
        syscall(SYS_futex, &shm->header->bell, FUTEX_WAIT, bell, &limit, NULL, 0);
    atomic_fetch_sub(&shm->header->sleepers, 1);
}

lk_status lki_shm_pause(lk_comm *comm, lk_comm_request *request, int64_t deadline_ns)
{
    lki_shm_comm *shm = (lki_shm_comm *)comm;
    (void)request, (void)deadline_ns;
    for (int spin = shm->crowded ? CROWDED_SPIN_COUNT : SPIN_COUNT; spin > 0; spin--) {
        if (lki_shm_blocker(shm) < 0) return LK_OK;
        relax();
    }
    for (int turn = 0; turn < YIELD_COUNT; turn++) {
        if (lki_shm_blocker(shm) < 0) return LK_OK;
        sched_yield();
    }
    sleep_a_little(shm);
    int64_t now = lki_now_ns();
    if (now < shm->next_check_ns) return LK_OK;
    shm->next_check_ns = now + CHECK_MS * 1000000LL;
    lk_status status = check_peers(shm);
    if (status != LK_OK)
        LKI_TRY(lki_shm_check_abort(shm)); /* one that said why it left said so before it did */
    return status;
}
