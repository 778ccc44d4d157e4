#include <lockstep/logger.h>

#include "base/atomic_file.h"
#include "base/memory.h"
#include "base/status.h"
#include "logger/append_file.h"
#include "logger/format.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct jsonl_logger {
    lki_append_file file;
} jsonl_logger;

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

static lk_status put_step(lki_append_file *file, const char *kind, const lk_log_step *step)
{
    LKI_TRY(lki_append_file_printf(file, "{\"scope\":\"%s\",\"loader\":", kind));
    LKI_TRY(step->loader_key ? put_string(file, step->loader_key) : lki_append_file_printf(file, "null"));
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
    json_t *document = json_loads(json, 0, &error);
    if (!document)
        return lki_fail(LK_ERR_INVALID, "%s: the settings are no JSON: %s", file->path, error.text);
    char *line = json_dumps(document, JSON_COMPACT);
    json_decref(document);
    if (!line) return lki_fail(LK_ERR_NOMEM, "%s: out of memory", file->path);
    lk_status status =
        lki_append_file_printf(file, "{\"scope\":\"hparams\",\"epoch\":0,\"hparams\":%s}\n", line);
    free(line);
    return status;
}

static lk_status jsonl_log_artifact(void *context, const lk_log_step *step, const char *tag, const char *path)
{
    lki_append_file *file = &((jsonl_logger *)context)->file;
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

/* Whether a line was logged after the point that the run continues from; a line that is no JSON was cut off
 * by a crash. */
static bool is_later(const char *line, size_t length, const lk_logger_options *options)
{
    json_t *entry = json_loadb(line, length, 0, NULL);
    if (!entry) return true;
    const char *scope = json_string_value(json_object_get(entry, "scope"));
    bool batch = scope && strcmp(scope, "batch") == 0;
    json_int_t at = json_integer_value(json_object_get(entry, batch ? "sample" : "epoch"));
    json_decref(entry);
    return at > (batch ? options->resume_sample : options->resume_epoch);
}

static lk_status continue_file(const char *path, const lk_logger_options *options)
{
    LKI_SCOPED char *text = NULL;
    size_t nbytes, kept = 0;
    lk_status status = lki_read_file(&text, &nbytes, path);
    if (status == LK_ERR_NOT_FOUND) return LK_OK;
    LKI_TRY(status);
    for (char *line = text, *end; line < text + nbytes; line = end + 1) {
        end = memchr(line, '\n', (size_t)(text + nbytes - line));
        if (!end) break;
        size_t length = (size_t)(end - line) + 1;
        if (is_later(line, length, options)) continue;
        memmove(text + kept, line, length);
        kept += length;
    }
    return kept == nbytes ? LK_OK : lki_write_file_atomic(path, text, kept);
}

lk_logger *lk_jsonl_logger_create(const char *path, lk_logger_options options)
{
    static const lk_logger_ops ops = {.log_metrics = jsonl_log_metrics,
                                      .log_hparams = jsonl_log_hparams,
                                      .log_artifact = jsonl_log_artifact,
                                      .flush = jsonl_flush,
                                      .close = jsonl_close};
    if (!path) return lki_fail_null(LK_ERR_INVALID, "JSONL logger: no path");
    jsonl_logger *self = LKI_NEW(jsonl_logger);
    if (!self) return NULL;
    bool resume = options.resume_epoch > 0 || options.resume_sample > 0;
    lk_status status = lki_append_file_init(&self->file, path);
    if (status == LK_OK && lki_is_pipe_or_device(path))
        status = lki_append_file_open(&self->file);
    else if (status == LK_OK)
        status = resume ? continue_file(path, &options) : lki_write_file_atomic(path, "", 0);
    if (status != LK_OK) {
        jsonl_close(self);
        return NULL;
    }
    return lk_logger_create(
        &ops, LK_LOG_EPOCH | LK_LOG_EXPERIMENT | (options.batch_metrics ? LK_LOG_BATCH : 0), self);
}
