/* Checkpoints under LOGDIR/checkpoints: the best topk epochs' weights, the best, the last, and everything
 * that resume needs.
 *
 *     model.0003.safetensors …   the topk best epochs
 *     model.best.safetensors     a link to the best of them: the best epoch's weights, whatever came after
 *     model.last.safetensors     the last epoch's
 *     runner.last.safetensors    everything: written at the end of an epoch, and inside one when the run is
 * stopped model.storage.json         which files are kept and what they scored
 *
 * Every file is written whole or not at all, and nothing is removed before what replaces it is there. */
#include "base/atomic_file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/storage.h"
#include "train/callbacks/callbacks.h"
#include "train/rank_state.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct checkpoint_context {
    lk_checkpoint_callback_options options; /* its texts are copies */
    char *folder;                           /* LOGDIR/checkpoints; NULL: nothing is written */
    bool whole_runner;                      /* mode "runner": the numbered files hold everything */
    lki_storage storage;
} checkpoint_context;

static char *file_in(const checkpoint_context *context, const char *name)
{
    return lki_format("%s/%s", context->folder, name);
}

static lk_status save_model(lk_runner *runner, const char *path)
{
    lk_state_dict *state = lki_models_state(runner);
    if (!state) return lki_last_status();
    lk_status status = lk_save_safetensors(path, state);
    lk_state_dict_free(state);
    return status;
}

static lk_status save_runner(lk_runner *runner, const char *path)
{
    lk_state_dict *state = lk_state_dict_create();
    if (!state) return LK_ERR_NOMEM;
    lk_status status = lki_runner_save_state(runner, state);
    if (status == LK_OK && runner->is_master) status = lk_save_safetensors(path, state);
    lk_state_dict_free(state);
    return status;
}

static lk_status save_last_runner(checkpoint_context *context, lk_runner *runner)
{
    if (!context->folder || context->options.no_runner) return LK_OK;
    if (!runner->is_master && !lki_rank_state_is_needed(runner)) return LK_OK;
    LKI_SCOPED char *path = file_in(context, "runner.last.safetensors");
    return path ? save_runner(runner, path) : LK_ERR_NOMEM;
}

/* ---- Start: folders, and what is resumed ---- */

static lk_status load_into(lk_runner *runner, const char *path, bool everything)
{
    lk_state_dict *state = lk_load_safetensors(path);
    if (!state) return lki_last_status();
    if (everything) {
        lk_status status = lki_runner_load_state(runner, state);
        return status ? lki_fail_prefix(status, "%s", path) : LK_OK;
    }
    lk_status status = lki_models_load_state(runner, state, path);
    lk_state_dict_free(state);
    return status;
}

/* "last" goes on from runner.last; "best" starts from the best weights. Without such a file the run starts
 * afresh. */
static lk_status autoresume(checkpoint_context *context, lk_runner *runner)
{
    const char *which = runner->run->options.autoresume;
    if (!which || !context->folder) return LK_OK;
    bool last = strcmp(which, "last") == 0;
    if (!last && strcmp(which, "best") != 0)
        return lki_fail(LK_ERR_INVALID, "autoresume: expected \"last\" or \"best\", found \"%s\"", which);
    LKI_SCOPED char *path = file_in(context, last ? "runner.last.safetensors" : "model.best.safetensors");
    if (!path) return LK_ERR_NOMEM;
    return access(path, F_OK) == 0 ? load_into(runner, path, last) : LK_OK;
}

/* A resumed run knows what it has kept, unless it is judged by another metric from here on. */
static lk_status start_storage(checkpoint_context *context, lk_runner *runner)
{
    const lk_checkpoint_callback_options *options = &context->options;
    const char *loader = options->loader_key ? options->loader_key : runner->valid_loader;
    const char *metric = options->metric_key ? options->metric_key : runner->valid_metric;
    bool minimize = lki_callback_minimizes(runner, options->minimize, options->maximize);
    lki_storage *storage = &context->storage;
    LKI_SCOPED char *path = file_in(context, "model.storage.json");
    if (!path) return LK_ERR_NOMEM;
    if (runner->epoch_step > 0 && access(path, F_OK) == 0 && lki_storage_load(storage, path) == LK_OK) {
        if (lki_storage_is_of(storage, loader, metric, minimize)) {
            storage->topk = options->topk;
            return lki_storage_relocate(storage, options->logdir, context->folder);
        }
        lki_storage_fini(storage);
    }
    return lki_storage_init(storage, options->logdir, loader, metric, minimize, options->topk);
}

static lk_status start(lk_callback *callback, lk_runner *runner)
{
    checkpoint_context *context = callback->context;
    lk_checkpoint_callback_options *options = &context->options;
    if (!options->logdir && runner->logdir && !(options->logdir = lki_strdup(runner->logdir)))
        return LK_ERR_NOMEM;
    if (options->logdir) {
        context->folder = lki_format("%s/checkpoints", options->logdir);
        if (!context->folder) return LK_ERR_NOMEM;
        if (runner->is_master) {
            LKI_TRY(lki_make_folders(context->folder));
            lki_sweep_temporaries(context->folder);
        }
    }
    if (options->resume_model) LKI_TRY(load_into(runner, options->resume_model, false));
    const char *resume = options->resume_runner ? options->resume_runner : runner->run->resume;
    if (resume)
        LKI_TRY(load_into(runner, resume, true));
    else
        LKI_TRY(autoresume(context, runner));
    return context->folder && runner->is_master ? start_storage(context, runner) : LK_OK;
}

/* ---- The end of an epoch ---- */

/* Writes the numbered file, takes it in among the best, and only then removes the one that fell out. */
static lk_status save_numbered(checkpoint_context *context, lk_runner *runner, double metric)
{
    char name[64];
    snprintf(name, sizeof name, "%s.%04lld.safetensors", context->whole_runner ? "runner" : "model",
             (long long)runner->epoch_step);
    LKI_SCOPED char *path = file_in(context, name);
    LKI_SCOPED char *manifest = file_in(context, "model.storage.json");
    char *dropped = NULL;
    if (!path || !manifest) return LK_ERR_NOMEM;
    LKI_TRY(context->whole_runner ? save_runner(runner, path) : save_model(runner, path));
    LKI_TRY(lki_storage_add(&context->storage, path, metric, &dropped));
    lk_status status = lki_storage_save(&context->storage, manifest);
    if (status == LK_OK && dropped) unlink(dropped);
    lki_free(dropped);
    return status;
}

static lk_status link_best(checkpoint_context *context)
{
    if (context->options.no_best || context->storage.entry_count == 0) return LK_OK;
    LKI_SCOPED char *best =
        file_in(context, context->whole_runner ? "runner.best.safetensors" : "model.best.safetensors");
    return best ? lki_link_file_atomic(context->storage.entries[0].logpath, best) : LK_ERR_NOMEM;
}

static lk_status epoch_end(lk_callback *callback, lk_runner *runner)
{
    checkpoint_context *context = callback->context;
    const lk_checkpoint_callback_options *options = &context->options;
    double metric;
    if (!context->folder || !runner->is_master) return LK_OK;
    if (!lki_callback_metric(runner, options->loader_key, options->metric_key, &metric)) {
        const char *loader = options->loader_key ? options->loader_key : runner->valid_loader;
        if (lk_runner_loader_metrics(runner, loader))
            return lki_callback_no_metric(runner, "CheckpointCallback", options->loader_key,
                                          options->metric_key);
        metric = NAN; /* the loader rested in this epoch: no candidate for the best */
    }
    bool has_models = lki_runner_has_models(runner);
    if (has_models && !isnan(metric)) {
        LKI_TRY(save_numbered(context, runner, metric));
        LKI_TRY(link_best(context));
    }
    if (has_models && !options->no_last) {
        LKI_SCOPED char *last = file_in(context, "model.last.safetensors");
        if (!last) return LK_ERR_NOMEM;
        LKI_TRY(save_model(runner, last));
    }
    return LK_OK;
}

/* The runner's own state is saved when all callbacks have seen the end of the epoch (or batch), so that
 * theirs is in it. */
static lk_status settled(lk_callback *callback, lk_runner *runner)
{
    checkpoint_context *context = callback->context;
    int every = context->options.save_every_batches;
    if (runner->batch && (every <= 0 || !runner->is_train_loader || runner->batch_step % every != 0))
        return LK_OK;
    return save_last_runner(context, runner);
}

/* ---- The end of the run ---- */

static lk_status end(lk_callback *callback, lk_runner *runner)
{
    checkpoint_context *context = callback->context;
    if (!context->folder || !runner->is_master) return LK_OK;
    if (runner->verbose && context->storage.entry_count) {
        printf("Top models:\n");
        for (int i = 0; i < context->storage.entry_count; i++)
            printf("%s\t%.4f\n", context->storage.entries[i].logpath, context->storage.entries[i].metric);
    }
    bool load_best = context->options.load_best_on_end || runner->run->options.load_best_on_end;
    if (!load_best || context->storage.entry_count == 0) return LK_OK;
    return load_into(runner, context->storage.entries[0].logpath, false);
}

/* A run that was asked to stop keeps its place, between two batches. A run that failed keeps what it had
 * saved before. */
static lk_status exception(lk_callback *callback, lk_runner *runner)
{
    return runner->run->stopped ? save_last_runner(callback->context, runner) : LK_OK;
}

static void free_context(lk_callback *callback)
{
    checkpoint_context *context = callback->context;
    lk_checkpoint_callback_options *options = &context->options;
    lki_free((char *)options->logdir);
    lki_free((char *)options->loader_key);
    lki_free((char *)options->metric_key);
    lki_free((char *)options->resume_model);
    lki_free((char *)options->resume_runner);
    lki_free(context->folder);
    lki_storage_fini(&context->storage);
    lki_free(context);
}

static bool copy_texts(lk_checkpoint_callback_options *options)
{
    const char **texts[] = {&options->logdir, &options->loader_key, &options->metric_key,
                            &options->resume_model, &options->resume_runner};
    bool complete = true;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const char *given = *texts[i];
        *texts[i] = lki_strdup(given);
        complete = complete && (!given || *texts[i]);
    }
    return complete;
}

lk_callback *lk_checkpoint_callback_create(lk_checkpoint_callback_options options)
{
    static const lk_callback_ops ops = {
        .name = "Checkpoint",
        .on_experiment_start = start,
        .on_epoch_end = epoch_end,
        .on_settled = settled,
        .on_experiment_end = end,
        .on_exception = exception,
        .free = free_context,
    };
    if (options.mode && strcmp(options.mode, "model") != 0 && strcmp(options.mode, "runner") != 0)
        return lki_fail_null(LK_ERR_INVALID,
                             "CheckpointCallback: mode is \"model\" or \"runner\", not \"%s\"", options.mode);
    if (options.topk < 0)
        return lki_fail_null(LK_ERR_INVALID, "CheckpointCallback: topk must not be negative");
    lk_callback *callback = lki_callback_new(&ops, sizeof(checkpoint_context), LK_ORDER_CHECKPOINT);
    if (!callback) return NULL;
    checkpoint_context *context = callback->context;
    callback->may_lag = options.save_every_batches <= 0;
    context->whole_runner = options.mode && strcmp(options.mode, "runner") == 0;
    context->options = options;
    context->options.mode = NULL;
    if (context->options.topk == 0) context->options.topk = 1;
    if (!copy_texts(&context->options)) {
        lk_callback_free(callback);
        return NULL;
    }
    return callback;
}

lk_callback *lk_skip_checkpoint_callback(void)
{
    static const lk_callback_ops ops = {.name = "SkipCheckpoint"};
    return lk_callback_create(&ops, NULL, LK_ORDER_CHECKPOINT);
}
