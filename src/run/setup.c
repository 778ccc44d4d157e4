/* Setting a run up: taking over what lk_train was given, filling in what was not, and undoing it. */
#include "run/check_options.h"
#include "run/distributed.h"
#include "run/run.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "optim/scheduler.h"
#include "resume/rank_state.h"
#include "resume/run_terms.h"
#include "run/run_logdir.h"
#include "run/same_run.h"
#include "run/signals.h"

#include <lockstep/callback.h>

#include <string.h>

enum { CHECK_BATCHES = 3, CHECK_EPOCHS = 3 };

int lki_run_find_loader(const lki_run *run, const char *key)
{
    for (int i = 0; i < run->loader_count && key; i++)
        if (strcmp(run->loaders[i].key, key) == 0) return i;
    return -1;
}

const char *lki_loader_key_fault(const char *key)
{
    if (!key || !*key) return "a loader needs a name";
    if (strchr(key, '/') || !strcmp(key, ".") || !strcmp(key, ".."))
        return "its name is that of files in the logdir: it can have no \"/\" in it, nor be \".\" or \"..\"";
    return lki_is_utf8(key) ? NULL : "its name is not UTF-8";
}

/* ---- Taking over. Each of these owns what it is given, also when it fails. ---- */

/* Where there is no loader, the error is that of the constructor that failed last, perhaps another loader's:
 * its sentence says what is missing, and the key has no place before it. */
static lk_status add_loader(lki_run *run, const char *key, lk_loader *loader)
{
    if (!loader)
        return lki_last_status() ? lki_last_status() : lki_fail(LK_ERR_INVALID, "loader \"%s\" is NULL", key);
    lk_status status = LK_OK;
    const char *fault = lki_loader_key_fault(key);
    if (fault)
        status = lki_fail(LK_ERR_INVALID, "loader \"%.100s\": %s", key ? key : "", fault);
    else if (run->loader_count == LKI_MAX_LOADERS)
        status = lki_fail(LK_ERR_INVALID, "a run has at most %d loaders", LKI_MAX_LOADERS);
    else if (lki_run_find_loader(run, key) >= 0)
        status = lki_fail(LK_ERR_INVALID, "there are two loaders named \"%s\"", key);
    lki_run_loader *slot = &run->loaders[run->loader_count];
    if (status == LK_OK) {
        *slot = (lki_run_loader){.key = lki_strdup(key), .metrics = lki_metrics_create()};
        if (!slot->key || !slot->metrics) status = LK_ERR_NOMEM;
    }
    if (status == LK_OK) status = lk_loader_set_name(loader, key);
    if (status) {
        lk_loader_free(loader);
        return status;
    }
    slot->loader = loader;
    run->loader_count++;
    return LK_OK;
}

lk_status lki_run_add_callback(lk_runner *runner, lk_callback *callback)
{
    lki_run *run = runner->run;
    if (!callback) return lki_last_status();
    if (run->callback_count == LKI_MAX_CALLBACKS) {
        lk_callback_free(callback);
        return lki_fail(LK_ERR_INVALID, "a run has at most %d callbacks", LKI_MAX_CALLBACKS);
    }
    /* Sorted by order, those of equal order as they came. */
    int place = run->callback_count++;
    for (; place > 0 && run->callbacks[place - 1]->order > callback->order; place--)
        run->callbacks[place] = run->callbacks[place - 1];
    run->callbacks[place] = callback;
#define X(moment) run->has_listener[LKI_MOMENT_##moment] |= callback->ops->on_##moment != NULL;
    LK_MOMENT_LIST(X)
#undef X
    return LK_OK;
}

lk_status lki_run_register_metric(lk_runner *runner, lk_metric *metric)
{
    lki_run *run = runner->run;
    if (run->metric_count == LKI_MAX_CALLBACKS)
        return lki_fail(LK_ERR_INVALID, "a run has at most %d metrics", LKI_MAX_CALLBACKS);
    run->metrics[run->metric_count++] = metric;
    return lki_rank_state_get_metric(runner, run->metric_count - 1);
}

/* Takes everything, and remembers the first failure: nothing that was handed over may leak. */
static lk_status take_lists(lk_runner *runner, const lk_train_options *options)
{
    lki_error first = {0};
    for (int i = 0; i < options->loaders.count; i++)
        lki_error_keep(
            &first, add_loader(runner->run, options->loaders.items[i].key, options->loaders.items[i].loader));
    for (int i = 0; i < options->callbacks.count; i++)
        lki_error_keep(&first, lki_run_add_callback(runner, options->callbacks.items[i]));
    for (int i = 0; i < options->loggers.count; i++)
        lki_error_keep(&first, lki_run_add_logger(runner->run, options->loggers.items[i]));
    return lki_error_restore(&first);
}

/* The step was compiled for the runner's parts. What its optimizer has learned goes on with another
 * criterion, but not with another optimizer or model. */
static lk_status let_go_of_step(lk_runner *runner, const lk_train_options *options)
{
    if ((options->model && options->model != runner->model) ||
        (options->optimizer && options->optimizer != runner->optimizer))
        lki_step_drop(&runner->step, &runner->run->kept);
    bool other_criterion = options->criterion && options->criterion != runner->criterion;
    return other_criterion ? lki_step_keep(&runner->step, &runner->run->kept) : LK_OK;
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

/* ---- What a custom runner brings ---- */

static lk_status ask_for_loaders(lk_runner *runner)
{
    lk_named_loader loaders[LKI_MAX_LOADERS];
    int count = 0;
    LKI_TRY(runner->ops->get_loaders(runner, loaders, LKI_MAX_LOADERS, &count));
    lk_status first = LK_OK;
    for (int i = 0; i < count; i++) {
        if (first)
            lk_loader_free(loaders[i].loader);
        else
            first = add_loader(runner->run, loaders[i].key, loaders[i].loader);
    }
    return first;
}

static lk_status ask_for_callbacks(lk_runner *runner)
{
    lk_callback *callbacks[LKI_MAX_CALLBACKS];
    int count = 0;
    LKI_TRY(runner->ops->get_callbacks(runner, callbacks, LKI_MAX_CALLBACKS, &count));
    lk_status first = LK_OK;
    for (int i = 0; i < count; i++) {
        if (first)
            lk_callback_free(callbacks[i]);
        else
            first = lki_run_add_callback(runner, callbacks[i]);
    }
    return first;
}

static lk_status ask_for_loggers(lk_runner *runner)
{
    lk_logger *loggers[LKI_MAX_LOGGERS];
    int count = 0;
    LKI_TRY(runner->ops->get_loggers(runner, loggers, LKI_MAX_LOGGERS, &count));
    lk_status first = LK_OK;
    for (int i = 0; i < count; i++) {
        if (first)
            lk_logger_close(loggers[i]);
        else
            first = lki_run_add_logger(runner->run, loggers[i]);
    }
    return first;
}

static lk_status ask_for_parts(lk_runner *runner)
{
    const lk_runner_ops *ops = runner->ops;
    if (!runner->model && ops->get_model && !(runner->model = ops->get_model(runner)))
        return lki_last_status();
    if (!runner->criterion && ops->get_criterion && !(runner->criterion = ops->get_criterion(runner)))
        return lki_last_status();
    if (!runner->optimizer && ops->get_optimizer &&
        !(runner->optimizer = ops->get_optimizer(runner, runner->model)))
        return lki_last_status();
    if (!runner->scheduler && ops->get_scheduler &&
        !(runner->scheduler = ops->get_scheduler(runner, runner->optimizer)))
        return lki_last_status();
    return LK_OK;
}

static lk_status ask_custom_runner(lk_runner *runner, lk_train_options *options)
{
    const lk_runner_ops *ops = runner->ops;
    if (!ops) return LK_OK;
    if (ops->get_engine) LKI_TRY(ops->get_engine(runner, options));
    if (runner->run->loader_count == 0 && ops->get_loaders) LKI_TRY(ask_for_loaders(runner));
    LKI_TRY(ask_for_parts(runner));
    if (runner->run->evaluating) return LK_OK;
    if (ops->get_callbacks) LKI_TRY(ask_for_callbacks(runner));
    if (ops->get_loggers) LKI_TRY(ask_for_loggers(runner));
    return LK_OK;
}

/* ---- Datasets instead of loaders ---- */

static lk_status loaders_from_datasets(lk_runner *runner, const lk_datasets_options *options)
{
    lk_named_dataset made[LKI_MAX_LOADERS];
    const lk_named_dataset *datasets = options->datasets.items;
    int count = options->datasets.count;
    if (options->get_datasets_fn) {
        count = options->get_datasets_fn(made, LKI_MAX_LOADERS, options->context);
        if (count < 0)
            return lki_last_status() ? lki_last_status() : lki_fail(LK_ERR_INVALID, "get_datasets_fn failed");
        datasets = made;
    }
    for (int i = 0; i < count; i++) {
        bool train = strncmp(datasets[i].key, "train", 5) == 0;
        lk_loader *loader =
            lk_loader(datasets[i].dataset, .batch_size = options->batch_size ? options->batch_size : 1,
                      .num_workers = options->num_workers, .drop_last = options->drop_last, .shuffle = train);
        lk_status status = add_loader(runner->run, datasets[i].key, loader);
        if (status == LK_OK) continue;
        for (int k = i + 1; k < count; k++) lk_dataset_free(datasets[k].dataset);
        return status;
    }
    return LK_OK;
}

/* ---- What was not given ---- */

static bool has_callback(const lki_run *run, const char *name)
{
    for (int i = 0; i < run->callback_count; i++)
        if (strcmp(run->callbacks[i]->ops->name, name) == 0) return true;
    return false;
}

static lk_status add_default_callbacks(lk_runner *runner)
{
    lki_run *run = runner->run;
    bool own_batches = runner->ops && runner->ops->handle_batch;
    if (runner->criterion && !own_batches && !has_callback(run, "Criterion"))
        LKI_TRY(lki_run_add_callback(runner, lk_criterion_callback()));
    if (run->options.verbose && !has_callback(run, "Progress"))
        LKI_TRY(lki_run_add_callback(runner, lk_progress_callback()));
    if (run->evaluating) return LK_OK;
    if (runner->optimizer && !has_callback(run, "Optimizer"))
        LKI_TRY(lki_run_add_callback(runner, lk_optimizer_callback()));
    if (runner->scheduler && !has_callback(run, "Scheduler"))
        LKI_TRY(lki_run_add_callback(runner, lk_scheduler_callback()));
    if (run->options.timeit && !has_callback(run, "Timer"))
        LKI_TRY(lki_run_add_callback(runner, lk_timer_callback()));
    bool keep = run->logdir && !run->options.no_checkpoints && !run->options.check && !run->options.overfit;
    if (has_callback(run, "SkipCheckpoint")) keep = false;
    if ((keep || run->resume) && !has_callback(run, "Checkpoint"))
        LKI_TRY(lki_run_add_callback(
            runner, lk_checkpoint_callback(.logdir = run->logdir, .resume_runner = run->resume,
                                           .load_best_on_end = run->options.load_best_on_end)));
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
    LKI_TRY(copy_text(&run->logdir, options->logdir));
    LKI_TRY(copy_text(&run->valid_loader, options->valid_loader));
    LKI_TRY(copy_text(&run->valid_metric, options->valid_metric ? options->valid_metric : runner->loss_key));
    LKI_TRY(copy_text(&run->device, options->device ? options->device : "auto"));
    LKI_TRY(copy_text(&run->resume, options->resume));
    runner->logdir = run->logdir;
    runner->valid_metric = run->valid_metric;
    return LK_OK;
}

static lk_status choose_valid_loader(lk_runner *runner)
{
    lki_run *run = runner->run;
    if (run->loader_count == 0) return lki_fail(LK_ERR_INVALID, "there are no loaders to train from");
    if (run->valid_loader && lki_run_find_loader(run, run->valid_loader) < 0)
        return lki_fail(LK_ERR_NOT_FOUND, "valid_loader: there is no loader named \"%s\"", run->valid_loader);
    runner->valid_loader = run->valid_loader ? run->valid_loader : run->loaders[0].key;
    for (int i = 0; i < run->loader_count; i++) run->loaders[i].repeat = run->options.overfit;
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

lk_status lki_run_close_engine(lk_runner *runner)
{
    lk_status status = lki_run_keep_steps(runner);
    lk_engine_close(runner->run->engine);
    runner->engine = runner->run->engine = NULL;
    return status;
}

/* An evaluation takes the engine that is there, unless it names another device. */
static bool engine_suits(const lki_run *run, const lk_engine_options *wanted)
{
    const lk_engine_options *opened = &run->engine_options;
    if (run->evaluating && !run->options.device) return true;
    if (strcmp(run->engine_device, run->device) != 0) return false;
    return run->evaluating ||
           (opened->allow_tf32 == wanted->allow_tf32 && opened->benchmark == wanted->benchmark &&
            opened->cpu_level == wanted->cpu_level);
}

lk_status lki_run_open_engine(lk_runner *runner)
{
    lki_run *run = runner->run;
    lk_engine_options options = {
        LK_SIZE(lk_engine_options),          .thread_count = run->options.thread_count,
        .device = lki_run_gpu(run),          .allow_tf32 = run->options.tf32,
        .benchmark = run->options.benchmark, .cpu_level = run->cpu_level};
    if (run->engine && !engine_suits(run, &options)) LKI_TRY(lki_run_close_engine(runner));
    if (run->engine) return LK_OK;
    run->engine = lk_engine_open(run->device, &options);
    run->engine_options = options;
    snprintf(run->engine_device, sizeof run->engine_device, "%s", run->device);
    runner->engine = run->engine;
    return run->engine ? LK_OK : lki_fail_prefix(lki_last_status(), "device");
}

static void set_numbers(lk_runner *runner, const lk_train_options *options)
{
    lki_run *run = runner->run;
    run->options = *options;
    run->options.loaders = (lk_loader_list){0};
    run->options.callbacks = (lk_callback_list){0};
    run->options.loggers = (lk_logger_list){0};
    run->batch_limit = options->check ? CHECK_BATCHES : options->overfit ? 1 : 0;
    runner->num_epochs = options->num_epochs ? options->num_epochs : 1;
    if (options->check && runner->num_epochs > CHECK_EPOCHS) runner->num_epochs = CHECK_EPOCHS;
    runner->minimize_valid_metric = options->minimize_valid_metric || !options->valid_metric;
    runner->verbose = options->verbose;
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
        LKI_TRY(loaders_from_datasets(runner, &options->datasets));
    LKI_TRY(ask_custom_runner(runner, options));
    LKI_TRY(keep_texts(runner, options));
    set_numbers(runner, options);
    LKI_TRY(choose_valid_loader(runner));
    LKI_TRY(parse_precision(options->precision, &run->step_options.precision));
    LKI_TRY(lki_check_train_options(options, run->step_options.precision));
    bool own_batches = runner->ops && runner->ops->handle_batch;
    if (!runner->model && !own_batches)
        return lki_last_status() ? lki_last_status() : lki_fail(LK_ERR_INVALID, "there is no model to train");
    if (options->local_gradients &&
        (options->sync_batch_norm || options->compress_gradients || options->check_replicas > 0))
        return lki_fail(LK_ERR_INVALID,
                        "local_gradients: the ranks' models are the callbacks' business, so "
                        "sync_batch_norm, compress_gradients and check_replicas cannot be had");
    run->step_options.scaler = options->scaler;
    run->step_options.sync_batch_norm = options->sync_batch_norm;
    run->step_options.compress_gradients = options->compress_gradients;
    run->step_options.check_replicas = options->check_replicas;
    if (runner->scheduler && runner->optimizer && runner->scheduler->optimizer != runner->optimizer)
        LKI_TRY(lk_scheduler_attach(runner->scheduler, runner->optimizer));
    LKI_TRY(lki_check_run(runner));
    LKI_TRY(add_default_callbacks(runner));
    return lki_run_fit_data(runner);
}

/* Of the loaders that go: the next run's data may lie where theirs did, or be theirs, changed since. */
static void forget_rows(lk_runner *runner)
{
    const lki_run *run = runner->run;
    if (runner->step) lk_step_forget_rows(runner->step);
    for (int i = 0; i < run->part_count; i++)
        if (run->parts[i].step) lk_step_forget_rows(run->parts[i].step);
}

void lki_run_teardown(lk_runner *runner)
{
    lki_run *run = runner->run;
    forget_rows(runner);
    for (int i = 0; i < run->callback_count; i++) lk_callback_free(run->callbacks[i]);
    for (int i = 0; i < run->logger_count; i++) lk_logger_close(run->loggers[i]);
    for (int i = 0; i < run->loader_count; i++) {
        lk_loader_free(run->loaders[i].loader);
        lki_metrics_free(run->loaders[i].metrics);
        lki_free(run->loaders[i].first_pass);
        lki_free(run->loaders[i].key);
    }
    lki_free(run->logdir);
    lki_free(run->valid_loader);
    lki_free(run->valid_metric);
    lki_free(run->device);
    lki_free(run->resume);
    lki_free(run->loader_state);
    lki_free(run->notes);
    lki_free(run->terms);
    lki_metric_names_fini(&run->names);
    lki_run_close_log(run);
    lki_epoch_table_fini(&run->table);
    lk_state_dict_free(run->resumed_state);
    lk_state_dict_free(run->rank_state);
    runner->loader = NULL;
    runner->loader_metrics = NULL;
    runner->batch = NULL;
    runner->logdir = runner->valid_loader = runner->valid_metric = runner->loader_key = NULL;
    lki_run kept = {.kept = run->kept,
                    .engine = run->engine,
                    .engine_options = run->engine_options,
                    .part_count = run->part_count};
    memcpy(kept.engine_device, run->engine_device, sizeof kept.engine_device);
    memcpy(kept.parts, run->parts, sizeof kept.parts);
    *run = kept;
}

/* In every rank, after any fork. */
static lk_status train_rank(lk_runner *runner)
{
    LKI_TRY(lki_agree_on_kernels(runner));
    LKI_TRY(lki_run_open_engine(runner));
    LKI_TRY(lki_check_same_run(runner));
    runner->run->terms = lki_terms_of(runner);
    if (!runner->run->terms) return LK_ERR_NOMEM;
    runner->run->logdir_lock = -1;
    if (runner->run->logdir && runner->is_master)
        LKI_TRY(lki_logdir_lock(runner->run->logdir, &runner->run->logdir_lock));
    runner->run->stop_flag = lki_signals_begin();
    lk_status status = lki_run_loop(runner);
    if (status == LK_OK) status = lki_distributed_share_signal(runner);
    lki_signals_end(status != LK_OK);
    runner->run->stop_flag = NULL;
    lki_logdir_unlock(runner->run->logdir, &runner->run->logdir_lock);
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

lk_status lk_train_with(lk_runner *runner, const lk_train_options *given)
{
    lk_train_options options;
    if (!runner) return lki_last_status();
    lk_status taken = lki_take(&options, sizeof options, given, "lk_train_options");
    LKI_TRY(lki_run_begin(runner, &options, taken));
    lk_status status = lki_run_setup(runner, &options);
    if (!status) status = lki_run_renew_parts(runner);
    if (!status) status = lki_distributed_train(runner, train_rank);
    if (!status) status = lki_run_show_params(runner);
    runner->run->running = false;
    lki_signals_pass_on();
    return status;
}
