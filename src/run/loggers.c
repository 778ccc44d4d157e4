#include "run/loggers.h"

#include "base/atomic_file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/json_file.h"
#include "logger/csv_logger.h"
#include "logger/logger.h"
#include "run/loop.h"
#include "run/model_file.h"
#include "run/run.h"
#include "run/run_engine.h"
#include "run/run_header.h"
#include "run/run_logdir.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

lk_status lki_run_add_logger(lki_reporting *reporting, lk_logger *logger)
{
    if (!logger) return lki_last_status();
    if (reporting->logger_count == LKI_MAX_LOGGERS) {
        lk_logger_close(logger);
        return lki_fail(LK_ERR_INVALID, "a run has at most %d loggers", LKI_MAX_LOGGERS);
    }
    reporting->loggers[reporting->logger_count++] = logger;
    return LK_OK;
}

/* LOGDIR/log.txt: the header, each loader and each epoch, for every run. */
static lk_status open_log_file(lk_runner *runner)
{
    lki_run *run = runner->run;
    LKI_SCOPED char *path = lki_format("%s/log.txt", run->given.logdir);
    if (!path) return LK_ERR_NOMEM;
    run->reporting.log_file = fopen(path, runner->epoch_step ? "a" : "w");
    return run->reporting.log_file ? LK_OK : lki_fail(LK_ERR_IO, "%s: %s", path, strerror(errno));
}

/* A text that does not fit onto the disk may fail when it is printed, or when it is flushed. */
static lk_status flush_log_file(const lki_run *run)
{
    FILE *file = run->reporting.log_file;
    if (!file || (!ferror(file) && fflush(file) == 0)) return LK_OK;
    return lki_fail(LK_ERR_IO, "%s/log.txt: could not write: %s", run->given.logdir, strerror(errno));
}

/* A log that cannot be gone on with is found before an epoch is trained for it. */
static lk_status check_logs(const lk_runner *runner)
{
    const lki_run *run = runner->run;
    if (lki_run_epochs_done(runner) == 0) return LK_OK; /* they start afresh */
    for (int i = 0; i < run->loaders.count; i++)
        LKI_TRY(lki_csv_logger_check(run->given.logdir, run->loaders.items[i].key));
    return lki_csv_logger_check(run->given.logdir, "_epoch_");
}

/* Two writers of the same files would undo each other's work: what was given stands for the run's own. */
static lk_status add_unless_given(lki_reporting *reporting, lk_logger *logger)
{
    for (int i = 0; i < reporting->logger_count && logger; i++)
        if (lki_logger_writes_where(reporting->loggers[i], logger)) return lk_logger_close(logger);
    return lki_run_add_logger(reporting, logger);
}

/* A console logger that was given prints the epochs to stdout in its own way. */
static lk_status look_for_console(lk_runner *runner)
{
    lki_run *run = runner->run;
    lk_logger_options options = {LK_SIZE(lk_logger_options)};
    lk_logger *console = lk_console_logger_with(&options);
    for (int i = 0; i < run->reporting.logger_count && console; i++)
        if (lki_logger_writes_where(run->reporting.loggers[i], console)) run->screen.has_epochs = true;
    return console ? lk_logger_close(console) : lki_last_status();
}

static lk_status add_default_loggers(lk_runner *runner)
{
    lki_run *run = runner->run;
    lk_logger_options options = {LK_SIZE(lk_logger_options)};
    if (!run->given.logdir) return LK_OK;
    LKI_TRY(check_logs(runner));
    LKI_TRY(lki_make_folders(run->given.logdir));
    LKI_TRY(open_log_file(runner));
    LKI_TRY(lki_run_add_logger(&run->reporting, lk_console_logger_with(LK_OPTIONS(
                                                    lk_logger_options, .stream = run->reporting.log_file))));
    run->reporting.text_logger = run->reporting.loggers[run->reporting.logger_count - 1];
    LKI_TRY(add_unless_given(&run->reporting, lk_csv_logger_with(run->given.logdir, &options)));
    return add_unless_given(&run->reporting, lk_tensorboard_logger_with(run->given.logdir, &options));
}

/* What was logged up to where a resumed run goes on stays; what came after it is dropped. */
static lk_status resume_loggers(const lk_runner *runner)
{
    const lki_run *run = runner->run;
    int64_t epoch = lki_run_epochs_done(runner);
    if (epoch == 0 && runner->sample_step == 0) return LK_OK;
    for (int i = 0; i < run->reporting.logger_count; i++)
        LKI_TRY(lk_logger_resume(run->reporting.loggers[i], epoch, runner->sample_step));
    return LK_OK;
}

/* What the run was made with, and what the user wants to be kept with it. */
static json_t *collect_hparams(const lk_runner *runner)
{
    const lki_run *run = runner->run;
    const lk_hparam_list *given = &run->given.options.hparams;
    json_t *object = json_object();
    if (!object) return NULL;
    json_object_set_new(object, "seed", json_integer((json_int_t)runner->seed));
    json_object_set_new(object, "num_epochs", json_integer(runner->num_epochs));
    json_object_set_new(object, "batch_size",
                        json_integer(lk_loader_batch_size(run->loaders.items[0].loader)));
    json_object_set_new(object, "world_size", json_integer(runner->world_size));
    json_object_set_new(object, "device", json_string(lk_engine_name(runner->engine)));
    json_object_set_new(object, "valid_loader", json_string(runner->valid_loader));
    json_object_set_new(object, "valid_metric", json_string(runner->valid_metric));
    if (runner->model)
        json_object_set_new(object, "parameters", json_integer(lk_module_param_count(runner->model)));
    if (runner->criterion)
        json_object_set_new(object, "criterion", json_string(lk_criterion_type(runner->criterion)));
    if (runner->optimizer) {
        int group = lk_optimizer_group_count(runner->optimizer) - 1;
        json_object_set_new(object, "optimizer", json_string(lk_optimizer_name(runner->optimizer)));
        json_object_set_new(object, "lr", json_real(lk_optimizer_lr(runner->optimizer, group)));
    }
    if (runner->scheduler)
        json_object_set_new(object, "scheduler", json_string(lk_scheduler_name(runner->scheduler)));
    for (int i = 0; i < given->count; i++)
        json_object_set_new(object, given->items[i].name, json_string(given->items[i].value));
    return object;
}

static lk_status write_hparams(lk_runner *runner)
{
    lki_run *run = runner->run;
    json_t *object = collect_hparams(runner);
    char *text = object ? json_dumps(object, JSON_INDENT(2)) : NULL;
    json_decref(object);
    if (!text) return lki_fail(LK_ERR_INVALID, "hparams: names and values must be UTF-8 text");
    lk_status status = LK_OK;
    for (int i = 0; i < run->reporting.logger_count && !status; i++)
        status = lk_logger_log_hparams(run->reporting.loggers[i], text);
    free(text);
    return status;
}

static lk_status write_config(const lki_run *run)
{
    if (!run->given.logdir || !run->given.options.config_text) return LK_OK;
    LKI_SCOPED char *path = lki_format("%s/config.yml", run->given.logdir);
    if (!path) return LK_ERR_NOMEM;
    return lki_write_file_atomic(path, run->given.options.config_text,
                                 strlen(run->given.options.config_text));
}

/* The same text goes to the screen and to log.txt, but for the table of layers. */
static lk_status print_header(const lk_runner *runner, const char *gpus)
{
    const lki_run *run = runner->run;
    char *text = NULL;
    size_t nbytes;
    FILE *stream = open_memstream(&text, &nbytes);
    if (!stream) return lki_fail(LK_ERR_NOMEM, "the header: %s", strerror(errno));
    lki_header_print(stream, runner, gpus, runner->verbose);
    fclose(stream);
    lki_screen_header(runner, text);
    free(text);
    if (run->reporting.log_file) lki_header_print(run->reporting.log_file, runner, gpus, true);
    return flush_log_file(run);
}

lk_status lki_report_run_start(lk_runner *runner)
{
    lki_run *run = runner->run;
    char gpus[256];
    LKI_TRY(lki_run_describe_gpus(runner, gpus, sizeof gpus));
    if (!runner->is_master) return LK_OK;
    if (run->given.logdir) LKI_TRY(lki_logdir_set_aside(runner, run->given.logdir));
    LKI_TRY(look_for_console(runner));
    LKI_TRY(add_default_loggers(runner));
    LKI_TRY(resume_loggers(runner));
    LKI_TRY(lki_vitals_open(runner));
    for (int i = 0; i < run->reporting.logger_count; i++)
        run->reporting.wants_batch_metrics =
            run->reporting.wants_batch_metrics || lk_logger_wants(run->reporting.loggers[i], LK_LOG_BATCH);
    LKI_TRY(write_hparams(runner));
    LKI_TRY(write_config(run));
    LKI_TRY(lki_run_write_model(runner));
    LKI_TRY(print_header(runner, gpus));
    lki_header_warn_of_idle_options(runner, *gpus != 0);
    if (runner->epoch_step > 0 && !lki_run_has_epochs_left(runner)) lki_header_nothing_left(runner);
    return LK_OK;
}

static lk_log_step log_step(const lk_runner *runner, const char *key)
{
    return (lk_log_step){.loader_key = key,
                         .epoch_step = runner->epoch_step,
                         .epoch_count = runner->num_epochs,
                         .batch_step = runner->batch_step,
                         .sample_step = runner->sample_step,
                         .loader_batch_step = runner->loader_batch_step,
                         .loader_batch_count = runner->loader_batch_len};
}

lk_status lki_report_image(lk_runner *runner, const char *tag, const lk_tensor *pixels)
{
    lki_run *run = runner->run;
    lk_log_step step = log_step(runner, runner->loader_key);
    for (int i = 0; i < run->reporting.logger_count; i++)
        LKI_TRY(lk_logger_log_image(run->reporting.loggers[i], &step, tag, pixels));
    return LK_OK;
}

lk_status lki_report_histogram(lk_runner *runner, const char *tag, const lk_histogram *histogram)
{
    lki_run *run = runner->run;
    lk_log_step step = log_step(runner, runner->loader_key);
    for (int i = 0; i < run->reporting.logger_count; i++)
        LKI_TRY(lk_logger_log_histogram(run->reporting.loggers[i], &step, tag, histogram));
    return LK_OK;
}

/* The console's logger does not know that its stream is a file. */
static lk_status in_log_file(const lki_run *run, const lk_logger *logger, lk_status status)
{
    return status && logger == run->reporting.text_logger
               ? lki_fail_prefix(status, "%s/log.txt", run->given.logdir)
               : status;
}

static lk_status log_metrics(lk_runner *runner, lk_log_scope scope, const char *key,
                             const lk_metrics *metrics)
{
    enum { MAX_VALUES = 1024 };
    lk_metric_value values[MAX_VALUES];
    lki_run *run = runner->run;
    int count = lk_metrics_count(metrics);
    if (count > MAX_VALUES) count = MAX_VALUES;
    for (int i = 0; i < count; i++)
        values[i] = (lk_metric_value){lk_metrics_name(metrics, i), lk_metrics_value(metrics, i)};
    lk_log_step step = log_step(runner, key);
    for (int i = 0; i < run->reporting.logger_count; i++)
        if (lk_logger_wants(run->reporting.loggers[i], scope))
            LKI_TRY(in_log_file(run, run->reporting.loggers[i],
                                lk_logger_log_metrics(run->reporting.loggers[i], scope, &step,
                                                      (lk_metric_values){values, count})));
    return LK_OK;
}

lk_status lki_report_batch(lk_runner *runner)
{
    return log_metrics(runner, LK_LOG_BATCH, runner->loader_key, runner->batch_metrics);
}

lk_status lki_report_loader(lk_runner *runner)
{
    return runner->is_master ? log_metrics(runner, LK_LOG_LOADER, runner->loader_key, runner->loader_metrics)
                             : LK_OK;
}

lk_status lki_report_flush(const lk_runner *runner)
{
    const lki_run *run = runner->run;
    for (int i = 0; i < run->reporting.logger_count; i++)
        LKI_TRY(in_log_file(run, run->reporting.loggers[i], lk_logger_flush(run->reporting.loggers[i])));
    return flush_log_file(run);
}

lk_status lki_report_epoch(lk_runner *runner)
{
    lki_run *run = runner->run;
    if (!runner->is_master) return LK_OK;
    for (int i = 0; i < run->loaders.count; i++)
        if (run->loaders.items[i].has_metrics)
            LKI_TRY(
                log_metrics(runner, LK_LOG_EPOCH, run->loaders.items[i].key, run->loaders.items[i].metrics));
    LKI_TRY(log_metrics(runner, LK_LOG_EPOCH, "_epoch_", runner->epoch_metrics));
    LKI_TRY(lki_report_flush(runner));
    LKI_TRY(lki_epoch_table_add(&run->reporting.table, runner));
    lki_screen_epoch(runner);
    return LK_OK;
}

lk_status lki_report_run_end(lk_runner *runner)
{
    lki_run *run = runner->run;
    lk_status first = LK_OK;
    if (runner->is_master) lki_screen_end(runner);
    if (run->reporting.log_file)
        lki_epoch_table_print(run->reporting.log_file, &run->reporting.table, runner, 0);
    lki_profile_print(runner);
    fflush(stdout);
    first = flush_log_file(run);
    for (int i = 0; i < run->reporting.logger_count; i++) {
        lk_status status = lk_logger_ended(run->reporting.loggers[i], LK_OK);
        lk_status closed = lk_logger_close(run->reporting.loggers[i]);
        if (!first) first = status ? status : closed;
    }
    run->reporting.logger_count = 0;
    lk_status closed = lki_vitals_close(&run->vitals);
    if (!first) first = closed;
    lki_run_close_log(&run->reporting);
    return first;
}

/* The run has failed already: what a logger has to say of that is nobody's. */
void lki_report_failure(lk_runner *runner, lk_status status)
{
    const lki_reporting *reporting = &runner->run->reporting;
    for (int i = 0; runner->is_master && i < reporting->logger_count; i++)
        (void)lk_logger_ended(reporting->loggers[i], status);
}

void lki_run_close_log(lki_reporting *reporting)
{
    if (reporting->log_file) fclose(reporting->log_file);
    reporting->log_file = NULL;
}
