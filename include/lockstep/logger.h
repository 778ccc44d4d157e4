/* Loggers: where a run's metrics go.
 *
 * What is handed to a runner belongs to it; without one, call the functions below and lk_logger_close at the
 * end. Writing is buffered: a value reaches the file at the next flush, at the latest when the epoch ends.
 * What an earlier run left is replaced or continued when the first value comes, not before. A logger belongs
 * to one thread. To write your own, see <lockstep/sys/logger.h>. */
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
    bool log_batch_metrics;    /* log every batch too (TensorBoard, JSONL) */
    bool no_log_epoch_metrics; /* do not log epochs (TensorBoard) */
    bool hparams;              /* a line with the run's settings when it starts (console) */
    int64_t resume_epoch; /* continue files that exist: keep what was logged up to this epoch, drop what came
                             later; 0 starts afresh */
    int64_t
        resume_sample; /* the same for what was logged per batch: the samples seen when the run was saved */
    FILE *stream;      /* console: stdout where NULL */
} lk_logger_options;

/* "train (1/8) accuracy01: 0.8583 | loss: 1.2826" after each loader, "* Epoch (1/8) …" after each epoch. */
#define lk_console_logger(...) LK_CALL0_(lk_console_logger_with, lk_logger_options, __VA_ARGS__)
lk_logger *lk_console_logger_with(const lk_logger_options *options);

/* LOGDIR/csv_logger/{train,valid,_epoch_}.csv, one row an epoch, and LOGDIR/hparams.json. */
#define lk_csv_logger(...) LK_CALL1_(lk_csv_logger_with, lk_logger_options, __VA_ARGS__, )
lk_logger *lk_csv_logger_with(const char *logdir, const lk_logger_options *options);

/* LOGDIR/tensorboard/{train,valid,_epoch_}/events.out.tfevents.*, tags "loss/epoch" (step = epoch) and
 * "loss/batch" (step = samples); pictures too. */
#define lk_tensorboard_logger(...) LK_CALL1_(lk_tensorboard_logger_with, lk_logger_options, __VA_ARGS__, )
lk_logger *lk_tensorboard_logger_with(const char *logdir, const lk_logger_options *options);

/* One JSON object a line, in the file PATH. Runs that follow each other in one program may share it, but a
 * run that is resumed drops what is later than its place, whoever logged it: give those that are a file each.
 */
#define lk_jsonl_logger(...) LK_CALL1_(lk_jsonl_logger_with, lk_logger_options, __VA_ARGS__, )
lk_logger *lk_jsonl_logger_with(const char *path, const lk_logger_options *options);

/* The same as resume_epoch and resume_sample of the options, before anything is logged. A runner that is
 * resumed calls it for every logger that it was given. */
lk_status lk_logger_resume(lk_logger *logger, int64_t epoch_step, int64_t sample_step);

/* Whether the logger wants values of this scope. */
bool lk_logger_wants(const lk_logger *logger, lk_log_scope scope);

/* What a runner calls. Values may come in any order; a scope that the logger does not want is fine and does
 * nothing. */
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
lk_status lk_logger_flush(lk_logger *logger);
/* Flushes and frees; NULL is fine. */
lk_status lk_logger_close(lk_logger *logger);

#ifdef __cplusplus
}
#endif
#endif
