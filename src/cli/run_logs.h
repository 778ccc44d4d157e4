/* The logs of a run as `lockstep watch` reads them: the values of each epoch from LOGDIR/csv_logger, and from
 * hparams.json which metric decides. A run may be writing: a last line without its newline is left for the
 * next time. */
#ifndef LKI_CLI_RUN_LOGS_H
#define LKI_CLI_RUN_LOGS_H

#include <lockstep/status.h>

#include <stdbool.h>
#include <stdint.h>

enum { LKI_MAX_LOGS = 16 };

/* A column of a file: one value per row, NaN where there is none. */
typedef struct lki_log_column {
    char *name;
    double *values;
} lki_log_column;

/* LOGDIR/csv_logger/KEY.csv. */
typedef struct lki_log {
    char *key;
    double *epochs;
    int64_t row_count, row_capacity;
    lki_log_column *columns;
    int column_count;
} lki_log;

typedef struct lki_run_logs {
    lki_log logs[LKI_MAX_LOGS]; /* train loaders first, then the others; "_epoch_" last */
    int count;
    char *valid_loader, *valid_metric; /* NULL: not known */
    int64_t num_epochs;                /* 0: not known */
    int64_t epochs_done;
    bool is_running;
} lki_run_logs;

/* Fails if there is no logdir, or none of a run; *out is then zero. A run that has begun and has no epoch yet
 * has no logs. */
lk_status lki_run_logs_read(lki_run_logs *out, const char *logdir);
void lki_run_logs_fini(lki_run_logs *logs);

/* The column of that name; NULL if there is none. */
const double *lki_log_values(const lki_log *log, const char *name);

#endif
