/* A run in MLflow's file store. The run is made with the first thing that is logged, on rank 0. */
#include <lockstep/logger.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "logger/logger.h"
#include "logger/tracking.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct mlflow_logger {
    char *root, *experiment, *run_name;
    lki_tracking *tracking; /* NULL before anything was logged */
} mlflow_logger;

static lk_status begin(mlflow_logger *self)
{
    if (self->tracking) return LK_OK;
    return lki_tracking_begin(&self->tracking, self->root, self->experiment, self->run_name);
}

/* "train/loss.std": a file cannot be the folder of another, so a metric has but one slash. */
static char *metric_name(const char *loader, const char *metric)
{
    char *name = lki_format("%s/%s", loader ? loader : "run", metric);
    for (char *c = name ? name + strlen(name) - strlen(metric) : NULL; c && *c; c++)
        if (*c == '/') *c = '.';
    return name;
}

static lk_status mlflow_log_metrics(void *context, lk_log_scope scope, const lk_log_step *step,
                                    lk_metric_values values)
{
    mlflow_logger *self = context;
    (void)scope;
    LKI_TRY(begin(self));
    for (int i = 0; i < values.count; i++) {
        LKI_SCOPED char *name = metric_name(step->loader_key, values.items[i].name);
        if (!name) return LK_ERR_NOMEM;
        LKI_TRY(lki_tracking_metric(self->tracking, name, values.items[i].value, step->epoch_step));
    }
    return LK_OK;
}

static lk_status mlflow_log_hparams(void *context, const char *json)
{
    mlflow_logger *self = context;
    json_error_t error;
    const char *name;
    json_t *document = json_loads(json, 0, &error), *value;
    if (!json_is_object(document)) {
        json_decref(document);
        return lki_fail(LK_ERR_INVALID, "MLflow logger: the settings are no JSON object");
    }
    lk_status status = begin(self);
    json_object_foreach(document, name, value)
    {
        char *text = json_is_string(value) ? strdup(json_string_value(value))
                                           : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        if (!status && *name) status = lki_tracking_param(self->tracking, name, text ? text : "");
        free(text);
    }
    json_decref(document);
    return status;
}

static lk_status mlflow_log_image(void *context, const lk_log_step *step, const char *tag,
                                  const lk_tensor *pixels)
{
    mlflow_logger *self = context;
    LKI_SCOPED char *name = lki_format("%s/%s.%04lld", step->loader_key ? step->loader_key : "_epoch_", tag,
                                       (long long)step->epoch_step);
    if (!name) return LK_ERR_NOMEM;
    LKI_TRY(begin(self));
    return lki_tracking_image(self->tracking, name, pixels);
}

static lk_status mlflow_log_artifact(void *context, const lk_log_step *step, const char *tag,
                                     const char *path)
{
    mlflow_logger *self = context;
    (void)step, (void)tag;
    LKI_TRY(begin(self));
    return lki_tracking_artifact(self->tracking, path);
}

static lk_status mlflow_ended(void *context, lk_status status)
{
    mlflow_logger *self = context;
    if (!self->tracking) return LK_OK;
    return lki_tracking_state(self->tracking, status == LK_OK            ? LKI_RUN_FINISHED
                                              : status == LK_ERR_STOPPED ? LKI_RUN_KILLED
                                                                         : LKI_RUN_FAILED);
}

static lk_status mlflow_close(void *context)
{
    mlflow_logger *self = context;
    lki_tracking_free(self->tracking);
    lki_free(self->root);
    lki_free(self->experiment);
    lki_free(self->run_name);
    lki_free(self);
    return LK_OK;
}

static char *default_run_name(void)
{
    char text[64];
    struct tm parts;
    time_t now = time(NULL);
    localtime_r(&now, &parts);
    strftime(text, sizeof text, "run-%Y%m%d-%H%M%S", &parts);
    return lki_strdup(text);
}

lk_logger *lk_mlflow_logger_with(const char *root, const lk_logger_options *given)
{
    LKI_TAKE(lk_logger_options, options, given, NULL);
    static const lk_logger_ops ops = {
        LK_SIZE(lk_logger_ops),        .log_metrics = mlflow_log_metrics,   .log_hparams = mlflow_log_hparams,
        .log_image = mlflow_log_image, .log_artifact = mlflow_log_artifact, .ended = mlflow_ended,
        .close = mlflow_close};
    if (!root || !*root) return lki_fail_null(LK_ERR_INVALID, "MLflow logger: no folder");
    if (options.log_batch_metrics)
        return lki_fail_null(LK_ERR_INVALID, "MLflow logger: batches are not logged there: use JSONL or "
                                             "TensorBoard for them");
    if (options.resume_epoch || options.resume_sample)
        return lki_fail_null(LK_ERR_INVALID, "MLflow logger: a run there is not gone on with: a resumed run "
                                             "is a run of its own");
    const char *names[] = {options.experiment, options.run_name};
    for (int i = 0; i < 2; i++)
        if (names[i] && (!*names[i] || strchr(names[i], '\n') || !lki_is_utf8(names[i])))
            return lki_fail_null(LK_ERR_INVALID, "MLflow logger: %s: expected one line of UTF-8 text",
                                 i ? "run_name" : "experiment");
    mlflow_logger *self = LKI_NEW(mlflow_logger);
    if (!self) return NULL;
    self->root = lki_strdup(root);
    self->experiment = lki_strdup(options.experiment ? options.experiment : "Default");
    self->run_name = options.run_name ? lki_strdup(options.run_name) : default_run_name();
    if (!self->root || !self->experiment || !self->run_name) {
        mlflow_close(self);
        return NULL;
    }
    return lk_logger_create(&ops, LK_LOG_EPOCH | LK_LOG_EXPERIMENT, self);
}
