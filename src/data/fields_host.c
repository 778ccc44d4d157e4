#include "data/fields_host.h"

#include "base/memory.h"
#include "base/status.h"
#include "data/fields.h"
#include "data/file.h"
#include "tensor/buffer.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_NBYTES = 4096, DATA_OFFSET = 4096, MAX_TRIES = 8, LARGE_NBYTES = 16 << 20 };
static const uint64_t magic = 0x31736c6569666b6cu; /* "lkfiels1" */

/* The first page of the file. */
typedef struct header {
    uint64_t magic;   /* written last: the rest is there */
    lk_fields fields; /* its tensors' pointers mean nothing */
    lk_shape features, targets;
    bool same;       /* the targets are the features */
    uint64_t nbytes; /* of the data */
} header;

/* /dev/shm may be small, or not there. */
static const char *shared_folder(void)
{
    const char *wanted = getenv("LOCKSTEP_SHM");
    return wanted && *wanted ? wanted : "/dev/shm";
}

/* A file in use: unmapped, and taken away by the last, when the tensors over it are gone. */
typedef struct mapping {
    char path[PATH_NBYTES];
    int fd;
    size_t nbytes;
} mapping;

static atomic_bool others_expected;

void lki_fields_expect_others(void)
{
    atomic_store(&others_expected, true);
}

static bool ranks_apart(void)
{
    static const char *const counts[] = {"WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};
    if (atomic_load(&others_expected)) return true;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const char *text = getenv(counts[i]);
        if (text && atoi(text) > 1) return true;
    }
    return false;
}

/* ---- What the file is called ---- */

static bool describe_file(FILE *stream, const char *template, const char *feature, double checkpoint,
                          int64_t *nbytes)
{
    struct stat status;
    LKI_SCOPED char *path = lk_field_path(template, feature, checkpoint);
    if (!path || stat(path, &status) != 0) return false;
    fprintf(stream, "%llu %llu %lld %lld.%ld;", (unsigned long long)status.st_dev,
            (unsigned long long)status.st_ino, (long long)status.st_size, (long long)status.st_mtim.tv_sec,
            status.st_mtim.tv_nsec);
    *nbytes += status.st_size;
    return true;
}

static bool describe_names(FILE *stream, const char *template, lk_name_list names, lk_name_list labels,
                           lk_number_list checkpoints, int64_t *nbytes)
{
    bool whole = true;
    for (int i = 0; i < labels.count; i++)
        fprintf(stream, "label %s;", labels.items[i] ? labels.items[i] : "");
    for (int i = 0; i < names.count && whole; i++) {
        fprintf(stream, "name %s;", names.items[i]);
        for (int c = 0; c < checkpoints.count && whole; c++)
            whole = describe_file(stream, template, names.items[i], checkpoints.items[c], nbytes);
    }
    return whole;
}

/* False where a file is missing: loading will say which. */
static bool name_file(char *path, size_t capacity, const char *template, const lk_fields_options *o,
                      int64_t *nbytes)
{
    char *text = NULL, hex[65];
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    if (!stream) return false;
    lk_number_list checkpoints = o->checkpoints.count ? o->checkpoints : lk_numbers(0);
    bool whole = describe_names(stream, template, o->features, o->feature_labels, checkpoints, nbytes) &&
                 describe_names(stream, template, o->targets, o->target_labels, checkpoints, nbytes);
    for (int i = 0; i < LK_MAX_SPATIAL; i++)
        fprintf(stream, "%lld %lld %lld;", (long long)o->input_size[i], (long long)o->sample_to[i],
                (long long)o->batch_size[i]);
    fprintf(stream, "%lld %d " LOCKSTEP_VERSION, (long long)o->batch_num, o->flat);
    fclose(stream);
    lki_sha256_hex(hex, text, length);
    free(text);
    int needed =
        snprintf(path, capacity, "%s/lockstep-%u-fields-%.32s", shared_folder(), (unsigned)getuid(), hex);
    return whole && needed > 0 && (size_t)needed < capacity;
}

/* What nobody uses any more was left by a process that was killed. */
static void take_away_leftovers(const char *but)
{
    char prefix[64];
    snprintf(prefix, sizeof prefix, "lockstep-%u-fields-", (unsigned)getuid());
    DIR *folder = opendir(shared_folder());
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0 || strstr(but, entry->d_name)) continue;
        int fd = openat(dirfd(folder), entry->d_name, O_RDWR | O_CLOEXEC);
        if (fd < 0) continue;
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) unlinkat(dirfd(folder), entry->d_name, 0);
        close(fd);
    }
    if (folder) closedir(folder);
}

/* The file, locked: for this process alone where nobody uses it, else together with those who do, once the
 * one that loads is through. -1 where that cannot be. */
static int open_locked(const char *path, bool *alone)
{
    struct stat status;
    for (int i = 0; i < MAX_TRIES; i++) {
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0) return -1;
        *alone = flock(fd, LOCK_EX | LOCK_NB) == 0;
        bool locked = *alone || flock(fd, LOCK_SH) == 0;
        if (locked && fstat(fd, &status) == 0 && status.st_nlink > 0) return fd;
        close(fd); /* the last one took it away while this one waited */
    }
    return -1;
}

/* ---- Writing ---- */

static bool write_all(int fd, const void *data, size_t nbytes, off_t offset)
{
    for (size_t done = 0; done < nbytes;) {
        ssize_t some = pwrite(fd, (const char *)data + done, nbytes - done, offset + (off_t)done);
        if (some <= 0) return false;
        done += (size_t)some;
    }
    return true;
}

static bool publish(int fd, const lk_fields *fields)
{
    size_t first = lk_tensor_nbytes(fields->features), second = lk_tensor_nbytes(fields->targets);
    header h;
    memset(&h, 0, sizeof h);
    h.fields = *fields;
    h.features = fields->features->shape;
    h.targets = fields->targets->shape;
    h.same = fields->targets->data == fields->features->data;
    h.nbytes = first + (h.same ? 0 : second);
    _Static_assert(sizeof h <= DATA_OFFSET, "one page");
    if (posix_fallocate(fd, 0, (off_t)(DATA_OFFSET + h.nbytes)) != 0) return false; /* full */
    if (!write_all(fd, fields->features->data, first, DATA_OFFSET)) return false;
    if (!h.same && !write_all(fd, fields->targets->data, second, (off_t)(DATA_OFFSET + first))) return false;
    if (!write_all(fd, &h, sizeof h, 0)) return false;
    return write_all(fd, &magic, sizeof magic, 0);
}

/* ---- Reading ---- */

static void release(void *data, void *context)
{
    mapping *m = context;
    munmap((char *)data - DATA_OFFSET, m->nbytes);
    if (flock(m->fd, LOCK_EX | LOCK_NB) == 0) unlink(m->path);
    close(m->fd);
    lki_free(m);
}

/* The pages are everybody's until somebody writes to one: that one is its own from then on. */
static lk_buffer *map_data(const char *path, int fd, size_t nbytes)
{
    mapping *m = LKI_NEW(mapping);
    if (!m) return NULL;
    *m = (mapping){.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0), .nbytes = DATA_OFFSET + nbytes}; /* the same lock */
    snprintf(m->path, sizeof m->path, "%s", path);
    char *data = m->fd < 0 ? MAP_FAILED : mmap(NULL, m->nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    lk_buffer *buffer = data == MAP_FAILED ? NULL : lki_buffer_adopt(data + DATA_OFFSET, nbytes, release, m);
    if (buffer) return buffer;
    if (data != MAP_FAILED) munmap(data, m->nbytes);
    if (m->fd >= 0) close(m->fd);
    lki_free(m);
    return NULL;
}

/* NULL where the file does not hold whole fields. */
static lk_fields *map_fields(const char *path, int fd)
{
    header h;
    struct stat status;
    if (pread(fd, &h, sizeof h, 0) != sizeof h || h.magic != magic) return NULL;
    if (fstat(fd, &status) != 0 || (uint64_t)status.st_size < DATA_OFFSET + h.nbytes) return NULL;
    lk_buffer *buffer = map_data(path, fd, h.nbytes);
    lk_fields *fields = buffer ? LKI_NEW(lk_fields) : NULL;
    if (fields) {
        size_t first = (size_t)lk_shape_count(h.features) * sizeof(float);
        *fields = h.fields;
        fields->features = lki_tensor_over(buffer, 0, LK_F32, h.features);
        fields->targets = lki_tensor_over(buffer, h.same ? 0 : first, LK_F32, h.targets);
    }
    if (buffer) lki_buffer_release(buffer); /* the tensors hold it */
    if (!fields || (fields->features && fields->targets)) return fields;
    lk_fields_free(fields);
    return NULL;
}

/* Where it cannot be shared, it is this process's own. */
static lk_fields *load_and_publish(const char *path, int fd, const char *template,
                                   const lk_fields_options *options, lki_fields_loader load)
{
    lk_fields *fields = load(template, *options);
    lk_fields *mapped = fields && publish(fd, fields) ? map_fields(path, fd) : NULL;
    if (!mapped) {
        unlink(path);
        return fields;
    }
    lk_fields_free(fields);
    return mapped;
}

lk_fields *lki_fields_of_host(const char *path, const lk_fields_options *options, lki_fields_loader load)
{
    char file[PATH_NBYTES];
    int64_t nbytes = 0;
    bool alone = false, named = name_file(file, sizeof file, path, options, &nbytes);
    if (!named || !(ranks_apart() || nbytes >= LARGE_NBYTES)) return load(path, *options);
    take_away_leftovers(file);
    int fd = open_locked(file, &alone);
    if (fd < 0) return load(path, *options);
    lk_fields *fields = map_fields(file, fd);
    if (!fields && alone)
        fields = load_and_publish(file, fd, path, options, load);
    else if (!fields)
        fields = load(path, *options);
    flock(fd, LOCK_SH); /* the others may map it now */
    close(fd);
    return fields;
}
