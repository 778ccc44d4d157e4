/* What a logger is to those who write one.
 *
 * A logger receives what a run reports: implement lk_logger_ops over a context of your own and hand
 * both to lk_logger_create. The runner owns its loggers and calls them from one thread, on rank 0
 * alone. A logger that fails reports it through lk_status; the run goes on and says so once. */
#ifndef LOCKSTEP_SYS_LOGGER_H
#define LOCKSTEP_SYS_LOGGER_H

#include <lockstep/metric.h>
#include <lockstep/sized.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What the values are over. A set of scopes is their sum. */
typedef enum lk_log_scope {
    LK_LOG_BATCH = 1,     /* one batch of step->loader_key */
    LK_LOG_LOADER = 2,    /* one pass over step->loader_key */
    LK_LOG_EPOCH = 4,     /* the end of an epoch: once per loader, then for "_epoch_" */
    LK_LOG_EXPERIMENT = 8 /* the whole run; no loader */
} lk_log_scope;

/* Where the run stands. Steps count from 1 and are over the whole run, resumed parts included. */
typedef struct lk_log_step {
    const char *loader_key; /* "train", "valid", …, "_epoch_"; NULL for the experiment */
    int64_t epoch_step, epoch_count;
    int64_t batch_step, sample_step;
    int64_t loader_batch_step, loader_batch_count; /* LK_LENGTH_UNKNOWN for a stream */
} lk_log_step;

/* How numbers are spread: counts[i] of them lie above limits[i - 1] (or at min, for the first) and
 * not above limits[i]. Limits grow; the last one is max. Numbers that are not finite are left out.
 */
typedef struct lk_histogram {
    double min, max, sum, sum_squares;
    int64_t count;
    int bucket_count;
    const double *limits, *counts;
} lk_histogram;

typedef struct lk_logger_ops {
    size_t struct_size;
    /* Required. Values are sorted by name, and belong to the caller as everything here does. */
    lk_status (*log_metrics)(void *context, lk_log_scope scope, const lk_log_step *step,
                             lk_metric_values values);

    /* Optional. The run's settings as one JSON object. */
    lk_status (*log_hparams)(void *context, const char *json);

    /* Optional. A picture: u8 of shape (height, width, 1 or 3). */
    lk_status (*log_image)(void *context, const lk_log_step *step, const char *tag, const lk_tensor *pixels);

    /* Optional. A file that the run has written. */
    lk_status (*log_artifact)(void *context, const lk_log_step *step, const char *tag, const char *path);

    /* Optional. Everything logged so far must be readable by others when this returns. Called after
     * every epoch. */
    lk_status (*flush)(void *context);

    /* Optional. Flushes, and frees the context, also where it fails. Called once. */
    lk_status (*close)(void *context);

    /* Optional. The run goes on with an earlier one: what that logged up to this epoch, and up to
     * this sample what it logged per batch, is to stay, and what came later to go, for it will be
     * logged again. Called at most once, before anything is logged; without it the run is a new
     * one. A logger that replaces what it finds does so when it is first given something to log,
     * and not earlier: a run may fail to start, and other ranks have the logger, too, without ever
     * using it. */
    lk_status (*resume)(void *context, int64_t epoch_step, int64_t sample_step);
    /* Optional. What became of the run, just before close: LK_OK, LK_ERR_STOPPED after a signal
     * that ended it in order, or why it failed. A run that is killed says nothing. */
    lk_status (*ended)(void *context, lk_status status);
    /* Optional. How a parameter's values or gradients are spread. */
    lk_status (*log_histogram)(void *context, const lk_log_step *step, const char *tag,
                               const lk_histogram *histogram);
    /* Optional. The model, before its first batch, as the JSON object of LOGDIR/model.json: the
     * "layers" (path, type, shape, parameters) and "nodes" (name, op, layer, inputs, shape, dtype),
     * each node after those it reads. */
    lk_status (*log_model)(void *context, const char *json);
} lk_logger_ops;

typedef struct lk_logger lk_logger;

/* A logger over `context`, which it owns from here on, also when NULL is returned. The ops are
 * copied and need no size. It is called for the given scopes only: a logger that leaves
 * LK_LOG_BATCH out costs nothing per batch. */
lk_logger *lk_logger_create(const lk_logger_ops *ops, unsigned scopes, void *context);
#ifndef __cplusplus
LK_TAKES_SIZED_(lk_logger_ops)
static inline lk_logger *lk_logger_create_sized_(const lk_logger_ops *ops, unsigned scopes, void *context)
{
    lk_logger_ops room;
    return lk_logger_create(lk_logger_ops_at_(ops, &room), scopes, context);
}
#define lk_logger_create lk_logger_create_sized_
#endif

#ifdef __cplusplus
}
#endif
#endif
