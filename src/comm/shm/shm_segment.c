/* Where the shared memory comes from: an inherited memfd, or a file by name for ranks that were not forked.
 *
 * In a memfd the segments of the ranks' comms lie one after another, all of one size. The first is there
 * before the ranks are, rank 0 appends the others; the first one's header says which ranks have ended. */
#define _GNU_SOURCE
#include "comm/shm/shm.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

enum {
    DEFAULT_SLOT_NBYTES = 131072,
    LEAST_SLOT_NBYTES = 4096,
    DEFAULT_JOIN_TIMEOUT_MS = 60000,
    NAMED_MISSING = 8, /* ranks that an error lists */
    ASK_EVERY_NS = 200000000,
};

static size_t round_up(size_t nbytes, size_t to)
{
    return (nbytes + to - 1) / to * to;
}

static size_t slot_stride_of(size_t slot_nbytes)
{
    return round_up(sizeof(lki_shm_slot) + slot_nbytes, LKI_SHM_LINE);
}

static size_t header_nbytes_of(int size)
{
    return round_up(sizeof(lki_shm_header) + (size_t)size * sizeof(lki_shm_rank), 4096);
}

static size_t segment_nbytes_of(int size, size_t slot_nbytes)
{
    return header_nbytes_of(size) + (size_t)size * LKI_SHM_SLOT_COUNT * slot_stride_of(slot_nbytes);
}

/* A slot must hold a cache line for every rank, or a reduce-scatter would have no room. */
static size_t usable_slot_nbytes(size_t wanted, int size)
{
    size_t least = (size_t)size * 64;
    size_t nbytes = wanted ? wanted : DEFAULT_SLOT_NBYTES;
    return round_up(nbytes < least ? least : nbytes, 64);
}

static off_t segment_offset(int round, size_t segment_nbytes)
{
    return (off_t)round * (off_t)round_up(segment_nbytes, (size_t)sysconf(_SC_PAGESIZE));
}

static void sleep_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

/* Reserves the memory, so that a full /dev/shm is an error here and not a SIGBUS later, and writes the
 * header. */
static lk_status format_segment(int fd, off_t offset, int size, size_t slot_nbytes)
{
    size_t nbytes = segment_nbytes_of(size, slot_nbytes);
    int error = posix_fallocate(fd, offset, (off_t)nbytes);
    if (error)
        return lki_fail(LK_ERR_NOMEM, "shm: could not reserve %zu bytes of shared memory: %s", nbytes,
                        strerror(error));
    lki_shm_header *header = mmap(NULL, sizeof *header, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);
    if (header == MAP_FAILED)
        return lki_fail(LK_ERR_NOMEM, "shm: could not map shared memory: %s", strerror(errno));
    header->version = LKI_SHM_VERSION;
    header->size = (uint32_t)size;
    header->slot_nbytes = slot_nbytes;
    header->segment_nbytes = nbytes;
    atomic_store_explicit(&header->magic, LKI_SHM_MAGIC, memory_order_release);
    munmap(header, sizeof *header);
    return LK_OK;
}

lk_status lki_shm_memory_create(int *fd, int size, size_t slot_nbytes)
{
    *fd = memfd_create("lockstep", MFD_CLOEXEC);
    if (*fd < 0) return lki_fail(LK_ERR_NOMEM, "shm: could not create shared memory: %s", strerror(errno));
    lk_status status = format_segment(*fd, 0, size, usable_slot_nbytes(slot_nbytes, size));
    if (status != LK_OK) {
        close(*fd);
        *fd = -1;
    }
    return status;
}

/* The header of a memfd's first segment; NULL where it cannot be mapped. */
static lki_shm_header *map_first(int fd, int size)
{
    void *header = mmap(NULL, header_nbytes_of(size), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return header == MAP_FAILED ? NULL : header;
}

static void unmap_first(lki_shm_header *first, int size)
{
    if (first) munmap(first, header_nbytes_of(size));
}

void lki_shm_memory_mark_ended(int fd, int size, int rank)
{
    lki_shm_header *first = map_first(fd, size);
    if (first) atomic_store(&first->ranks[rank].ended, 1);
    unmap_first(first, size);
}

/* /dev/shm, or where it is too small a file among the temporary ones: the kernel keeps that in memory too
 * while it can. */
static const char *folder_at(int index)
{
    if (index == 0) return "/dev/shm";
    const char *temporary = getenv("TMPDIR");
    return temporary && *temporary ? temporary : "/tmp";
}

static char *path_in(int folder, const char *name)
{
    return lki_format("%s/lockstep-%u-%s", folder_at(folder), (unsigned)geteuid(), name);
}

static bool is_formatted(int fd, off_t offset)
{
    uint64_t magic = 0;
    return pread(fd, &magic, sizeof magic, offset) == sizeof magic && magic == LKI_SHM_MAGIC;
}

static bool has_room(const char *folder, size_t nbytes)
{
    struct statvfs room;
    return statvfs(folder, &room) == 0 && (unsigned long long)room.f_bavail * room.f_frsize >= nbytes;
}

static int open_new(const char *path)
{
    unlink(path); /* of a run that died here; names are used once */
    return open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
}

/* Rank 0: the first folder with room, with smaller slots before the second folder is taken. */
static lk_status create_named(int *fd, char **path, const char *name, int size, size_t wanted)
{
    size_t first = usable_slot_nbytes(wanted, size), least = usable_slot_nbytes(LEAST_SLOT_NBYTES, size);
    for (int folder = 0; folder < 2; folder++) {
        for (size_t slot = first; slot >= least || slot == first; slot /= 2) {
            slot = usable_slot_nbytes(slot, size);
            if (!has_room(folder_at(folder), segment_nbytes_of(size, slot))) continue;
            *path = path_in(folder, name);
            if (!*path) return LK_ERR_NOMEM;
            *fd = open_new(*path);
            if (*fd >= 0 && format_segment(*fd, 0, size, slot) == LK_OK) return LK_OK;
            if (*fd >= 0) close(*fd);
            unlink(*path);
            lki_free(*path);
            *path = NULL;
            *fd = -1;
        }
    }
    return lki_fail(LK_ERR_NOMEM, "shm: no room for %d ranks' shared memory (%zu bytes) in /dev/shm or %s",
                    size, segment_nbytes_of(size, least), folder_at(1));
}

/* Only a finished file of our own user counts. */
static int open_existing(const char *path)
{
    struct stat info;
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return -1;
    if (fstat(fd, &info) == 0 && info.st_uid == geteuid() && (size_t)info.st_size >= sizeof(lki_shm_header) &&
        is_formatted(fd, 0))
        return fd;
    close(fd);
    return -1;
}

/* How long a rank waits for the others. Time in which this process was stopped does not count, and the wait
 * starts anew with every rank that joins: hundreds of ranks on a busy machine take long to start, but while
 * they arrive nothing is wrong. */
typedef struct patience {
    const lki_shm_options *options;
    int64_t limit_ns, deadline_ns, looked_ns, asked_ns;
    int joined; /* ranks that were here at the last look */
    bool is_over;
} patience;

/* Now and then it asks whether the others can still come. */
static lk_status look_around(patience *wait)
{
    int64_t now = lki_now_ns(), since_ns = now - wait->looked_ns;
    wait->looked_ns = now;
    if (since_ns > LKI_STOPPED_NS) wait->deadline_ns += since_ns;
    wait->is_over = now > wait->deadline_ns;
    if (!wait->options->still_wanted || now - wait->asked_ns < ASK_EVERY_NS) return LK_OK;
    wait->asked_ns = now;
    return wait->options->still_wanted(wait->options->context);
}

static void count_joined(const lki_shm_comm *shm, patience *wait)
{
    int joined = 0;
    for (int r = 0; r < shm->base.size; r++)
        joined += atomic_load(&shm->header->ranks[r].presence) >= LKI_SHM_HERE;
    if (joined > wait->joined) wait->deadline_ns = lki_now_ns() + wait->limit_ns;
    wait->joined = joined;
}

static lk_status open_named(int *fd, const char *name, patience *wait)
{
    for (;;) {
        for (int folder = 0; folder < 2; folder++) {
            LKI_SCOPED char *path = path_in(folder, name);
            if (!path) return LK_ERR_NOMEM;
            *fd = open_existing(path);
            if (*fd >= 0) return LK_OK;
        }
        LKI_TRY(look_around(wait));
        if (wait->is_over)
            return lki_fail(LK_ERR_TIMEOUT, "shm: rank 0 has not made the shared memory \"%s\" in time",
                            name);
        sleep_ms(1);
    }
}

static lk_status map_segment(lki_shm_comm *shm, int fd, off_t offset, size_t nbytes)
{
    lki_shm_header *header = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);
    if (header == MAP_FAILED)
        return lki_fail(LK_ERR_NOMEM, "shm: could not map shared memory: %s", strerror(errno));
    shm->header = header;
    shm->segment_nbytes = nbytes;
    if (header->magic != LKI_SHM_MAGIC || header->version != LKI_SHM_VERSION)
        return lki_fail(LK_ERR_FORMAT, "shm: the shared memory is of another version of lockstep");
    if (header->size != (uint32_t)shm->base.size || header->segment_nbytes != shm->segment_nbytes ||
        segment_nbytes_of(shm->base.size, header->slot_nbytes) != shm->segment_nbytes)
        return lki_fail(LK_ERR_PEER, "shm: the shared memory is for %u ranks, this one says %d", header->size,
                        shm->base.size);
    shm->slot_nbytes = header->slot_nbytes;
    shm->slot_stride = slot_stride_of(header->slot_nbytes);
    shm->slots = (unsigned char *)header + header_nbytes_of(shm->base.size);
    return LK_OK;
}

static lk_status missing_ranks(lki_shm_comm *shm)
{
    char text[256] = "";
    size_t length = 0;
    int missing = 0;
    for (int r = 0; r < shm->base.size; r++) {
        if (atomic_load(&shm->header->ranks[r].presence) != LKI_SHM_ABSENT) continue;
        if (++missing <= NAMED_MISSING)
            length += (size_t)snprintf(text + length, sizeof text - length, "%s%d", missing > 1 ? ", " : "",
                                       lki_shm_name(shm, r));
    }
    return lki_fail(LK_ERR_TIMEOUT, "shm: %d of %d ranks did not join in time: %s%s", missing, shm->base.size,
                    text, missing > NAMED_MISSING ? ", ..." : "");
}

static lk_status check_not_ended(const lki_shm_comm *shm, const lki_shm_header *first, int rank)
{
    if (!first || !atomic_load(&first->ranks[rank].ended)) return LK_OK;
    if (shm->header && atomic_load(&shm->header->ranks[rank].presence) >= LKI_SHM_HERE) return LK_OK;
    return lki_fail(LK_ERR_PEER, "rank %d ended before it joined the others", lki_shm_name(shm, rank));
}

/* `first` is the header of forked ranks' first segment; NULL for others. */
static lk_status join(lki_shm_comm *shm, const lki_shm_header *first, patience *wait)
{
    int absent = LKI_SHM_ABSENT;
    lki_shm_rank *mine = &shm->header->ranks[shm->base.rank];
    if (!atomic_compare_exchange_strong(&mine->presence, &absent, LKI_SHM_JOINING))
        return lki_fail(LK_ERR_PEER, "shm: two processes say that they are rank %d",
                        lki_shm_name(shm, shm->base.rank));
    shm->mine = mine;
    atomic_store(&mine->pid, (int)getpid());
    atomic_store(&mine->presence, LKI_SHM_HERE);
    for (int r = 0; r < shm->base.size; r++) {
        for (int turn = 0; atomic_load(&shm->header->ranks[r].presence) < LKI_SHM_HERE; turn++) {
            count_joined(shm, wait);
            LKI_TRY(look_around(wait));
            if (wait->is_over) return missing_ranks(shm);
            LKI_TRY(lki_shm_check_abort(shm));
            for (int other = r; other < shm->base.size; other++) LKI_TRY(check_not_ended(shm, first, other));
            /* Hundreds of ranks that look once per millisecond would keep the last ones from starting. */
            if (turn > 100) sleep_ms(1 + shm->base.size / 64);
        }
    }
    return LK_OK;
}

/* Rank 0 makes the segments after the first. */
static lk_status await_segment(const lki_shm_comm *shm, const lki_shm_header *first, int fd, off_t offset,
                               patience *wait)
{
    while (!is_formatted(fd, offset)) {
        LKI_TRY(look_around(wait));
        if (wait->is_over)
            return lki_fail(LK_ERR_TIMEOUT, "shm: 1 of %d ranks did not join in time: 0", shm->base.size);
        LKI_TRY(check_not_ended(shm, first, 0));
        sleep_ms(1);
    }
    return LK_OK;
}

static lk_status attach_forked(lki_shm_comm *shm, const lki_shm_options *options, patience *wait)
{
    lki_shm_header *first = map_first(options->fd, options->size);
    if (!first) return lki_fail(LK_ERR_NOMEM, "shm: could not map shared memory: %s", strerror(errno));
    size_t nbytes = first->segment_nbytes;
    off_t offset = segment_offset(options->round, nbytes);
    lk_status status = LK_OK;
    if (options->round > 0 && options->rank == 0)
        status = format_segment(options->fd, offset, options->size, first->slot_nbytes);
    else if (options->round > 0)
        status = await_segment(shm, first, options->fd, offset, wait);
    if (status == LK_OK) status = map_segment(shm, options->fd, offset, nbytes);
    if (status == LK_OK) status = join(shm, first, wait);
    unmap_first(first, options->size);
    return status;
}

static lk_status attach_named(lki_shm_comm *shm, const lki_shm_options *options, patience *wait)
{
    struct stat info;
    int fd = -1;
    lk_status status = options->rank == 0 ? create_named(&fd, &shm->unlink_path, options->name, options->size,
                                                         options->slot_nbytes)
                                          : open_named(&fd, options->name, wait);
    if (status == LK_OK && fstat(fd, &info) != 0) status = lki_fail(LK_ERR_IO, "shm: %s", strerror(errno));
    if (status == LK_OK) status = map_segment(shm, fd, 0, (size_t)info.st_size);
    if (status == LK_OK) status = join(shm, NULL, wait);
    if (fd >= 0) close(fd);
    if (shm->unlink_path) unlink(shm->unlink_path); /* all have it open, or the job is over */
    return status;
}

/* Ranks that were together before may be busy alone meanwhile, as they may be between two collectives. */
static int64_t patience_ms(const lki_shm_options *options)
{
    int64_t collective_ms = options->timeout_ms ? options->timeout_ms : LK_COMM_DEFAULT_TIMEOUT_MS;
    int64_t join_ms = options->join_timeout_ms ? options->join_timeout_ms : DEFAULT_JOIN_TIMEOUT_MS;
    return options->fd >= 0 && options->round > 0 ? collective_ms : join_ms;
}

lk_status lki_shm_attach(lki_shm_comm *shm, const lki_shm_options *options)
{
    int64_t now = lki_now_ns();
    int64_t limit_ns = patience_ms(options) * 1000000;
    patience wait = {.options = options,
                     .limit_ns = limit_ns,
                     .deadline_ns = now + limit_ns,
                     .looked_ns = now,
                     .asked_ns = now};
    if (options->fd >= 0) return attach_forked(shm, options, &wait);
    if (options->name) return attach_named(shm, options, &wait);
    return lki_fail(LK_ERR_INVALID, "shm: neither an fd nor a name");
}

/* Forked ranks' memory stays until they end, and they may make many comms of it: what the slots hold is given
 * back when the last rank has left them. */
static void release_slots(const lki_shm_comm *shm)
{
    size_t begin = round_up(header_nbytes_of(shm->base.size), (size_t)sysconf(_SC_PAGESIZE));
    if (begin < shm->segment_nbytes)
        madvise((char *)shm->header + begin, shm->segment_nbytes - begin, MADV_REMOVE);
}

void lki_shm_detach(lki_shm_comm *shm)
{
    if (shm->mine) {
        atomic_store(&shm->mine->presence, LKI_SHM_LEFT);
        lki_shm_ring_bell(shm);
        if (atomic_fetch_add(&shm->header->left_count, 1) + 1 == shm->base.size) release_slots(shm);
    }
    if (shm->header) munmap(shm->header, shm->segment_nbytes);
    lki_free(shm->unlink_path);
}
