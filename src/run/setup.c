/* Setting a run up: taking over what lk_train was given, filling in what was not, and undoing it. */
#include "run/setup.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "launch/restart.h"
#include "optim/scheduler.h"
#include "resume/kept_optimizer.h"
#include "resume/run_terms.h"
#include "run/check_options.h"
#include "run/custom_runner.h"
#include "run/fit_data.h"
#include "run/loop.h"
#include "run/run.h"
#include "run/run_logdir.h"
#include "run/same_run.h"
#include "run/signals.h"
#include "run/study_link.h"

#include <lockstep/callback.h>

#include <string.h>

enum { CHECK_BATCHES = 3, CHECK_EPOCHS = 3 };

/* ---- Taking over. Each of these owns what it is given, also when it fails. ---- */

/* Takes everything, and remembers the first failure: nothing that was handed over may leak. */
static lk_status take_lists(lk_runner *runner, const lk_train_options *options)
{
    lki_error first = {0};
    for (int i = 0; i < options->loaders.count; i++)
        lki_error_keep(&first, lki_run_add_loader(&runner->run->loaders, options->loaders.items[i].key,
                                                  options->loaders.items[i].loader));
    for (int i = 0; i < options->callbacks.count; i++)
        lki_error_keep(&first, lki_run_add_callback(runner, options->callbacks.items[i]));
    for (int i = 0; i < options->loggers.count; i++)
        lki_error_keep(&first, lki_run_add_logger(&runner->run->reporting, options->loggers.items[i]));
    return lki_error_restore(&first);
}

/* The step was compiled for the runner's parts. What its optimizer has learned goes on with another
 * criterion, but not with another optimizer or model. */
static lk_status let_go_of_step(lk_runner *runner, const lk_train_options *options)
{
    if ((options->model && options->model != runner->model) ||
        (options->optimizer && options->optimizer != runner->optimizer))
        lki_step_drop(&runner->step, &runner->run->batch.kept);
    bool other_criterion = options->criterion && options->criterion != runner->criterion;
    return other_criterion ? lki_step_save_kept(&runner->step, &runner->run->batch.kept) : LK_OK;
}

/* A part that is given again replaces the runner's. */
static void take_parts(lk_runner *runner, const lk_train_options *options)
{
    if (options->optimizer && options->optimizer != runner->optimizer && !options->scheduler) {
        lk_scheduler_free(runner->scheduler); /* it was the old optimizer's */
        runner->scheduler = NULL;
    }
#define REPLACE(name, free_it)                                                                               \
    if (options->name && options->name != runner->name) {                                                    \
        free_it(runner->name);                                                                               \
        runner->name = options->name;                                                                        \
    }
    REPLACE(model, lk_module_free)
    REPLACE(criterion, lk_criterion_free)
    REPLACE(optimizer, lk_optimizer_free)
    REPLACE(scheduler, lk_scheduler_free)
#undef REPLACE
}

/* ---- What was not given ---- */

static bool has_callback(const lki_run *run, const char *name)
{
    for (int i = 0; i < run->listeners.count; i++)
        if (strcmp(run->listeners.callbacks[i]->ops->name, name) == 0) return true;
    return false;
}

static lk_status add_default_callbacks(lk_runner *runner)
{
    lki_run *run = runner->run;
    LKI_TRY(lki_screen_setup(runner));
    bool own_batches = runner->ops && runner->ops->handle_batch;
    if (runner->criterion && !own_batches && !has_callback(run, "Criterion"))
        LKI_TRY(lki_run_add_callback(runner, lk_criterion_callback()));
    if (run->evaluating && run->given.options.verbose && !has_callback(run, "Progress"))
        LKI_TRY(lki_run_add_callback(runner, lk_progress_callback()));
    if (run->evaluating) return LK_OK;
    if (lki_study_watches(run->given.logdir) && !has_callback(run, "OptunaPruning"))
        LKI_TRY(lki_run_add_callback(runner, lk_optuna_pruning_callback()));
    if (runner->optimizer && !has_callback(run, "Optimizer"))
        LKI_TRY(lki_run_add_callback(runner, lk_optimizer_callback()));
    if (runner->scheduler && !has_callback(run, "Scheduler"))
        LKI_TRY(lki_run_add_callback(runner, lk_scheduler_callback()));
    if (run->given.options.timeit && !has_callback(run, "Timer"))
        LKI_TRY(lki_run_add_callback(runner, lk_timer_callback()));
    bool keep = run->given.logdir && !run->given.options.no_checkpoints && !run->given.options.check &&
                !run->given.options.overfit;
    if (has_callback(run, "SkipCheckpoint")) keep = false;
    if ((keep || run->given.resume) && !has_callback(run, "Checkpoint"))
        LKI_TRY(lki_run_add_callback(
            runner, lk_checkpoint_callback(.logdir = run->given.logdir, .resume_runner = run->given.resume,
                                           .load_best_on_end = run->given.options.load_best_on_end)));
    return LK_OK;
}

static lk_status copy_text(char **out, const char *text)
{
    *out = lki_strdup(text);
    return text && !*out ? LK_ERR_NOMEM : LK_OK;
}

static lk_status keep_texts(lk_runner *runner, const lk_train_options *options)
{
    lki_run *run = runner->run;
    /* Its paths are kept in JSON, with the list of the best checkpoints. */
    if (options->logdir && !lki_is_utf8(options->logdir))
        return lki_fail(LK_ERR_INVALID, "logdir: the path \"%s\" is not UTF-8", options->logdir);
    if (options->overwrite && !options->logdir)
        return lki_fail(LK_ERR_INVALID, "overwrite: there is no logdir whose files could be replaced");
    if (options->overwrite && (options->resume || options->autoresume))
        return lki_fail(LK_ERR_INVALID,
                        "overwrite and %s exclude each other: a run that goes on keeps its files",
                        options->resume ? "resume" : "autoresume");
    LKI_TRY(copy_text(&run->given.logdir, options->logdir));
    LKI_TRY(copy_text(&run->given.valid_loader, options->valid_loader));
    LKI_TRY(copy_text(&run->given.valid_metric,
                      options->valid_metric ? options->valid_metric : runner->loss_key));
    LKI_TRY(copy_text(&run->given.device, options->device ? options->device : "auto"));
    LKI_TRY(copy_text(&run->given.resume, options->resume));
    runner->logdir = run->given.logdir;
    runner->valid_metric = run->given.valid_metric;
    return LK_OK;
}

static lk_status choose_valid_loader(lk_runner *runner)
{
    lki_run *run = runner->run;
    if (run->loaders.count == 0) return lki_fail(LK_ERR_INVALID, "there are no loaders to train from");
    if (run->given.valid_loader && lki_run_find_loader(&run->loaders, run->given.valid_loader) < 0)
        return lki_fail(LK_ERR_NOT_FOUND, "valid_loader: there is no loader named \"%s\"",
                        run->given.valid_loader);
    runner->valid_loader = run->given.valid_loader ? run->given.valid_loader : run->loaders.items[0].key;
    for (int i = 0; i < run->loaders.count; i++) run->loaders.items[i].repeat = run->given.options.overfit;
    return LK_OK;
}

static lk_status parse_precision(const char *name, lk_dtype *out)
{
    static const struct {
        const char *name;
        lk_dtype dtype;
    } known[] = {{"fp32", LK_F32}, {"f32", LK_F32}, {"bf16", LK_BF16}, {"fp16", LK_F16}, {"f16", LK_F16}};
    *out = LK_F32;
    if (!name) return LK_OK;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(name, known[i].name) != 0) continue;
        *out = known[i].dtype;
        return LK_OK;
    }
    return lki_fail(LK_ERR_INVALID, "precision: expected fp32, bf16 or fp16, found \"%s\"", name);
}

static void set_numbers(lk_runner *runner, const lk_train_options *options)
{
    lki_run *run = runner->run;
    run->given.options = *options;
    run->given.options.loaders = (lk_loader_list){0};
    run->given.options.callbacks = (lk_callback_list){0};
    run->given.options.loggers = (lk_logger_list){0};
    run->loaders.batch_limit = options->check ? CHECK_BATCHES : options->overfit ? 1 : 0;
    runner->num_epochs = options->num_epochs ? options->num_epochs : 1;
    if (options->check && runner->num_epochs > CHECK_EPOCHS) runner->num_epochs = CHECK_EPOCHS;
    runner->minimize_valid_metric = options->minimize_valid_metric || !options->valid_metric;
    runner->epoch_step = runner->batch_step = runner->sample_step = 0;
    runner->need_early_stop = false;
    runner->exception = LK_OK;
    /* Where no seed is given the generator goes on from where building the model left it, as PyTorch's does.
     */
    if (options->seed) lk_manual_seed(options->seed);
    runner->seed = lk_default_generator()->seed;
}

lk_status lki_run_setup(lk_runner *runner, lk_train_options *options)
{
    lki_run *run = runner->run;
    bool lacks_scheduler = !options->scheduler && !run->evaluating && lki_scheduler_was_refused();
    lk_status kept = lacks_scheduler ? lki_last_status() : let_go_of_step(runner, options);
    take_parts(runner, options);
    lk_status status = take_lists(runner, options);
    if (!status) status = kept;
    if (status) {
        for (int i = 0; i < options->datasets.datasets.count; i++)
            lk_dataset_free(options->datasets.datasets.items[i].dataset);
        return status;
    }
    if (options->datasets.datasets.count || options->datasets.get_datasets_fn)
        LKI_TRY(lki_run_add_datasets(&run->loaders, &options->datasets));
    LKI_TRY(lki_run_ask_custom_runner(runner, options));
    LKI_TRY(keep_texts(runner, options));
    set_numbers(runner, options);
    LKI_TRY(choose_valid_loader(runner));
    LKI_TRY(parse_precision(options->precision, &run->batch.step_options.precision));
    LKI_TRY(lki_check_train_options(options, run->batch.step_options.precision));
    bool own_batches = runner->ops && runner->ops->handle_batch;
    if (!runner->model && !own_batches)
        return lki_last_status() ? lki_last_status() : lki_fail(LK_ERR_INVALID, "there is no model to train");
    if (options->local_gradients &&
        (options->sync_batch_norm || options->compress_gradients || options->check_replicas > 0))
        return lki_fail(LK_ERR_INVALID,
                        "local_gradients leaves the models of the ranks to callbacks: sync_batch_norm, "
                        "compress_gradients and check_replicas cannot be had");
    run->batch.step_options.scaler = options->scaler;
    run->batch.step_options.sync_batch_norm = options->sync_batch_norm;
    run->batch.step_options.compress_gradients = options->compress_gradients;
    run->batch.step_options.check_replicas = options->check_replicas;
    if (runner->scheduler && runner->optimizer && runner->scheduler->optimizer != runner->optimizer)
        LKI_TRY(lk_scheduler_attach(runner->scheduler, runner->optimizer));
    LKI_TRY(lki_limits_freeze(runner));
    LKI_TRY(lki_check_run(runner));
    LKI_TRY(add_default_callbacks(runner));
    return lki_run_fit_data(runner);
}

/* Of the loaders that go: the next run's data may lie where theirs did, or be theirs, changed since. */
static void forget_rows(lk_runner *runner)
{
    const lki_run *run = runner->run;
    if (runner->step) lk_step_forget_rows(runner->step);
    for (int i = 0; i < run->parts.count; i++)
        if (run->parts.items[i].step) lk_step_forget_rows(run->parts.items[i].step);
}

void lki_run_teardown(lk_runner *runner)
{
    lki_run *run = runner->run;
    forget_rows(runner);
    for (int i = 0; i < run->listeners.count; i++) lk_callback_free(run->listeners.callbacks[i]);
    for (int i = 0; i < run->reporting.logger_count; i++) lk_logger_close(run->reporting.loggers[i]);
    lki_run_free_loaders(&run->loaders);
    lki_free(run->given.logdir);
    lki_free(run->given.valid_loader);
    lki_free(run->given.valid_metric);
    lki_free(run->given.device);
    lki_free(run->given.resume);
    lki_free(run->resuming.loader_state);
    lki_free(run->reporting.notes);
    lki_free(run->resuming.terms);
    lki_metric_names_fini(&run->names);
    lki_pass_metrics_fini(&run->pass);
    lki_run_close_log(&run->reporting);
    lki_epoch_table_fini(&run->reporting.table);
    lki_profile_fini(&run->profile);
    (void)lki_vitals_close(&run->vitals);
    lk_state_dict_free(run->resuming.state);
    lk_state_dict_free(run->resuming.rank_state);
    runner->loader = NULL;
    runner->loader_metrics = NULL;
    runner->batch = NULL;
    runner->logdir = runner->valid_loader = runner->valid_metric = runner->loader_key = NULL;
    lki_run kept = {.batch.kept = run->batch.kept, .engine = run->engine, .parts = run->parts};
    *run = kept;
}

/* In every rank, after any fork. */
static lk_status train_rank(lk_runner *runner)
{
    LKI_TRY(lki_agree_on_kernels(runner));
    LKI_TRY(lki_run_open_engine(runner));
    LKI_TRY(lki_run_check_shards(runner));
    LKI_TRY(lki_check_same_run(runner));
    runner->run->resuming.terms = lki_terms_of(runner);
    if (!runner->run->resuming.terms) return LK_ERR_NOMEM;
    runner->run->reporting.logdir_lock = -1;
    if (runner->run->given.logdir && runner->is_master)
        LKI_TRY(lki_logdir_lock(runner->run->given.logdir, &runner->run->reporting.logdir_lock));
    runner->run->stop.flag = lki_signals_begin();
    lk_status status = lki_run_loop(runner);
    if (status == LK_OK) status = lki_distributed_share_signal(runner);
    if (status == LK_OK) lki_attempt_has_trained();
    lki_signals_end(status != LK_OK);
    runner->run->stop.flag = NULL;
    lki_logdir_unlock(runner->run->given.logdir, &runner->run->reporting.logdir_lock);
    return status;
}

/* Parts that the runner has already are its own. */
static void drop_handed_over(const lk_runner *runner, const lk_train_options *options)
{
    for (int i = 0; i < options->loaders.count; i++) lk_loader_free(options->loaders.items[i].loader);
    for (int i = 0; i < options->datasets.datasets.count; i++)
        lk_dataset_free(options->datasets.datasets.items[i].dataset);
    for (int i = 0; i < options->callbacks.count; i++) lk_callback_free(options->callbacks.items[i]);
    for (int i = 0; i < options->loggers.count; i++) lk_logger_close(options->loggers.items[i]);
    if (options->model != runner->model) lk_module_free(options->model);
    if (options->criterion != runner->criterion) lk_criterion_free(options->criterion);
    if (options->optimizer != runner->optimizer) lk_optimizer_free(options->optimizer);
    if (options->scheduler != runner->scheduler) lk_scheduler_free(options->scheduler);
}

lk_status lki_run_begin(lk_runner *runner, const lk_train_options *options, lk_status taken)
{
    if (taken != LK_OK) {
        drop_handed_over(runner, options);
        return taken;
    }
    if (runner->run->running) {
        drop_handed_over(runner, options);
        return lki_fail(LK_ERR_INVALID, "the runner is running: it cannot train, evaluate or predict over a "
                                        "loader from a callback of its own; use another runner, or "
                                        "lk_predict_batch");
    }
    lki_run_teardown(runner); /* of an earlier run */
    runner->run->running = true;
    return LK_OK;
}

#undef lk_train_with /* the header fills in a size that is missing */
lk_status lk_train_with(lk_runner *runner, const lk_train_options *given)
{
    lk_train_options options;
    if (!runner) return lki_last_status();
    lk_status taken = lki_take(&options, sizeof options, given, "lk_train_options");
    LKI_TRY(lki_run_begin(runner, &options, taken));
    lk_status status = lki_run_setup(runner, &options);
    if (!status) status = lki_steps_renew(runner);
    if (!status) status = lki_distributed_train(runner, train_rank);
    if (!status) status = lki_run_show_params(runner);
    runner->run->running = false;
    lki_signals_pass_on();
    return status;
}
