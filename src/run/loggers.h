/* What a run tells its loggers: the ones it was given and those it adds by itself. */
#ifndef LKI_RUN_LOGGERS_H
#define LKI_RUN_LOGGERS_H

#include <lockstep/runner.h>

#include "run/epoch_table.h"

#include <stdio.h>

enum { LKI_MAX_LOGGERS = 16 };

typedef struct lki_reporting {
    lk_logger *loggers[LKI_MAX_LOGGERS];
    int logger_count;
    lki_epoch_table table;
    char *notes;              /* lines of the header about what setup has decided; NULL for none */
    FILE *log_file;           /* LOGDIR/log.txt, on the master */
    lk_logger *text_logger;   /* the one that writes it */
    bool wants_batch_metrics; /* a logger writes batches down */
    int logdir_lock;          /* run_logdir.h; -1 for none */
} lki_reporting;

/* Takes the logger over, also when it fails. */
lk_status lki_run_add_logger(lki_reporting *reporting, lk_logger *logger_owned);
lk_status lki_report_run_start(lk_runner *runner);
/* The metrics of the batch, on the master, if wants_batch_metrics. */
lk_status lki_report_batch(lk_runner *runner);
lk_status lki_report_loader(lk_runner *runner);
/* A picture (height, width, 1 or 3) of u8 of the loader that runs. */
lk_status lki_report_image(lk_runner *runner, const char *tag, const lk_tensor *pixels);
lk_status lki_report_histogram(lk_runner *runner, const char *tag, const lk_histogram *histogram);
lk_status lki_report_epoch(lk_runner *runner);
/* What was logged so far is readable by others. */
lk_status lki_report_flush(const lk_runner *runner);
lk_status lki_report_run_end(lk_runner *runner);
/* The same for one that has failed, or was stopped. Its loggers are closed when the runner lets go of it. */
void lki_report_failure(lk_runner *runner, lk_status status);
void lki_run_close_log(lki_reporting *reporting);

#endif
