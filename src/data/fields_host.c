#include "data/fields_host.h"

#include "base/job.h"
#include "base/memory.h"
#include "base/settings.h"
#include "base/status.h"
#include "base/threads.h"
#include "data/fields.h"
#include "data/file.h"
#include "tensor/buffer.h"

#include <lockstep/version.h>

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_NBYTES = 4096, LARGE_NBYTES = 16 << 20, MAX_READERS = 16 };

/* /dev/shm may be small, or not there. */
static const char *shared_folder(void)
{
    const char *wanted = lki_setting_text(LKI_SETTING_SHM);
    return wanted ? wanted : "/dev/shm";
}

/* ---- What the file is called ---- */

static bool describe_file(FILE *stream, const char *template, const char *feature, double checkpoint)
{
    struct stat status;
    LKI_SCOPED char *path = lk_field_path(template, feature, checkpoint);
    if (!path || stat(path, &status) != 0) return false;
    fprintf(stream, "%llu %llu %lld %lld.%ld;", (unsigned long long)status.st_dev,
            (unsigned long long)status.st_ino, (long long)status.st_size, (long long)status.st_mtim.tv_sec,
            status.st_mtim.tv_nsec);
    return true;
}

static bool describe_names(FILE *stream, const char *template, lk_name_list names, lk_name_list labels,
                           lk_number_list checkpoints)
{
    bool whole = true;
    for (int i = 0; i < labels.count; i++)
        fprintf(stream, "label %s;", labels.items[i] ? labels.items[i] : "");
    for (int i = 0; i < names.count && whole; i++) {
        fprintf(stream, "name %s;", names.items[i]);
        for (int c = 0; c < checkpoints.count && whole; c++)
            whole = describe_file(stream, template, names.items[i], checkpoints.items[c]);
    }
    return whole;
}

/* False where a file is missing: loading will say which. */
static bool name_file(char *path, size_t capacity, const char *template, const lk_fields_options *o)
{
    char *text = NULL, hex[65];
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    if (!stream) return false;
    lk_number_list checkpoints = o->checkpoints.count ? o->checkpoints : lk_numbers(0);
    bool whole = describe_names(stream, template, o->features, o->feature_labels, checkpoints) &&
                 describe_names(stream, template, o->targets, o->target_labels, checkpoints);
    for (int i = 0; i < LK_MAX_SPATIAL; i++)
        fprintf(stream, "%lld %lld %lld;", (long long)o->input_size[i], (long long)o->sample_to[i],
                (long long)o->batch_size[i]);
    fprintf(stream, "%lld %d " LK_VERSION, (long long)o->batch_num, o->flat);
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
        int fd = openat(dirfd(folder), entry->d_name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0) continue;
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) unlinkat(dirfd(folder), entry->d_name, 0);
        close(fd);
    }
    if (folder) closedir(folder);
}

static int reader_count(void)
{
    int cores = lki_core_count();
    return cores < MAX_READERS ? cores : MAX_READERS;
}

/* ---- The result ---- */

lk_fields *lki_fields_over(const lki_fields_layout *layout, lk_buffer *buffer)
{
    lk_fields *fields = LKI_NEW(lk_fields);
    if (!fields) return NULL;
    fields->dims = layout->dims;
    memcpy(fields->size, layout->size, sizeof fields->size);
    fields->target_shape = layout->target_shape;
    fields->features = lki_tensor_over(buffer, 0, LK_F32, layout->features);
    fields->targets = lki_tensor_over(buffer, (size_t)layout->targets_offset, LK_F32, layout->targets);
    if (fields->features && fields->targets) return fields;
    lk_fields_free(fields);
    return NULL;
}

/* ---- Reading for this process alone ---- */

typedef struct reading {
    const lki_fields_source *source;
    void *memory;
    pthread_mutex_t lock;
    int64_t failed; /* the first block that cannot be read; -1: none */
    lki_error error;
} reading;

static void note_failure(reading *reading, int64_t block, lk_status status)
{
    pthread_mutex_lock(&reading->lock);
    if (reading->failed < 0 || block < reading->failed) {
        reading->failed = block;
        reading->error.status = LK_OK;
        lki_error_keep(&reading->error, status);
    }
    pthread_mutex_unlock(&reading->lock);
}

static void read_range(int64_t begin, int64_t end, int thread, void *context)
{
    reading *reading = context;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        lk_status status = reading->source->read(reading->source->context, i, reading->memory);
        if (!status) continue;
        note_failure(reading, i, status);
        return;
    }
}

static lk_status read_into(void *memory, const lki_fields_source *source, const lki_fields_layout *layout)
{
    reading reading = {.source = source, .memory = memory, .failed = -1};
    lki_pool *pool = NULL;
    bool splits = layout->independent && layout->read_nbytes >= LARGE_NBYTES && layout->block_count > 1;
    pthread_mutex_init(&reading.lock, NULL);
    if (splits && lki_core_count() > 1 && lki_pool_create(&pool, reader_count(), 0) == LK_OK)
        lki_parallel_for(pool, layout->block_count, 1, read_range, &reading);
    else
        read_range(0, layout->block_count, 0, &reading);
    lki_pool_free(pool);
    pthread_mutex_destroy(&reading.lock);
    return lki_error_restore(&reading.error);
}

/* Large fields are written to, and read from, in fewer and larger pages where the machine has them. */
static void *new_memory(size_t nbytes)
{
    char *memory = lki_alloc_aligned(nbytes, "the fields");
    if (memory && nbytes >= LARGE_NBYTES) {
        uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE),
                  from = ((uintptr_t)memory + page - 1) / page * page;
        madvise((void *)from, nbytes - (from - (uintptr_t)memory), MADV_HUGEPAGE);
    }
    return memory;
}

/* In memory of this process. */
static lk_fields *read_alone(const lki_fields_source *source, const lki_fields_layout *layout)
{
    void *memory = new_memory((size_t)layout->nbytes);
    lk_buffer *buffer = memory ? lki_buffer_adopt(memory, (size_t)layout->nbytes, NULL, NULL) : NULL;
    if (!buffer) {
        lki_free(memory);
        return NULL;
    }
    lk_fields *fields = read_into(memory, source, layout) ? NULL : lki_fields_over(layout, buffer);
    lki_buffer_release(buffer); /* the tensors hold it */
    return fields;
}

lk_fields *lki_fields_of_host(const char *path, const lk_fields_options *options,
                              const lki_fields_source *source)
{
    char file[PATH_NBYTES];
    lki_fields_layout layout = {0};
    lk_fields *fields = NULL;
    bool others = lki_job_has_others();
    if (others && name_file(file, sizeof file, path, options)) {
        take_away_leftovers(file);
        if (lki_fields_share(&fields, file, source, 1)) return NULL;
        if (fields) return fields;
    }
    if (source->plan(source->context, &layout)) return NULL;
    int readers = others || layout.read_nbytes < LARGE_NBYTES ? 1 : reader_count();
    if (readers > 1 && !layout.independent && lki_fields_share(&fields, NULL, source, readers)) return NULL;
    return fields ? fields : read_alone(source, &layout);
}
