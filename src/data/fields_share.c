/* The file that processes read fields into together.
 *
 * Its head has a mark for each block; the data follow. A process that reads a block holds a lock on that
 * block's number. The kernel lets go of it when the process dies, so that the next who asks for the lock
 * finds the block unread, and reads it: nobody has to find out who is alive. The lock is the file
 * description's, not the process's, hence every reader opens the file for itself. */
#define _GNU_SOURCE
#include "data/fields_host.h"

#include "base/memory.h"
#include "base/status.h"
#include "data/fields.h"
#include "tensor/buffer.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATH_NBYTES = 4096, PAGE_NBYTES = 4096, MAX_TRIES = 8, MAX_READERS = 16 };
enum { PLAN_LOCK, FAILURE_LOCK, FIRST_BLOCK_LOCK };
enum { UNREAD, READ };
static const uint64_t magic = 0x33736c6569666b6cu; /* "lkfiels3" */

typedef struct head {
    _Atomic uint64_t magic; /* written last: the rest is there */
    lki_fields_layout layout;
    uint64_t data_offset;
    _Atomic int64_t next;           /* the block that the next reader tries first */
    _Atomic int64_t failed;         /* the first block that cannot be read; block_count: none */
    lki_error error;                /* and why; under FAILURE_LOCK */
    _Atomic unsigned char blocks[]; /* UNREAD or READ */
} head;

typedef struct segment {
    char path[PATH_NBYTES]; /* "" where it has no name */
    int fd;
    head *head; /* the whole file */
    size_t nbytes;
} segment;

/* ---- Opening and locking ---- */

static bool lock(int fd, int64_t number, short type)
{
    struct flock wish = {.l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)number, .l_len = 1};
    int rc;
    do rc = fcntl(fd, F_OFD_SETLKW, &wish);
    while (rc != 0 && errno == EINTR);
    return rc == 0;
}

/* Its name can be computed by anybody: what is there must be a plain file that belongs to this user alone,
 * not one that another user has made or a link to elsewhere. */
static int open_own(const char *path)
{
    struct stat status;
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0 || errno != EEXIST) return fd;
    fd = open(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return -1;
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == geteuid() &&
        !(status.st_mode & 077))
        return fd;
    close(fd);
    return -1;
}

/* The file with a lock that says it is in use. False where that cannot be. */
static bool open_named(segment *segment, const char *path)
{
    struct stat status;
    snprintf(segment->path, sizeof segment->path, "%s", path);
    for (int i = 0; i < MAX_TRIES; i++) {
        segment->fd = open_own(path);
        if (segment->fd < 0) return false;
        int rc;
        do rc = flock(segment->fd, LOCK_SH);
        while (rc != 0 && errno == EINTR);
        if (rc == 0 && fstat(segment->fd, &status) == 0 && status.st_nlink > 0) return true;
        close(segment->fd); /* the last one took it away meanwhile */
        segment->fd = -1;
    }
    return false;
}

static bool open_segment(segment *segment, const char *path)
{
    if (path) return open_named(segment, path);
    segment->fd = memfd_create("lockstep-fields", MFD_CLOEXEC);
    return segment->fd >= 0;
}

static bool map_whole(segment *segment)
{
    struct stat status;
    if (fstat(segment->fd, &status) != 0 || status.st_size < (off_t)sizeof(head)) return false;
    segment->nbytes = (size_t)status.st_size;
    void *memory = mmap(NULL, segment->nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, segment->fd, 0);
    segment->head = memory == MAP_FAILED ? NULL : memory;
    return segment->head != NULL;
}

static void unmap_whole(segment *segment)
{
    if (segment->head) munmap(segment->head, segment->nbytes);
    segment->head = NULL;
}

static void take_away(const segment *segment)
{
    struct stat mine, named;
    if (!*segment->path || fstat(segment->fd, &mine) != 0 || stat(segment->path, &named) != 0) return;
    if (mine.st_ino == named.st_ino && mine.st_dev == named.st_dev) unlink(segment->path);
}

/* ---- Planning ---- */

static bool is_planned(const segment *segment)
{
    const head *head = segment->head;
    return head && atomic_load(&head->magic) == magic &&
           segment->nbytes >= head->data_offset + head->layout.nbytes;
}

/* Room for everything, so that no page is missing later; false where there is none. */
static bool lay_out(segment *segment, const lki_fields_layout *layout)
{
    size_t head_nbytes = sizeof(head) + (size_t)layout->block_count;
    size_t data_offset = (head_nbytes + PAGE_NBYTES - 1) / PAGE_NBYTES * PAGE_NBYTES;
    off_t nbytes = (off_t)(data_offset + layout->nbytes);
    if (ftruncate(segment->fd, 0) != 0 || posix_fallocate(segment->fd, 0, nbytes) != 0) return false;
    if (!map_whole(segment)) return false;
    head *head = segment->head;
    head->layout = *layout;
    head->data_offset = data_offset;
    atomic_store(&head->failed, layout->block_count);
    atomic_store(&head->magic, magic);
    return true;
}

/* The first who comes makes the file; one that died over it is followed by the next. The caller looks at
 * segment->head: NULL where the file cannot be used. */
static lk_status plan(segment *segment, const lki_fields_source *source)
{
    lki_fields_layout layout = {0};
    struct stat status;
    if (!lock(segment->fd, PLAN_LOCK, F_WRLCK)) return LK_OK;
    lk_status result = LK_OK;
    map_whole(segment);
    if (is_planned(segment)) goto out;
    unmap_whole(segment);
    if (fstat(segment->fd, &status) != 0 || (*segment->path && status.st_nlink == 0)) goto out;
    result = source->plan(source->context, &layout);
    if (result || !lay_out(segment, &layout)) {
        unmap_whole(segment);
        take_away(segment);
    }
out:
    lock(segment->fd, PLAN_LOCK, F_UNLCK);
    return result;
}

/* ---- Reading ---- */

/* Of several blocks that cannot be read all processes name the first. */
static void note_failure(const segment *segment, int64_t block, lk_status status)
{
    head *head = segment->head;
    lock(segment->fd, FAILURE_LOCK, F_WRLCK);
    if (block < atomic_load(&head->failed)) {
        head->error.status = LK_OK;
        lki_error_keep(&head->error, status);
        atomic_store(&head->failed, block);
    }
    lock(segment->fd, FAILURE_LOCK, F_UNLCK);
}

static bool is_settled(const head *head, int64_t block)
{
    return atomic_load(&head->blocks[block]) == READ || atomic_load(&head->failed) <= block;
}

/* Reads a block unless it has been; waits for the one who is at it. */
static void settle_block(const segment *segment, int64_t block, const lki_fields_source *source)
{
    head *head = segment->head;
    if (is_settled(head, block)) return;
    if (!lock(segment->fd, FIRST_BLOCK_LOCK + block, F_WRLCK)) {
        note_failure(segment, block, lki_fail(LK_ERR_IO, "fields: a lock failed: %s", strerror(errno)));
        return;
    }
    if (!is_settled(head, block)) {
        lk_status status = source->read(source->context, block, (char *)head + head->data_offset);
        if (status)
            note_failure(segment, block, status);
        else
            atomic_store(&head->blocks[block], READ);
    }
    lock(segment->fd, FIRST_BLOCK_LOCK + block, F_UNLCK);
}

/* First what nobody has begun, then, in order, what others have: they end it, or die and leave it. */
static void read_blocks(const segment *segment, const lki_fields_source *source)
{
    head *head = segment->head;
    int64_t count = head->layout.block_count, block;
    while ((block = atomic_fetch_add(&head->next, 1)) < count) settle_block(segment, block, source);
    for (block = 0; block < count; block++) settle_block(segment, block, source);
}

static bool all_settled(const head *head)
{
    int64_t block = 0;
    while (block < head->layout.block_count && is_settled(head, block)) block++;
    return block == head->layout.block_count;
}

/* ---- Readers of this process ---- */

static void be_reader(const segment *parent, pid_t parent_pid, const lki_fields_source *source)
{
    char path[64];
    segment own = *parent;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent_pid) _exit(1); /* it died before the line above */
    snprintf(path, sizeof path, "/proc/self/fd/%d", parent->fd);
    own.fd = open(path, O_RDWR | O_CLOEXEC);
    close(parent->fd); /* with it the parent's locks would outlive it */
    if (own.fd >= 0) read_blocks(&own, source);
    _exit(0);
}

static void read_with(const segment *segment, const lki_fields_source *source, int readers)
{
    pid_t children[MAX_READERS], parent = getpid();
    int count = 0;
    while (count < readers - 1 && count < MAX_READERS && count < segment->head->layout.block_count - 1) {
        pid_t child = fork();
        if (child == 0) be_reader(segment, parent, source);
        if (child < 0) break; /* fewer will do */
        children[count++] = child;
    }
    read_blocks(segment, source);
    for (int i = 0; i < count; i++)
        while (waitpid(children[i], NULL, 0) < 0 && errno == EINTR) {
        }
}

/* ---- The result ---- */

typedef struct mapping {
    segment segment; /* its file is in use until the tensors are gone */
    size_t nbytes;
} mapping;

static void release(void *data, void *context)
{
    mapping *m = context;
    munmap(data, m->nbytes);
    if (flock(m->segment.fd, LOCK_EX | LOCK_NB) == 0) take_away(&m->segment);
    close(m->segment.fd);
    lki_free(m);
}

/* The pages are everybody's until somebody writes to one: that one is its own from then on. */
static lk_fields *map_fields(segment *segment)
{
    const lki_fields_layout *layout = &segment->head->layout;
    mapping *m = LKI_NEW(mapping);
    if (!m) return NULL;
    m->nbytes = (size_t)layout->nbytes;
    void *data = mmap(NULL, m->nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, segment->fd,
                      (off_t)segment->head->data_offset);
    lk_buffer *buffer = data == MAP_FAILED ? NULL : lki_buffer_adopt(data, m->nbytes, release, m);
    if (!buffer) {
        if (data != MAP_FAILED) munmap(data, m->nbytes);
        lki_free(m);
        return NULL;
    }
    m->segment = *segment;
    m->segment.head = NULL;
    segment->fd = -1; /* it is the mapping's now */
    lk_fields *fields = lki_fields_over(layout, buffer);
    lki_buffer_release(buffer); /* the tensors hold it */
    return fields;
}

static lk_status result_of(segment *segment, lk_fields **out)
{
    head *head = segment->head;
    if (atomic_load(&head->failed) == head->layout.block_count) {
        *out = map_fields(segment);
        return LK_OK;
    }
    lock(segment->fd, FAILURE_LOCK, F_RDLCK);
    lk_status status = lki_error_restore(&head->error);
    lock(segment->fd, FAILURE_LOCK, F_UNLCK);
    take_away(segment);
    return status;
}

lk_status lki_fields_share(lk_fields **out, const char *path, const lki_fields_source *source, int readers)
{
    lki_fields_layout layout;
    lk_status status = LK_OK;
    *out = NULL;
    segment *file = LKI_NEW(segment);
    if (!file) return LK_ERR_NOMEM;
    if (!open_segment(file, path)) goto out;
    LKI_TRY_OUT(plan(file, source));
    if (!file->head) goto out;
    if (!all_settled(file->head)) {
        LKI_TRY_OUT(source->plan(source->context, &layout));
        read_with(file, source, readers);
    }
    status = result_of(file, out);
out:
    unmap_whole(file);
    if (file->fd >= 0) close(file->fd);
    lki_free(file);
    return status;
}
