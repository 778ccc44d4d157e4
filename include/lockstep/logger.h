/* Loggers: where the metrics of a run go.
 *
 * Life: a logger that is handed to a runner belongs to it. Otherwise call the functions below
 * yourself, and lk_logger_close at the end. Writing is buffered: a value reaches the file at the
 * next flush, at the latest at the end of the epoch. A logger replaces or continues the files of
 * an earlier run when the first value arrives, not before. Constructors return NULL on failure.
 * Threads: a logger belongs to one thread.
 *
 * To write your own logger, see <lockstep/sys/logger.h>. */
#ifndef LOCKSTEP_LOGGER_H
#define LOCKSTEP_LOGGER_H

#include <lockstep/arguments.h>
#include <lockstep/sys/logger.h>

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lk_logger_options {
    size_t struct_size;
    bool log_batch_metrics;    /* also logs every batch (TensorBoard, JSONL) */
    bool no_log_epoch_metrics; /* does not log epochs (TensorBoard) */
    bool hparams;              /* prints the settings of the run at its start (console) */
    /* Continues existing files: keeps what was logged up to this epoch and drops the rest. 0
     * starts new files. */
    int64_t resume_epoch;
    /* The same for values per batch: the number of samples seen when the run was saved. */
    int64_t resume_sample;
    FILE *stream;                      /* console: NULL means stdout */
    const char *experiment, *run_name; /* MLflow: "Default", and a name made of the time */
} lk_logger_options;

/* "train (1/8) accuracy01: 0.8583 | loss: 1.2826" after each loader, "* Epoch (1/8) …" after each
 * epoch. */
#define lk_console_logger(...) LK_CALL0_(lk_console_logger_with, lk_logger_options, __VA_ARGS__)
lk_logger *lk_console_logger_with(const lk_logger_options *options);

/* LOGDIR/csv_logger/{train,valid,_epoch_}.csv with one row per epoch, and LOGDIR/hparams.json.
 * The column "time" is in seconds since the epoch. */
#define lk_csv_logger(...) LK_CALL1_(lk_csv_logger_with, lk_logger_options, __VA_ARGS__, )
lk_logger *lk_csv_logger_with(const char *logdir, const lk_logger_options *options);

/* LOGDIR/tensorboard/{train,valid,_epoch_}/events.out.tfevents.* with the tags "loss/epoch" (step
 * = epoch) and "loss/batch" (step = samples), pictures and histograms; and beside these folders the
 * settings, for the page HPARAMS, and the graph of the model. */
#define lk_tensorboard_logger(...) LK_CALL1_(lk_tensorboard_logger_with, lk_logger_options, __VA_ARGS__, )
lk_logger *lk_tensorboard_logger_with(const char *logdir, const lk_logger_options *options);

/* One JSON object per line in the file PATH. Successive runs of one program may share the file. A
 * resumed run drops all lines that are later than its position, whichever run wrote them, so give
 * runs that may be resumed a file each. */
#define lk_jsonl_logger(...) LK_CALL1_(lk_jsonl_logger_with, lk_logger_options, __VA_ARGS__, )
lk_logger *lk_jsonl_logger_with(const char *path, const lk_logger_options *options);

/* MLflow's file store in the folder ROOT ("mlruns"): one run with its settings as params, its
 * values as metrics ("train/loss", step = epoch) and its pictures as artifacts. `experiment` names
 * the experiment ("Default"), `run_name` the run. */
#define lk_mlflow_logger(...) LK_CALL1_(lk_mlflow_logger_with, lk_logger_options, __VA_ARGS__, )
lk_logger *lk_mlflow_logger_with(const char *root, const lk_logger_options *options);

/* Does what resume_epoch and resume_sample do, before anything is logged. A resumed runner calls
 * it for each of its loggers. */
lk_status lk_logger_resume(lk_logger *logger, int64_t epoch_step, int64_t sample_step);

/* Returns whether the logger takes values of this scope. */
bool lk_logger_wants(const lk_logger *logger, lk_log_scope scope);

/* What a runner calls. Values may come in any order. A scope that the logger does not take is
 * allowed and has no effect. All arguments are borrowed for the call. */
lk_status lk_logger_log_metrics(lk_logger *logger, lk_log_scope scope, const lk_log_step *step,
                                lk_metric_values values);
lk_status lk_logger_log_hparams(lk_logger *logger, const char *json);
lk_status lk_logger_log_image(lk_logger *logger, const lk_log_step *step, const char *tag,
                              const lk_tensor *pixels);
/* The same for a PNG file. */
lk_status lk_logger_log_image_file(lk_logger *logger, const lk_log_step *step, const char *tag,
                                   const char *path);
lk_status lk_logger_log_artifact(lk_logger *logger, const lk_log_step *step, const char *tag,
                                 const char *path);
lk_status lk_logger_log_histogram(lk_logger *logger, const lk_log_step *step, const char *tag,
                                  const lk_histogram *histogram);
lk_status lk_logger_log_model(lk_logger *logger, const char *json);
lk_status lk_logger_flush(lk_logger *logger);
/* Says what became of the run. Call it before lk_logger_close. */
lk_status lk_logger_ended(lk_logger *logger, lk_status status);
/* Flushes and frees the logger. NULL is allowed. */
lk_status lk_logger_close(lk_logger *logger);

#ifdef __cplusplus
}
#endif
#endif
