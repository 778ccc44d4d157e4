/* Mapped files, and what happens when one of them is cut while it is read: the kernel then sends SIGBUS. A
 * mapping installs a handler that puts zeros where the file's bytes were and notes which file it was, so
 * that whoever reads can fail in one line (lki_mapped_check). Faults elsewhere go to the handler that was
 * there before, which is put back when no file is mapped any more. */
#define _GNU_SOURCE
#include "tensor/mapped.h"

#include "base/memory.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- The files that are mapped ---- */

enum { MAX_FILES = 512 }; /* of more, those that come later are not watched */

/* The handler reads these without a lock: `begin` is written last when a file comes, first when it goes. */
typedef struct watched {
    _Atomic uintptr_t begin; /* 0: the place is free */
    _Atomic size_t nbytes;   /* whole pages */
    atomic_bool is_cut;
    char *path;
} watched;

static watched files[MAX_FILES];
atomic_int lki_mapped_cut_count;
static pthread_mutex_t files_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction earlier;
static uintptr_t page_nbytes;

static void pass_on(int number, siginfo_t *info, void *context)
{
    if (earlier.sa_flags & SA_SIGINFO)
        earlier.sa_sigaction(number, info, context);
    else if (earlier.sa_handler != SIG_DFL && earlier.sa_handler != SIG_IGN)
        earlier.sa_handler(number);
    else
        signal(number, SIG_DFL); /* the access is repeated, and ends the process */
}

/* All that follows the first missing page is missing too: one fault is enough. */
static void on_fault(int number, siginfo_t *info, void *context)
{
    uintptr_t at = (uintptr_t)info->si_addr & ~(page_nbytes - 1);
    int saved = errno;
    for (int i = 0; i < MAX_FILES && info->si_code > 0; i++) { /* else a process has sent it */
        uintptr_t begin = atomic_load(&files[i].begin), end = begin + atomic_load(&files[i].nbytes);
        if (!begin || at < begin || at >= end) continue;
        void *zeros = mmap((void *)at, end - at, PROT_READ | PROT_WRITE,
                           MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        errno = saved;
        if (zeros == MAP_FAILED) break;
        if (!atomic_exchange(&files[i].is_cut, true)) atomic_fetch_add(&lki_mapped_cut_count, 1);
        return;
    }
    errno = saved;
    pass_on(number, info, context);
}

/* Again when somebody else has taken the signal meanwhile: that handler is then the one before ours. */
static void install_handler(void)
{
    struct sigaction current,
        action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK};
    if (sigaction(SIGBUS, NULL, &current) != 0) return;
    if ((current.sa_flags & SA_SIGINFO) && current.sa_sigaction == on_fault) return;
    page_nbytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    sigemptyset(&action.sa_mask);
    earlier = current;
    sigaction(SIGBUS, &action, NULL);
}

/* Unless somebody else has taken the signal meanwhile. */
static void remove_handler(void)
{
    struct sigaction current;
    if (sigaction(SIGBUS, NULL, &current) != 0) return;
    if ((current.sa_flags & SA_SIGINFO) && current.sa_sigaction == on_fault)
        sigaction(SIGBUS, &earlier, NULL);
}

static int count_files(void)
{
    int count = 0;
    for (int i = 0; i < MAX_FILES; i++) count += atomic_load(&files[i].begin) != 0;
    return count;
}

static void watch(void *data, size_t nbytes, const char *path)
{
    pthread_mutex_lock(&files_lock);
    install_handler();
    for (int i = 0; i < MAX_FILES; i++) {
        if (atomic_load(&files[i].begin)) continue;
        files[i].path = lki_strdup(path);
        atomic_store(&files[i].nbytes, (nbytes + page_nbytes - 1) & ~(page_nbytes - 1));
        atomic_store(&files[i].is_cut, false);
        atomic_store(&files[i].begin, (uintptr_t)data);
        break;
    }
    pthread_mutex_unlock(&files_lock);
}

static void forget(const void *data)
{
    pthread_mutex_lock(&files_lock);
    for (int i = 0; i < MAX_FILES; i++) {
        if (atomic_load(&files[i].begin) != (uintptr_t)data) continue;
        atomic_store(&files[i].begin, 0);
        if (atomic_load(&files[i].is_cut)) atomic_fetch_sub(&lki_mapped_cut_count, 1);
        lki_free(files[i].path);
        files[i].path = NULL;
        if (count_files() == 0) remove_handler();
        break;
    }
    pthread_mutex_unlock(&files_lock);
}

lk_status lki_mapped_name_cut(void)
{
    lk_status status = LK_OK;
    pthread_mutex_lock(&files_lock);
    for (int i = 0; i < MAX_FILES && !status; i++)
        if (atomic_load(&files[i].begin) && atomic_load(&files[i].is_cut))
            status =
                lki_fail(LK_ERR_IO, "%s: can no longer be read: it was truncated, or its disk has failed",
                         files[i].path ? files[i].path : "a mapped file");
    pthread_mutex_unlock(&files_lock);
    return status;
}

/* ---- Mapping ---- */

static void unmap(void *data, void *context)
{
    if (!data) return;
    forget(data);
    munmap(data, (size_t)(uintptr_t)context);
}

static lk_status map_descriptor(lk_buffer **out, int fd, const char *path)
{
    struct stat info;
    void *data = NULL;
    if (fstat(fd, &info) != 0) return lki_fail(LK_ERR_IO, "%s: could not read: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode)) return lki_fail(LK_ERR_IO, "%s: is no regular file", path);
    size_t nbytes = (size_t)info.st_size;
    if (nbytes) {
        data = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED) return lki_fail(LK_ERR_IO, "%s: could not map: %s", path, strerror(errno));
        watch(data, nbytes, path);
    }
    *out = lki_buffer_adopt(data, nbytes, unmap, (void *)(uintptr_t)nbytes);
    if (*out) return LK_OK;
    unmap(data, (void *)(uintptr_t)nbytes);
    return LK_ERR_NOMEM;
}

/* ---- Reading ---- */

enum { MAX_READ_NBYTES = 64 << 20 };

static lk_status read_bytes(int fd, const char *path, char *bytes, size_t nbytes)
{
    size_t done = 0;
    while (done < nbytes) {
        ssize_t count = read(fd, bytes + done, nbytes - done);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return lki_fail(LK_ERR_IO, "%s: could not read: %s", path, strerror(errno));
        if (count == 0) return lki_fail(LK_ERR_IO, "%s: was truncated while it was read", path);
        done += (size_t)count;
    }
    return LK_OK;
}

static lk_status read_descriptor(lk_buffer **out, int fd, const char *path)
{
    struct stat info;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size == 0 ||
        info.st_size > MAX_READ_NBYTES)
        return map_descriptor(out, fd, path);
    lk_buffer *buffer = lki_buffer_create((size_t)info.st_size, path);
    if (!buffer) return LK_ERR_NOMEM;
    lk_status status = read_bytes(fd, path, lki_buffer_data(buffer), (size_t)info.st_size);
    if (status == LK_OK) *out = buffer;
    if (status != LK_OK) lki_buffer_release(buffer);
    return status;
}

static lk_status with_descriptor(lk_buffer **out, const char *path,
                                 lk_status (*take)(lk_buffer **out, int fd, const char *path))
{
    *out = NULL;
    if (!path) return lki_fail(LK_ERR_INVALID, "there is no path of a file to read");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) return lki_fail(LK_ERR_NOT_FOUND, "%s: no such file", path);
    if (fd < 0) return lki_fail(LK_ERR_IO, "%s: could not open: %s", path, strerror(errno));
    lk_status status = take(out, fd, path);
    close(fd);
    return status;
}

lk_status lki_map_file(lk_buffer **out, const char *path)
{
    return with_descriptor(out, path, map_descriptor);
}

lk_status lki_load_file(lk_buffer **out, const char *path)
{
    return with_descriptor(out, path, read_descriptor);
}
