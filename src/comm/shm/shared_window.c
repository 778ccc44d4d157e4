/* Memory that all ranks of a host reach. It has no name: rank 0 makes it, and the others open it through rank
 * 0's descriptor, so that the kernel frees it with the last mapping, however the job ends. */
#define _GNU_SOURCE
#include "comm/shm/shared_window.h"

#include "base/memory.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* of Linux 6.1, also where the C library is older */
#endif

enum { LEAST_NBYTES = 1 << 18, PAGE_NBYTES = 4096, HUGE_NBYTES = 2 << 20 };

static atomic_size_t least_nbytes = LEAST_NBYTES;

void lki_set_window_least(size_t nbytes)
{
    atomic_store(&least_nbytes, nbytes ? nbytes : LEAST_NBYTES);
}

lk_status lk_comm_share(lk_comm *comm, size_t nbytes, size_t common_nbytes, lk_comm_window **out)
{
    *out = NULL;
    if (comm->size == 1 || !comm->ops->share) return LK_OK;
    return comm->ops->share(comm, nbytes, common_nbytes, out);
}

void *lk_comm_window_block(const lk_comm_window *window, int rank)
{
    return window->memory + window->common_stride + (size_t)rank * window->stride;
}

void *lk_comm_window_common(const lk_comm_window *window)
{
    return window->memory;
}

lk_comm_window *lk_comm_window_use(lk_comm_window *window)
{
    atomic_fetch_add_explicit(&window->user_count, 1, memory_order_relaxed);
    return window;
}

void lk_comm_window_release(lk_comm_window *window)
{
    if (!window || atomic_fetch_sub_explicit(&window->user_count, 1, memory_order_acq_rel) > 1) return;
    if (window->memory) munmap(window->memory, window->mapped_nbytes);
    lki_free(window);
}

static size_t whole_pages(size_t nbytes)
{
    return (nbytes + PAGE_NBYTES - 1) / PAGE_NBYTES * PAGE_NBYTES;
}

/* All ask for the same, and for enough: the answer is the same everywhere. */
static lk_status is_worth_it(lk_comm *comm, size_t nbytes, size_t common_nbytes, bool *worth)
{
    int64_t asked[] = {(int64_t)nbytes, (int64_t)common_nbytes, -(int64_t)nbytes, -(int64_t)common_nbytes};
    LKI_TRY(lk_comm_all_reduce(comm, asked, 4, LK_I64, LK_REDUCE_MAX));
    *worth = asked[0] == -asked[2] && asked[1] == -asked[3] &&
             asked[0] >= (int64_t)atomic_load(&least_nbytes) && asked[0] < INT64_MAX / 4 / comm->size &&
             asked[1] < INT64_MAX / 4;
    return LK_OK;
}

/* Whether the machine could hold that much, and half as much again of other things. The kernel would not say:
 * it hands pages out until none are left. */
static bool is_possible(size_t nbytes)
{
    long pages = sysconf(_SC_PHYS_PAGES);
    return pages > 0 && nbytes / (size_t)sysconf(_SC_PAGESIZE) < (size_t)pages / 3 * 2;
}

/* Reserved at once: memory that runs out later would be a signal. */
static int create_memory(size_t nbytes)
{
    int fd = is_possible(nbytes) ? memfd_create("lockstep-window", MFD_CLOEXEC) : -1;
    if (fd < 0) return -1;
    if (posix_fallocate(fd, 0, (off_t)nbytes) == 0) return fd;
    close(fd);
    return -1;
}

/* How the others find rank 0's memory, and know that it is that. */
enum { PROCESS, DESCRIPTOR, DEVICE, INODE, WHERE_COUNT };

static void tell_where(int fd, int64_t *where)
{
    struct stat memory;
    if (fd < 0 || fstat(fd, &memory)) return;
    where[DESCRIPTOR] = fd;
    where[DEVICE] = (int64_t)memory.st_dev;
    where[INODE] = (int64_t)memory.st_ino;
}

/* Through rank 0's process, opened anew, since a descriptor is a process's own. In another container that
 * number may be another process's: what is not rank 0's memory is left alone. */
static int open_memory(const int64_t *where)
{
    char path[64];
    struct stat found;
    if (where[DESCRIPTOR] < 0) return -1;
    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)where[PROCESS],
             (long long)where[DESCRIPTOR]);
    if (stat(path, &found) || (int64_t)found.st_dev != where[DEVICE] || (int64_t)found.st_ino != where[INODE])
        return -1;
    return open(path, O_RDWR | O_CLOEXEC);
}

/* At an address that a huge page could have: some room is taken, and what is too much of it given back. */
static unsigned char *reserve_addresses(size_t nbytes)
{
    unsigned char *room = mmap(NULL, nbytes + HUGE_NBYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED) return NULL;
    size_t before = (HUGE_NBYTES - (uintptr_t)room % HUGE_NBYTES) % HUGE_NBYTES;
    if (before) munmap(room, before);
    munmap(room + before + nbytes, HUGE_NBYTES - before);
    return room + before;
}

static void map_memory(lk_comm_window *window, int fd)
{
    unsigned char *place = fd < 0 ? NULL : reserve_addresses(window->mapped_nbytes);
    if (!place) return;
    void *memory = mmap(place, window->mapped_nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
    if (memory == MAP_FAILED) {
        munmap(place, window->mapped_nbytes);
        return;
    }
    (void)madvise(memory, window->mapped_nbytes, MADV_COLLAPSE); /* a wish: huge pages */
    window->memory = memory;
}

lk_status lki_shm_share(lk_comm *comm, size_t nbytes, size_t common_nbytes, lk_comm_window **out)
{
    bool worth;
    LKI_TRY(is_worth_it(comm, nbytes, common_nbytes, &worth));
    if (!worth) return LK_OK;
    lk_comm_window *window = LKI_NEW(lk_comm_window);
    int64_t where[WHERE_COUNT] = {[PROCESS] = (int64_t)getpid(), [DESCRIPTOR] = -1}, all_have = 0;
    int fd = -1;
    lk_status status;
    if (window) {
        *window = (lk_comm_window){.common_stride = whole_pages(common_nbytes),
                                   .stride = whole_pages(nbytes),
                                   .nbytes = nbytes,
                                   .user_count = 1};
        window->mapped_nbytes = window->common_stride + (size_t)comm->size * window->stride;
    }
    if (window && comm->rank == 0) tell_where(fd = create_memory(window->mapped_nbytes), where);
    LKI_TRY_OUT(lk_comm_broadcast(comm, where, WHERE_COUNT, LK_I64, 0));
    if (window && comm->rank != 0) fd = open_memory(where);
    if (window) map_memory(window, fd);
    all_have = window && window->memory;
    LKI_TRY_OUT(lk_comm_all_reduce(comm, &all_have, 1, LK_I64, LK_REDUCE_MIN));
    if (all_have) {
        *out = window;
        window = NULL;
    }
out:
    if (fd >= 0) close(fd);
    lk_comm_window_release(window);
    return status;
}
