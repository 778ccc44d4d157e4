#include <lockstep/logger.h>

#include "base/atomic_file.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/number_text.h"
#include "base/status.h"
#include "base/take.h"
#include "logger/append_file.h"
#include "logger/format.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct jsonl_logger {
    lki_append_file file;
    int64_t resume_epoch, resume_sample;
    struct stat found; /* the file when the logger was made; all zero where there was none */
    bool begun;
} jsonl_logger;

/* ---- What an earlier run left ---- */

/* Whether a line was logged after the point that the run continues from; a line that is no JSON was cut off
 * by a crash. */
static bool is_later(const jsonl_logger *self, const char *line, size_t length)
{
    json_t *entry = json_loadb(line, length, 0, NULL);
    if (!entry) return true;
    const char *scope = json_string_value(json_object_get(entry, "scope"));
    bool batch = scope && strcmp(scope, "batch") == 0;
    json_int_t at = json_integer_value(json_object_get(entry, batch ? "sample" : "epoch"));
    json_decref(entry);
    return at > (batch ? self->resume_sample : self->resume_epoch);
}

static lk_status drop_later_lines(const jsonl_logger *self)
{
    LKI_SCOPED char *text = NULL;
    size_t nbytes, kept = 0;
    lk_status status = lki_read_file(&text, &nbytes, self->file.path);
    if (status == LK_ERR_NOT_FOUND) return LK_OK;
    LKI_TRY(status);
    for (char *line = text, *end; line < text + nbytes; line = end + 1) {
        end = memchr(line, '\n', (size_t)(text + nbytes - line));
        if (!end) break;
        size_t length = (size_t)(end - line) + 1;
        if (is_later(self, line, length)) continue;
        memmove(text + kept, line, length);
        kept += length;
    }
    return kept == nbytes ? LK_OK : lki_write_file_atomic(self->file.path, text, kept);
}

static struct stat look_at(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 ? info : (struct stat){0};
}

static bool is_as_found(const jsonl_logger *self)
{
    struct stat is = look_at(self->file.path);
    const struct stat *was = &self->found;
    return is.st_dev == was->st_dev && is.st_ino == was->st_ino && is.st_size == was->st_size &&
           is.st_mtim.tv_sec == was->st_mtim.tv_sec && is.st_mtim.tv_nsec == was->st_mtim.tv_nsec;
}

/* Before the first entry. A file that has changed since the logger was made has entries of this program
 * already: the calls of a config may share one, and their loggers are all made before the first call. */
static lk_status begin(jsonl_logger *self)
{
    bool resume = self->resume_epoch > 0 || self->resume_sample > 0;
    if (self->begun) return LK_OK;
    if (!lki_is_pipe_or_device(self->file.path) && is_as_found(self))
        LKI_TRY(resume ? drop_later_lines(self) : lki_write_file_atomic(self->file.path, "", 0));
    self->begun = true;
    return LK_OK;
}

static lk_status jsonl_resume(void *context, int64_t epoch_step, int64_t sample_step)
{
    jsonl_logger *self = context;
    self->resume_epoch = epoch_step;
    self->resume_sample = sample_step;
    return LK_OK;
}

/* ---- Entries ---- */

/* A string in quotes, with what JSON wants escaped. */
static lk_status put_string(lki_append_file *file, const char *text)
{
    LKI_TRY(lki_append_file_write(file, "\"", 1));
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            LKI_TRY(lki_append_file_printf(file, "\\%c", c));
        else if (c < 32)
            LKI_TRY(lki_append_file_printf(file, "\\u%04x", c));
        else
            LKI_TRY(lki_append_file_write(file, text, 1));
    }
    return lki_append_file_write(file, "\"", 1);
}

/* When: in seconds since the epoch. */
static lk_status put_time(lki_append_file *file)
{
    char number[LKI_NUMBER_LENGTH];
    lki_snprintf(number, sizeof number, "%.6f", lki_wall_time_s());
    return lki_append_file_printf(file, ",\"time\":%s", number);
}

static lk_status put_step(lki_append_file *file, const char *kind, const lk_log_step *step)
{
    LKI_TRY(lki_append_file_printf(file, "{\"scope\":\"%s\",\"loader\":", kind));
    LKI_TRY(step->loader_key ? put_string(file, step->loader_key) : lki_append_file_printf(file, "null"));
    LKI_TRY(put_time(file));
    return lki_append_file_printf(file, ",\"epoch\":%" PRId64 ",\"batch\":%" PRId64 ",\"sample\":%" PRId64,
                                  step->epoch_step, step->batch_step, step->sample_step);
}

static lk_status jsonl_log_metrics(void *context, lk_log_scope scope, const lk_log_step *step,
                                   lk_metric_values values)
{
    lki_append_file *file = &((jsonl_logger *)context)->file;
    const char *kind = scope == LK_LOG_BATCH    ? "batch"
                       : scope == LK_LOG_LOADER ? "loader"
                       : scope == LK_LOG_EPOCH  ? "epoch"
                                                : "experiment";
    LKI_TRY(begin(context));
    LKI_TRY(put_step(file, kind, step));
    LKI_TRY(lki_append_file_printf(file, ",\"metrics\":{"));
    for (int i = 0; i < values.count; i++) {
        char number[LKI_NUMBER_LENGTH];
        double value = values.items[i].value;
        if (i) LKI_TRY(lki_append_file_write(file, ",", 1));
        LKI_TRY(put_string(file, values.items[i].name));
        /* JSON has no NaN and no infinity. */
        LKI_TRY(
            lki_append_file_printf(file, ":%s", isfinite(value) ? lki_format_exact(number, value) : "null"));
    }
    LKI_TRY(lki_append_file_printf(file, "}}\n"));
    return lki_append_file_end_entry(file);
}

static lk_status jsonl_log_hparams(void *context, const char *json)
{
    lki_append_file *file = &((jsonl_logger *)context)->file;
    json_error_t error;
    LKI_TRY(begin(context));
    json_t *document = json_loads(json, 0, &error);
    if (!document)
        return lki_fail(LK_ERR_INVALID, "%s: the settings are no JSON: %s", file->path, error.text);
    char *line = json_dumps(document, JSON_COMPACT);
    json_decref(document);
    if (!line) return lki_fail(LK_ERR_NOMEM, "%s: out of memory", file->path);
    lk_status status = lki_append_file_printf(file, "{\"scope\":\"hparams\"");
    if (!status) status = put_time(file);
    if (!status) status = lki_append_file_printf(file, ",\"epoch\":0,\"hparams\":%s}\n", line);
    free(line);
    return status;
}

static lk_status jsonl_log_artifact(void *context, const lk_log_step *step, const char *tag, const char *path)
{
    lki_append_file *file = &((jsonl_logger *)context)->file;
    LKI_TRY(begin(context));
    LKI_TRY(put_step(file, "artifact", step));
    LKI_TRY(lki_append_file_printf(file, ",\"tag\":"));
    LKI_TRY(put_string(file, tag));
    LKI_TRY(lki_append_file_printf(file, ",\"path\":"));
    LKI_TRY(put_string(file, path));
    return lki_append_file_printf(file, "}\n");
}

static lk_status jsonl_flush(void *context)
{
    return lki_append_file_flush(&((jsonl_logger *)context)->file);
}

static lk_status jsonl_close(void *context)
{
    lk_status status = lki_append_file_fini(&((jsonl_logger *)context)->file);
    lki_free(context);
    return status;
}

/* Says early that the file cannot be written, and leaves it as it is. */
static lk_status check_writable(const char *path)
{
    const char *slash = strrchr(path, '/');
    LKI_SCOPED char *folder = slash ? lki_strndup(path, (size_t)(slash + 1 - path)) : lki_strdup(".");
    if (!folder) return LK_ERR_NOMEM;
    bool is_there = access(path, F_OK) == 0;
    if (access(is_there ? path : folder, W_OK) == 0) return LK_OK;
    return lki_fail(LK_ERR_IO, "%s: could not %s: %s", path, is_there ? "open" : "create", strerror(errno));
}

lk_logger *lk_jsonl_logger_with(const char *path, const lk_logger_options *given)
{
    LKI_TAKE(lk_logger_options, options, given, NULL);
    static const lk_logger_ops ops = {LK_SIZE(lk_logger_ops),
                                      .log_metrics = jsonl_log_metrics,
                                      .log_hparams = jsonl_log_hparams,
                                      .log_artifact = jsonl_log_artifact,
                                      .flush = jsonl_flush,
                                      .close = jsonl_close,
                                      .resume = jsonl_resume};
    if (!path) return lki_fail_null(LK_ERR_INVALID, "JSONL logger: no path");
    if (check_writable(path)) return NULL;
    jsonl_logger *self = LKI_NEW(jsonl_logger);
    if (!self) return NULL;
    self->resume_epoch = options.resume_epoch;
    self->resume_sample = options.resume_sample;
    self->found = look_at(path);
    if (lki_append_file_init(&self->file, path)) {
        jsonl_close(self);
        return NULL;
    }
    return lk_logger_create(
        &ops, LK_LOG_EPOCH | LK_LOG_EXPERIMENT | (options.log_batch_metrics ? LK_LOG_BATCH : 0), self);
}
