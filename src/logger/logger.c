#include "logger/logger.h"

#include "base/atomic_file.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "tensor/png.h"

#include <stdlib.h>
#include <string.h>

struct lk_logger {
    lk_logger_ops ops;
    const lk_logger_ops *kind; /* where they were copied from: loggers of one kind share it */
    unsigned scopes;
    void *context;
    lki_logger_target target; /* nothing in it: not known */
    lk_metric_value *sorted;  /* the values of a call, in order */
    int sorted_capacity;
};

#undef lk_logger_create /* the header fills in a size that is missing */
lk_logger *lk_logger_create(const lk_logger_ops *given, unsigned scopes, void *context)
{
    lk_logger_ops ops;
    lk_status status = lki_take(&ops, sizeof ops, given, "lk_logger_ops");
    if (status == LK_OK && !ops.log_metrics) status = lki_fail(LK_ERR_INVALID, "a logger needs log_metrics");
    lk_logger *logger = status == LK_OK ? LKI_NEW(lk_logger) : NULL;
    if (!logger) {
        if (ops.close) ops.close(context);
        return NULL;
    }
    logger->ops = ops;
    logger->kind = given;
    logger->scopes = scopes;
    logger->context = context;
    return logger;
}

lk_logger *lki_logger_create_to(const lk_logger_ops *ops, unsigned scopes, void *context,
                                lki_logger_target target)
{
    lk_logger *logger = lk_logger_create(ops, scopes, context);
    if (logger) logger->target = target;
    return logger;
}

bool lki_logger_writes_where(const lk_logger *logger, const lk_logger *other)
{
    if (logger->kind != other->kind) return false;
    if (logger->target.stream) return logger->target.stream == other->target.stream;
    const char *folder = logger->target.folder;
    return folder && lki_is_same_file(folder, other->target.folder);
}

lk_status lk_logger_resume(lk_logger *logger, int64_t epoch_step, int64_t sample_step)
{
    if (!logger) return lki_fail(LK_ERR_INVALID, "logger: NULL was passed");
    return logger->ops.resume ? logger->ops.resume(logger->context, epoch_step, sample_step) : LK_OK;
}

bool lk_logger_wants(const lk_logger *logger, lk_log_scope scope)
{
    return logger && (logger->scopes & scope);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const lk_metric_value *)a)->name, ((const lk_metric_value *)b)->name);
}

static bool is_sorted(lk_metric_values values)
{
    for (int i = 1; i < values.count; i++)
        if (strcmp(values.items[i - 1].name, values.items[i].name) > 0) return false;
    return true;
}

lk_status lk_logger_log_metrics(lk_logger *logger, lk_log_scope scope, const lk_log_step *step,
                                lk_metric_values values)
{
    if (!logger || !step) return lki_fail(LK_ERR_INVALID, "logger: NULL was passed");
    if (!lk_logger_wants(logger, scope)) return LK_OK;
    if (is_sorted(values)) return logger->ops.log_metrics(logger->context, scope, step, values);
    if (values.count > logger->sorted_capacity) {
        size_t nbytes = sizeof *logger->sorted * (size_t)values.count;
        lk_metric_value *grown = lki_realloc(logger->sorted, nbytes, "a logger's values");
        if (!grown) return LK_ERR_NOMEM;
        logger->sorted = grown;
        logger->sorted_capacity = values.count;
    }
    memcpy(logger->sorted, values.items, sizeof *values.items * (size_t)values.count);
    qsort(logger->sorted, (size_t)values.count, sizeof *logger->sorted, by_name);
    values.items = logger->sorted;
    return logger->ops.log_metrics(logger->context, scope, step, values);
}

lk_status lk_logger_log_hparams(lk_logger *logger, const char *json)
{
    if (!logger || !json) return lki_fail(LK_ERR_INVALID, "logger: NULL was passed");
    return logger->ops.log_hparams ? logger->ops.log_hparams(logger->context, json) : LK_OK;
}

lk_status lk_logger_log_image(lk_logger *logger, const lk_log_step *step, const char *tag,
                              const lk_tensor *pixels)
{
    if (!logger || !step || !tag || !pixels) return lki_fail(LK_ERR_INVALID, "logger: NULL was passed");
    if (!logger->ops.log_image) return LK_OK;
    const lk_shape *shape = &pixels->shape;
    if (pixels->dtype != LK_U8 || shape->rank != 3 || (shape->dim[2] != 1 && shape->dim[2] != 3)) {
        char text[160];
        return lki_fail(LK_ERR_SHAPE,
                        "image %s: expected u8 of shape (height, width, 1 or 3), found %s of %s", tag,
                        lk_dtype_name(pixels->dtype), lk_shape_format(text, sizeof text, *shape));
    }
    return logger->ops.log_image(logger->context, step, tag, pixels);
}

lk_status lk_logger_log_image_file(lk_logger *logger, const lk_log_step *step, const char *tag,
                                   const char *path)
{
    if (!logger || !path) return lki_fail(LK_ERR_INVALID, "logger: NULL was passed");
    if (!logger->ops.log_image) return LK_OK;
    lk_tensor *pixels = lki_png_read(path);
    if (!pixels) return lki_last_status();
    lk_status status = lk_logger_log_image(logger, step, tag, pixels);
    lk_tensor_free(pixels);
    return status;
}

lk_status lk_logger_log_artifact(lk_logger *logger, const lk_log_step *step, const char *tag,
                                 const char *path)
{
    if (!logger || !step || !tag || !path) return lki_fail(LK_ERR_INVALID, "logger: NULL was passed");
    return logger->ops.log_artifact ? logger->ops.log_artifact(logger->context, step, tag, path) : LK_OK;
}

lk_status lk_logger_log_histogram(lk_logger *logger, const lk_log_step *step, const char *tag,
                                  const lk_histogram *histogram)
{
    if (!logger || !step || !tag || !histogram) return lki_fail(LK_ERR_INVALID, "logger: NULL was passed");
    if (!logger->ops.log_histogram) return LK_OK;
    for (int i = 0; i < histogram->bucket_count; i++)
        if (!(histogram->limits[i] >= (i ? histogram->limits[i - 1] : histogram->min)))
            return lki_fail(LK_ERR_INVALID, "histogram %s: limit %d is below the one before it", tag, i);
    return logger->ops.log_histogram(logger->context, step, tag, histogram);
}

lk_status lk_logger_log_model(lk_logger *logger, const char *json)
{
    if (!logger || !json) return lki_fail(LK_ERR_INVALID, "logger: NULL was passed");
    return logger->ops.log_model ? logger->ops.log_model(logger->context, json) : LK_OK;
}

lk_status lk_logger_flush(lk_logger *logger)
{
    return logger && logger->ops.flush ? logger->ops.flush(logger->context) : LK_OK;
}

lk_status lk_logger_ended(lk_logger *logger, lk_status status)
{
    return logger && logger->ops.ended ? logger->ops.ended(logger->context, status) : LK_OK;
}

lk_status lk_logger_close(lk_logger *logger)
{
    if (!logger) return LK_OK;
    lk_status status = logger->ops.close ? logger->ops.close(logger->context) : LK_OK;
    lki_free(logger->sorted);
    lki_free(logger);
    return status;
}
