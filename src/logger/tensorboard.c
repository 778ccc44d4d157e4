#include "logger/logger.h"

#include "base/atomic_file.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "logger/append_file.h"
#include "logger/event.h"
#include "logger/tensorboard_read.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct stream {
    char *loader_key;
    lki_append_file file;
} stream;

typedef struct tensorboard_logger {
    char *folder; /* LOGDIR/tensorboard */
    int64_t resume_epoch, resume_sample;
    stream *streams;
    int stream_count;
    bool has_session;        /* the settings were written: the end is, too */
    lki_event_buffer record; /* the one being made */
} tensorboard_logger;

static lk_status write_record(tensorboard_logger *self, stream *to)
{
    lk_status status = lki_append_file_write(&to->file, self->record.data, self->record.used);
    self->record.used = 0;
    return status == LK_OK ? lki_append_file_end_entry(&to->file) : status;
}

/* What an earlier run logged after the point that this one continues from would show up twice. */
static lk_status truncate_earlier(tensorboard_logger *self, const char *folder)
{
    DIR *directory = opendir(folder);
    lk_status status = LK_OK;
    if (!directory) return lki_fail(LK_ERR_IO, "%s: could not open the folder: %s", folder, strerror(errno));
    for (struct dirent *entry; status == LK_OK && (entry = readdir(directory));) {
        if (strncmp(entry->d_name, "events.out.tfevents.", 20) != 0) continue;
        LKI_SCOPED char *path = lki_format("%s/%s", folder, entry->d_name);
        status =
            path ? lki_tensorboard_truncate(path, self->resume_epoch, self->resume_sample) : LK_ERR_NOMEM;
    }
    closedir(directory);
    return status;
}

/* A run that starts afresh replaces what was there, as the CSV files do. */
static lk_status remove_earlier(const char *folder)
{
    DIR *directory = opendir(folder);
    if (!directory) return lki_fail(LK_ERR_IO, "%s: could not open the folder: %s", folder, strerror(errno));
    for (struct dirent *entry; (entry = readdir(directory));)
        if (strncmp(entry->d_name, "events.out.tfevents.", 20) == 0)
            unlinkat(dirfd(directory), entry->d_name, 0);
    closedir(directory);
    return LK_OK;
}

/* events.out.tfevents.<seconds>.<host>.<pid>.<number of the stream> */
static lk_status open_stream(tensorboard_logger *self, stream *made)
{
    char host[256] = "localhost";
    gethostname(host, sizeof host - 1);
    LKI_SCOPED char *folder = lki_format("%s/%s", self->folder, made->loader_key);
    if (!folder) return LK_ERR_NOMEM;
    LKI_TRY(lki_make_folders(folder));
    LKI_TRY(self->resume_epoch > 0 || self->resume_sample > 0 ? truncate_earlier(self, folder)
                                                              : remove_earlier(folder));
    LKI_SCOPED char *path = lki_format("%s/events.out.tfevents.%lld.%s.%ld.%d", folder, (long long)time(NULL),
                                       host, (long)getpid(), self->stream_count);
    if (!path) return LK_ERR_NOMEM;
    LKI_TRY(lki_append_file_init(&made->file, path));
    LKI_TRY(lki_event_put_version(&self->record, lki_wall_time_s()));
    return write_record(self, made);
}

static lk_status find_stream(tensorboard_logger *self, const char *loader_key, stream **out)
{
    for (int i = 0; i < self->stream_count; i++)
        if (strcmp(self->streams[i].loader_key, loader_key) == 0) {
            *out = &self->streams[i];
            return LK_OK;
        }
    size_t nbytes = sizeof *self->streams * ((size_t)self->stream_count + 1);
    stream *streams = lki_realloc(self->streams, nbytes, "the TensorBoard logger's files");
    if (!streams) return LK_ERR_NOMEM;
    self->streams = streams;
    *out = &streams[self->stream_count];
    **out = (stream){.loader_key = lki_strdup(loader_key), .file = {.fd = -1}};
    if (!(*out)->loader_key) return LK_ERR_NOMEM;
    lk_status status = open_stream(self, *out);
    if (status != LK_OK) {
        (*out)->file.used = 0;
        lki_append_file_fini(&(*out)->file);
        lki_free((*out)->loader_key);
        return status;
    }
    self->stream_count++;
    return LK_OK;
}

static lk_status tensorboard_resume(void *context, int64_t epoch_step, int64_t sample_step)
{
    tensorboard_logger *self = context;
    self->resume_epoch = epoch_step;
    self->resume_sample = sample_step;
    return LK_OK;
}

static lk_status tensorboard_log_metrics(void *context, lk_log_scope scope, const lk_log_step *step,
                                         lk_metric_values values)
{
    tensorboard_logger *self = context;
    bool batch = scope == LK_LOG_BATCH;
    stream *to;
    LKI_TRY(find_stream(self, step->loader_key, &to));
    if (values.count == 0) return LK_OK;
    LKI_TRY(lki_event_put_scalars(&self->record, lki_wall_time_s(),
                                  batch ? step->sample_step : step->epoch_step, values,
                                  batch ? "/batch" : "/epoch"));
    return write_record(self, to);
}

static lk_status tensorboard_log_image(void *context, const lk_log_step *step, const char *tag,
                                       const lk_tensor *pixels)
{
    tensorboard_logger *self = context;
    stream *to;
    LKI_TRY(find_stream(self, step->loader_key ? step->loader_key : "_epoch_", &to));
    LKI_TRY(lki_event_put_image(&self->record, lki_wall_time_s(), step->epoch_step, tag, pixels));
    return write_record(self, to);
}

static lk_status tensorboard_log_histogram(void *context, const lk_log_step *step, const char *tag,
                                           const lk_histogram *histogram)
{
    tensorboard_logger *self = context;
    stream *to;
    LKI_TRY(find_stream(self, step->loader_key ? step->loader_key : "_epoch_", &to));
    LKI_TRY(lki_event_put_histogram(&self->record, lki_wall_time_s(), step->epoch_step, tag, histogram));
    return write_record(self, to);
}

/* The settings and the graph lie beside the loaders' folders: readers find the metrics below them. */
static lk_status tensorboard_log_hparams(void *context, const char *json)
{
    tensorboard_logger *self = context;
    stream *to;
    LKI_TRY(find_stream(self, ".", &to));
    self->has_session = true;
    LKI_TRY(lki_event_put_session(&self->record, lki_wall_time_s(), json));
    return write_record(self, to);
}

static lk_status tensorboard_log_model(void *context, const char *json)
{
    tensorboard_logger *self = context;
    stream *to;
    LKI_TRY(find_stream(self, ".", &to));
    LKI_TRY(lki_event_put_graph(&self->record, lki_wall_time_s(), json));
    return write_record(self, to);
}

static lk_status tensorboard_ended(void *context, lk_status ended)
{
    tensorboard_logger *self = context;
    stream *to;
    if (!self->has_session) return LK_OK;
    LKI_TRY(find_stream(self, ".", &to));
    LKI_TRY(lki_event_put_session_end(&self->record, lki_wall_time_s(), ended));
    return write_record(self, to);
}

static lk_status tensorboard_flush(void *context)
{
    tensorboard_logger *self = context;
    lk_status status = LK_OK;
    for (int i = 0; i < self->stream_count; i++) {
        lk_status each = lki_append_file_flush(&self->streams[i].file);
        if (each != LK_OK) status = each;
    }
    return status;
}

static lk_status tensorboard_close(void *context)
{
    tensorboard_logger *self = context;
    lk_status status = LK_OK;
    for (int i = 0; i < self->stream_count; i++) {
        lk_status each = lki_append_file_fini(&self->streams[i].file);
        if (each != LK_OK) status = each;
        lki_free(self->streams[i].loader_key);
    }
    lki_event_buffer_fini(&self->record);
    lki_free(self->streams);
    lki_free(self->folder);
    lki_free(self);
    return status;
}

lk_logger *lk_tensorboard_logger_with(const char *logdir, const lk_logger_options *given)
{
    LKI_TAKE(lk_logger_options, options, given, NULL);
    static const lk_logger_ops ops = {LK_SIZE(lk_logger_ops),
                                      .log_metrics = tensorboard_log_metrics,
                                      .log_hparams = tensorboard_log_hparams,
                                      .log_image = tensorboard_log_image,
                                      .flush = tensorboard_flush,
                                      .close = tensorboard_close,
                                      .resume = tensorboard_resume,
                                      .ended = tensorboard_ended,
                                      .log_histogram = tensorboard_log_histogram,
                                      .log_model = tensorboard_log_model};
    if (!logdir) return lki_fail_null(LK_ERR_INVALID, "TensorBoard logger: no logdir");
    tensorboard_logger *self = LKI_NEW(tensorboard_logger);
    if (!self) return NULL;
    self->folder = lki_format("%s/tensorboard", logdir);
    self->resume_epoch = options.resume_epoch;
    self->resume_sample = options.resume_sample;
    if (!self->folder || lki_make_folders(self->folder)) {
        tensorboard_close(self);
        return NULL;
    }
    unsigned scopes =
        (options.no_log_epoch_metrics ? 0 : LK_LOG_EPOCH) | (options.log_batch_metrics ? LK_LOG_BATCH : 0);
    return lki_logger_create_to(&ops, scopes, self, (lki_logger_target){.folder = self->folder});
}
