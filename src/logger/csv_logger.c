#include "logger/csv_logger.h"

#include "base/atomic_file.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "checkpoint/json_file.h"
#include "logger/csv_table.h"
#include "logger/logger.h"

#include <string.h>

typedef struct named_table {
    char *loader_key;
    lki_csv_table *table;
} named_table;

typedef struct csv_logger {
    char *logdir;
    int64_t resume_epoch;
    named_table *tables;
    int table_count;
} csv_logger;

static char *table_path(const char *logdir, const char *loader_key)
{
    return lki_format("%s/csv_logger/%s.csv", logdir, loader_key);
}

lk_status lki_csv_logger_check(const char *logdir, const char *loader_key)
{
    LKI_SCOPED char *path = table_path(logdir, loader_key);
    return path ? lki_csv_table_check(path) : LK_ERR_NOMEM;
}

static lk_status find_table(csv_logger *self, const char *loader_key, lki_csv_table **out)
{
    for (int i = 0; i < self->table_count; i++)
        if (strcmp(self->tables[i].loader_key, loader_key) == 0) {
            *out = self->tables[i].table;
            return LK_OK;
        }
    size_t nbytes = sizeof *self->tables * ((size_t)self->table_count + 1);
    named_table *tables = lki_realloc(self->tables, nbytes, "the CSV logger's files");
    if (!tables) return LK_ERR_NOMEM;
    self->tables = tables;
    LKI_SCOPED char *path = table_path(self->logdir, loader_key);
    char *key = lki_strdup(loader_key);
    lk_status status = path && key ? lki_csv_table_open(out, path, self->resume_epoch) : LK_ERR_NOMEM;
    if (status != LK_OK) {
        lki_free(key);
        return status;
    }
    tables[self->table_count++] = (named_table){key, *out};
    return LK_OK;
}

static lk_status csv_resume(void *context, int64_t epoch_step, int64_t sample_step)
{
    (void)sample_step;
    ((csv_logger *)context)->resume_epoch = epoch_step;
    return LK_OK;
}

static lk_status csv_log_metrics(void *context, lk_log_scope scope, const lk_log_step *step,
                                 lk_metric_values values)
{
    (void)scope;
    lki_csv_table *table;
    LKI_TRY(find_table(context, step->loader_key, &table));
    return lki_csv_table_add(table, step->epoch_step, lki_wall_time_s(), values);
}

static lk_status csv_log_hparams(void *context, const char *json)
{
    csv_logger *self = context;
    json_error_t error;
    LKI_SCOPED char *path = lki_format("%s/hparams.json", self->logdir);
    if (!path) return LK_ERR_NOMEM;
    json_t *document = json_loads(json, 0, &error);
    if (!document) return lki_fail(LK_ERR_INVALID, "%s: the settings are no JSON: %s", path, error.text);
    return lki_json_save(path, document);
}

static lk_status csv_flush(void *context)
{
    csv_logger *self = context;
    lk_status status = LK_OK;
    for (int i = 0; i < self->table_count; i++) {
        lk_status each = lki_csv_table_flush(self->tables[i].table);
        if (each != LK_OK) status = each;
    }
    return status;
}

static lk_status csv_close(void *context)
{
    csv_logger *self = context;
    lk_status status = LK_OK;
    for (int i = 0; i < self->table_count; i++) {
        lk_status each = lki_csv_table_close(self->tables[i].table);
        if (each != LK_OK) status = each;
        lki_free(self->tables[i].loader_key);
    }
    lki_free(self->tables);
    lki_free(self->logdir);
    lki_free(self);
    return status;
}

lk_logger *lk_csv_logger_with(const char *logdir, const lk_logger_options *given)
{
    LKI_TAKE(lk_logger_options, options, given, NULL);
    static const lk_logger_ops ops = {LK_SIZE(lk_logger_ops),
                                      .log_metrics = csv_log_metrics,
                                      .log_hparams = csv_log_hparams,
                                      .flush = csv_flush,
                                      .close = csv_close,
                                      .resume = csv_resume};
    if (!logdir) return lki_fail_null(LK_ERR_INVALID, "CSV logger: no logdir");
    LKI_SCOPED char *folder = lki_format("%s/csv_logger", logdir);
    if (!folder || lki_make_folders(folder)) return NULL;
    csv_logger *self = LKI_NEW(csv_logger);
    if (!self) return NULL;
    self->resume_epoch = options.resume_epoch;
    self->logdir = lki_strdup(logdir);
    if (!self->logdir) {
        csv_close(self);
        return NULL;
    }
    return lki_logger_create_to(&ops, LK_LOG_EPOCH, self, (lki_logger_target){.folder = self->logdir});
}
