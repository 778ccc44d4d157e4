/* Checkpoints under LOGDIR/checkpoints: the best topk epochs' weights, the best, the last, and everything
 * that resume needs.
 *
 *     model.0003.safetensors …   the topk best epochs
 *     model.best.safetensors     a link to the best of them: the best epoch's weights, whatever came after
 *     model.last.safetensors     the last epoch's
 *     runner.last.safetensors    everything: of the end of an epoch, or of the place where the run stopped
 *     runner.last.1.safetensors … the ones before it: what a run goes on from if the newest is damaged
 *     model.storage.json         which files are kept and what they scored
 *
 * In mode "runner" the topk and the best hold everything too, as runner.0003.safetensors and runner.best.
 *
 * Every file is written whole or not at all, and nothing is removed before what replaces it is there. */
#include "base/atomic_file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/number_text.h"
#include "base/status.h"
#include "base/take.h"
#include "callbacks/callbacks.h"
#include "callbacks/late_save.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/older_runners.h"
#include "checkpoint/storage.h"
#include "resume/broadcast_state.h"
#include "resume/model_state.h"
#include "resume/rank_state.h"
#include "resume/runner_state.h"
#include "resume/started_again.h"
#include "run/run_header.h"
#include "run/run_logdir.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NEWEST_RUNNER "runner.last.safetensors"
#define OLDER_RUNNER  "runner.last.1.safetensors"

typedef struct checkpoint_context {
    lk_checkpoint_callback_options options; /* its texts are copies */
    char *folder;                           /* LOGDIR/checkpoints; NULL: nothing is written */
    bool whole_runner;                      /* mode "runner": the numbered files hold everything */
    bool has_score; /* such a file of the epoch that has ended is still to be written */
    double score;
    int lock; /* on a logdir of its own, which the run does not hold; -1 for none */
    lki_storage storage;
    lki_late_save *late; /* the newest runner checkpoint, while it is being written */
} checkpoint_context;

static char *file_in(const checkpoint_context *context, const char *name)
{
    return lki_format("%s/%s", context->folder, name);
}

static lk_status save_as(const checkpoint_context *context, const char *name, const lk_state_dict *state)
{
    LKI_SCOPED char *path = file_in(context, name);
    return path ? lk_save_safetensors(path, state) : LK_ERR_NOMEM;
}

/* Writes the numbered file, takes it in among the best, and only then removes the one that fell out. */
static lk_status save_numbered(checkpoint_context *context, int64_t epoch, double metric,
                               lk_state_dict *state)
{
    char name[64];
    snprintf(name, sizeof name, "%s.%04lld.safetensors", context->whole_runner ? "runner" : "model",
             (long long)epoch);
    LKI_SCOPED char *path = file_in(context, name);
    LKI_SCOPED char *manifest = file_in(context, "model.storage.json");
    char *dropped = NULL;
    if (!path || !manifest) return LK_ERR_NOMEM;
    LKI_TRY(lki_storage_put_score(state, &context->storage, metric));
    LKI_TRY(lk_save_safetensors(path, state));
    LKI_TRY(lki_storage_add(&context->storage, path, metric, &dropped));
    lk_status status = lki_storage_save(&context->storage, manifest);
    if (status == LK_OK && dropped) unlink(dropped);
    lki_free(dropped);
    return status;
}

static lk_status link_best(checkpoint_context *context)
{
    if (context->options.no_save_best || context->storage.entry_count == 0) return LK_OK;
    LKI_SCOPED char *best =
        file_in(context, context->whole_runner ? "runner.best.safetensors" : "model.best.safetensors");
    return best ? lki_link_file_atomic(context->storage.entries[0].logpath, best) : LK_ERR_NOMEM;
}

/* ---- Everything ---- */

static lk_status write_files(checkpoint_context *context, const lk_runner *runner, lk_state_dict *state)
{
    if (context->has_score) {
        context->has_score = false;
        LKI_TRY(save_numbered(context, runner->epoch_step, context->score, state));
        LKI_TRY(link_best(context));
    }
    if (context->options.no_save_runner) return LK_OK;
    int keep = context->options.keep_runners;
    /* Between two batches the training waits for the copy alone. */
    if (runner->batch && !runner->run->stop.stopped)
        return lki_late_save_start(&context->late, context->folder, keep, state);
    LKI_TRY(lki_late_save_finish(&context->late));
    return lki_save_newest_runner(context->folder, keep, state);
}

/* What has been logged so far is on the disk first: a run that goes on from here does not log it again. Where
 * it cannot be, that is an error, but not one that costs the run its place. */
static lk_status write_runner(checkpoint_context *context, const lk_runner *runner, lk_state_dict *state)
{
    lki_error flushed = {0};
    lki_error_keep(&flushed, lki_report_flush(runner));
    LKI_TRY(write_files(context, runner, state));
    return lki_error_restore(&flushed);
}

/* Only rank 0 knows the score and writes, but all ranks may have a part in the state. */
static lk_status save_runner(checkpoint_context *context, lk_runner *runner)
{
    bool between_epochs = !runner->run->inside_epoch;
    bool wanted = !context->options.no_save_runner || (context->whole_runner && between_epochs);
    if (!context->folder || !wanted) return LK_OK;
    if (!runner->is_master && !lki_rank_state_is_needed(runner)) return LK_OK;
    lk_state_dict *state = lk_state_dict_create();
    if (!state) return LK_ERR_NOMEM;
    lk_status status = lki_runner_save(runner, state);
    if (status == LK_OK && runner->is_master) status = write_runner(context, runner, state);
    lk_state_dict_free(state);
    return status;
}

/* ---- Start: folders, and what is resumed ---- */

/* All ranks know what rank 0's file is worth, so all go on to the one before it. A file that cannot be read
 * now may be whole: it is not passed over. */
static lk_state_dict *load_older(lk_runner *runner, const checkpoint_context *context, const char *path)
{
    lki_error first = {0};
    LKI_SCOPED char *older = lki_older_runner(path);
    lk_status status = lki_error_keep(&first, lki_last_status());
    if (!older || status != LK_ERR_FORMAT) return NULL;
    lk_state_dict *state = lki_load_on_all(runner, older);
    if (!state && lki_last_status() == LK_ERR_FORMAT) state = load_older(runner, context, older);
    if (!state) {
        lki_error_restore(&first);
        return NULL;
    }
    if (!runner->is_master) return state;
    lki_log(LKI_LOG_WARNING, "%s: continuing from the checkpoint before it, %s", first.sentence, older);
    if (context->folder) lki_put_damaged_aside(context->folder, path);
    return state;
}

static lk_status load_into(lk_runner *runner, const checkpoint_context *context, const char *path,
                           bool everything)
{
    lk_state_dict *state = lki_load_on_all(runner, path);
    if (!state) state = load_older(runner, context, path);
    if (!state) return lki_last_status();
    runner->run->resuming.took_state = true;
    if (everything) {
        lk_status status = lki_runner_restore(runner, state, lki_run_prepare_step);
        return status ? lki_fail_prefix(status, "%s", path) : LK_OK;
    }
    lk_status status = lki_models_restore(runner, state, path);
    lk_state_dict_free(state);
    return status;
}

static lk_status load_weights(const checkpoint_context *context, lk_runner *runner)
{
    const lk_checkpoint_callback_options *options = &context->options;
    if (!options->resume_names && !options->no_strict)
        return load_into(runner, context, options->resume_model, false);
    lk_state_dict *state = lki_load_on_all(runner, options->resume_model);
    if (!state) return lki_last_status();
    runner->run->resuming.took_state = true;
    lk_status status = lki_models_restore_some(runner, state, options->resume_model, options->resume_names,
                                               !options->no_strict);
    lk_state_dict_free(state);
    return status;
}

/* The folder's checkpoint that `autoresume` asks for; *out stays NULL where there is none. Of the best, that
 * of the callback's own mode comes first. */
static lk_status find_checkpoint(const checkpoint_context *context, bool last, char **out)
{
    const char *best = "model.best.safetensors", *whole_best = "runner.best.safetensors";
    const char *names[] = {context->whole_runner ? whole_best : best,
                           context->whole_runner ? best : whole_best};
    if (last) names[0] = NEWEST_RUNNER;
    if (last) names[1] = OLDER_RUNNER; /* alone if the run died between two steps of a save */
    *out = NULL;
    for (int i = 0; i < 2 && !*out; i++) {
        char *path = file_in(context, names[i]);
        if (!path) return LK_ERR_NOMEM;
        if (access(path, F_OK) == 0 || errno != ENOENT)
            *out = path; /* loading says why it cannot be read */
        else
            lki_free(path);
    }
    return LK_OK;
}

/* "last" goes on from runner.last; "best" starts from the best weights. Without such a file the run starts
 * afresh, which is said where it was begun before. */
static lk_status autoresume(checkpoint_context *context, lk_runner *runner)
{
    const char *which = runner->run->given.options.autoresume;
    if (!which || !context->folder) return LK_OK;
    bool last = strcmp(which, "last") == 0;
    if (!last && strcmp(which, "best") != 0)
        return lki_fail(LK_ERR_INVALID, "autoresume: expected \"last\" or \"best\", found \"%s\"", which);
    LKI_SCOPED char *path = NULL;
    LKI_TRY(find_checkpoint(context, last, &path));
    int64_t found = path ? 1 : 0;
    if (last && path && strstr(path, "/" OLDER_RUNNER)) found = 2;
    LKI_TRY(lki_take_word_of_master(runner, &found));
    if (found && last) { /* the name that rank 0 has found: other ranks may see another folder */
        lki_free(path);
        path = file_in(context, found == 2 ? OLDER_RUNNER : NEWEST_RUNNER);
        if (!path) return LK_ERR_NOMEM;
    }
    if (found) return load_into(runner, context, path ? path : context->folder, last);
    if (runner->is_master && lki_has_checkpoints(context->folder))
        lki_log(LKI_LOG_WARNING,
                "autoresume: none of the checkpoints in %s is a \"%s\": the run starts afresh",
                context->folder, which);
    return LK_OK;
}

/* A run that was started again goes on from what it has saved itself, whatever it was first told to begin
 * with. Rank 0 knows: another rank's process may be a new one, which has come in the place of a lost one. */
static lk_status go_on_after_restart(const checkpoint_context *context, lk_runner *runner, bool *goes_on)
{
    *goes_on = false;
    if (!context->folder) return LK_OK;
    LKI_SCOPED char *path = file_in(context, NEWEST_RUNNER);
    LKI_SCOPED char *older = file_in(context, OLDER_RUNNER);
    if (!path || !older) return LK_ERR_NOMEM;
    int64_t found = 0, others = lki_is_started_again();
    if (runner->is_master) found = lki_goes_on_from(path) ? 1 : lki_goes_on_from(older) ? 2 : 0;
    LKI_TRY(lki_take_word_of_any(runner, &others));
    bool is_new = runner->is_master && !lki_is_started_again(); /* in the place of a rank 0 that is lost */
    if (!found && others && is_new) found = access(path, F_OK) == 0 ? 1 : access(older, F_OK) == 0 ? 2 : 0;
    if (found && is_new)
        lki_log(LKI_LOG_WARNING, "the other ranks were started again: going on from %s",
                found == 2 ? older : path);
    LKI_TRY(lki_take_word_of_master(runner, &found));
    *goes_on = found != 0;
    return found ? load_into(runner, context, found == 2 ? older : path, true) : LK_OK;
}

/* A list that is damaged or gone is made again: without it a worse model would become the best, and nobody
 * would remove the others. */
static lk_status rebuild_storage(checkpoint_context *context, lk_runner *runner, const char *path,
                                 bool is_there)
{
    const char *why = is_there ? "damaged" : "missing";
    lki_storage *storage = &context->storage;
    const char *kind = context->whole_runner ? "runner" : "model";
    if (lki_storage_rebuild(storage, context->folder, kind) && is_there)
        return lki_fail_prefix(lki_last_status(),
                               "%s is %s, and cannot be rebuilt: move the numbered checkpoints away or "
                               "resume into another logdir",
                               path, why);
    if (storage->entry_count == 0) return LK_OK;
    lki_log(LKI_LOG_WARNING, "%s is %s: rebuilt from %d checkpoint%s, the best is %s", path, why,
            storage->entry_count, storage->entry_count == 1 ? "" : "s", storage->entries[0].logpath);
    LKI_TRY(lki_header_note(&runner->run->reporting.notes, "%s is %s: rebuilt from %d checkpoint%s", path,
                            why, storage->entry_count, storage->entry_count == 1 ? "" : "s"));
    LKI_TRY(lki_storage_save(storage, path));
    return link_best(context);
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
    bool resumed = runner->epoch_step > 0, is_there = access(path, F_OK) == 0;
    bool damaged = resumed && (!is_there || lki_storage_load(storage, path) != LK_OK);
    if (resumed && !damaged) {
        if (lki_storage_is_of(storage, loader, metric, minimize)) {
            storage->topk = options->topk;
            return lki_storage_relocate(storage, options->logdir, context->folder);
        }
        lki_storage_fini(storage);
    }
    LKI_TRY(lki_storage_init(storage, options->logdir, loader, metric, minimize, options->topk));
    return damaged ? rebuild_storage(context, runner, path, is_there) : LK_OK;
}

/* A logdir of the callback's own is held as the run holds its own. */
static lk_status hold_own_logdir(checkpoint_context *context, const lk_runner *runner)
{
    const char *logdir = context->options.logdir;
    if (runner->logdir && lki_is_same_file(logdir, runner->logdir)) return LK_OK;
    return lki_logdir_lock(logdir, &context->lock);
}

/* What an earlier run has left: see logdir.h. The run takes care of its own logdir. */
static lk_status clear_logdir(checkpoint_context *context, lk_runner *runner)
{
    const lk_train_options *options = &runner->run->given.options;
    bool anew = !runner->run->resuming.took_state && options->overwrite && !options->autoresume;
    if (anew) lki_remove_checkpoints(context->folder);
    return context->lock < 0 ? LK_OK : lki_logdir_set_aside(runner, context->options.logdir);
}

/* Without a folder there is still a checkpoint to begin with. */
static bool resumes(const checkpoint_context *context, const lk_runner *runner)
{
    const lk_checkpoint_callback_options *options = &context->options;
    return (options->resume_model || options->resume_runner || runner->run->given.resume) &&
           !options->load_best_on_end;
}

/* Minutes since the last save have passed: rank 0's clock says so, and all ranks hear it together. */
static bool is_time_to_save(lk_runner *runner)
{
    lki_run_stop *stop = &runner->run->stop;
    bool due = stop->save_due && runner->is_train_loader;
    if (due) stop->save_due = false;
    return due;
}

/* The run's number is for the callback that says nothing of its own. */
static int saves_every(const checkpoint_context *context, const lk_runner *runner)
{
    int own = context->options.save_every_batches;
    return own ? own : runner->run->given.options.save_every;
}

static bool saves_by_clock(const lk_runner *runner)
{
    return runner->run->given.options.save_every_minutes > 0;
}

/* Other ranks go on from what is saved, so all must be able to. */
static lk_status check_min_nodes(const checkpoint_context *context, const lk_runner *runner)
{
    const lk_train_options *run = &runner->run->given.options;
    if (!run->min_nodes) return LK_OK;
    if (context->options.no_save_runner)
        return lki_fail(LK_ERR_INVALID,
                        "min_nodes: the run goes on from its checkpoints, but CheckpointCallback has "
                        "no_save_runner: leave one of them out");
    if (run->valid_every && !run->shards)
        return lki_fail(LK_ERR_INVALID,
                        "min_nodes: other ranks cannot go on inside a pass, where valid_every ends an epoch: "
                        "add shards, or leave valid_every out");
    if (run->shards || (!saves_every(context, runner) && !saves_by_clock(runner))) return LK_OK;
    return lki_fail(LK_ERR_INVALID,
                    "min_nodes: other ranks cannot go on inside an epoch: add shards, or leave save_every, "
                    "save_every_minutes and save_every_batches out");
}

static lk_status check_saves(const checkpoint_context *context, const lk_runner *runner)
{
    const lk_checkpoint_callback_options *options = &context->options;
    LKI_TRY(check_min_nodes(context, runner));
    int every = runner->run->given.options.save_every;
    bool by_clock = saves_by_clock(runner);
    if (by_clock && options->no_save_runner)
        return lki_fail(LK_ERR_INVALID,
                        "save_every_minutes: CheckpointCallback has no_save_runner: leave one of them out");
    if (every && options->no_save_runner)
        return lki_fail(LK_ERR_INVALID,
                        "save_every: CheckpointCallback has no_save_runner: leave one of them out");
    if (every && options->save_every_batches && every != options->save_every_batches)
        return lki_fail(LK_ERR_INVALID,
                        "save_every is %d, but save_every_batches of CheckpointCallback is %d: leave one of "
                        "them out",
                        every, options->save_every_batches);
    return LK_OK;
}

static lk_status start(lk_callback *callback, lk_runner *runner)
{
    checkpoint_context *context = callback->context;
    lk_checkpoint_callback_options *options = &context->options;
    LKI_TRY(check_saves(context, runner));
    callback->may_lag = saves_every(context, runner) == 0 && !saves_by_clock(runner);
    if (!options->logdir && runner->logdir && !(options->logdir = lki_strdup(runner->logdir)))
        return LK_ERR_NOMEM;
    if (!options->logdir && !resumes(context, runner))
        return lki_fail(LK_ERR_INVALID, "CheckpointCallback: there is no directory to write to: set the "
                                        "logdir of the callback or of the run");
    if (options->logdir) {
        context->folder = lki_format("%s/checkpoints", options->logdir);
        if (!context->folder) return LK_ERR_NOMEM;
        if (runner->is_master) {
            LKI_TRY(hold_own_logdir(context, runner));
            LKI_TRY(lki_make_folders(context->folder));
            lki_sweep_temporaries(context->folder);
        }
    }
    if (context->folder)
        LKI_TRY(
            lki_metric_names_watch(runner, "CheckpointCallback", options->loader_key, options->metric_key));
    bool goes_on;
    LKI_TRY(go_on_after_restart(context, runner, &goes_on));
    if (options->resume_model && !goes_on) LKI_TRY(load_weights(context, runner));
    const char *resume = options->resume_runner ? options->resume_runner : runner->run->given.resume;
    if (resume && !goes_on) LKI_TRY(load_into(runner, context, resume, true));
    if (!resume && !goes_on) LKI_TRY(autoresume(context, runner));
    if (!context->folder || !runner->is_master) return LK_OK;
    LKI_TRY(clear_logdir(context, runner));
    return start_storage(context, runner);
}

/* ---- The end of an epoch ---- */

static lk_status save_models(checkpoint_context *context, const lk_runner *runner, double metric)
{
    bool numbered = !context->whole_runner && !isnan(metric);
    if (!numbered && context->options.no_save_last) return LK_OK;
    lk_state_dict *state = lki_models_save(runner);
    if (!state) return lki_last_status();
    lk_status status = LK_OK;
    /* Before the numbered file's score is among the state: equal weights of two runs are equal files. */
    if (!context->options.no_save_last) LKI_TRY_OUT(save_as(context, "model.last.safetensors", state));
    if (numbered) {
        LKI_TRY_OUT(save_numbered(context, runner->epoch_step, metric, state));
        LKI_TRY_OUT(link_best(context));
    }
out:
    lk_state_dict_free(state);
    return status;
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
    if (!lki_runner_has_models(runner)) return LK_OK;
    context->has_score = context->whole_runner && !isnan(metric);
    context->score = metric;
    return save_models(context, runner, metric);
}

/* The runner's own state is saved when all callbacks have seen the end of the epoch (or batch), so that
 * theirs is in it, in numbered files too. */
static lk_status settled(lk_callback *callback, lk_runner *runner)
{
    checkpoint_context *context = callback->context;
    int every = saves_every(context, runner);
    if (!runner->batch) return save_runner(context, runner);
    bool is_due = is_time_to_save(runner);
    if (every > 0 && runner->is_train_loader) is_due = is_due || runner->batch_step % every == 0;
    if (is_due) return save_runner(context, runner);
    if ((every > 0 && runner->is_train_loader) || saves_by_clock(runner)) return LK_OK;
    lki_run_rest(runner, callback, LKI_MOMENT_settled);
    return LK_OK;
}

/* ---- The end of the run ---- */

static void print_top(const checkpoint_context *context)
{
    if (context->storage.entry_count) printf("Top models:\n");
    for (int i = 0; i < context->storage.entry_count; i++)
        lki_fprintf(stdout, "%s\t%.4f\n", context->storage.entries[i].logpath,
                    context->storage.entries[i].metric);
}

static lk_status load_best(const checkpoint_context *context, lk_runner *runner)
{
    const char *path = context->storage.entries[0].logpath;
    lk_state_dict *state = lk_load_safetensors(path);
    if (!state) return lki_last_status();
    lk_status status = lki_models_restore(runner, state, path);
    lk_state_dict_free(state);
    return status;
}

/* Rank 0 knows which is the best and loads it; the others take its weights. */
static lk_status end(lk_callback *callback, lk_runner *runner)
{
    checkpoint_context *context = callback->context;
    if (!context->folder) return LK_OK;
    LKI_TRY(lki_late_save_finish(&context->late));
    lki_logdir_unlock(context->options.logdir, &context->lock);
    if (runner->is_master && runner->verbose) print_top(context);
    if (!context->options.load_best_on_end && !runner->run->given.options.load_best_on_end) return LK_OK;
    bool has_best = runner->is_master && context->storage.entry_count > 0;
    if (has_best) LKI_TRY(load_best(context, runner));
    return lki_distributed_share_models(runner, has_best);
}

/* A run that was asked to stop keeps its place, between two batches. A run that failed keeps what it had
 * saved before. */
static lk_status exception(lk_callback *callback, lk_runner *runner)
{
    checkpoint_context *context = callback->context;
    bool is_saved = runner->run->stop.meets_again; /* at the end of its epoch */
    lk_status status = runner->run->stop.stopped && !is_saved ? save_runner(context, runner) : LK_OK;
    lk_status late = lki_late_save_finish(&context->late);
    if (status == LK_OK) status = late;
    lki_logdir_unlock(context->options.logdir, &context->lock);
    return status;
}

static void free_context(lk_callback *callback)
{
    checkpoint_context *context = callback->context;
    lk_checkpoint_callback_options *options = &context->options;
    (void)lki_late_save_finish(&context->late); /* the run has heard of its failure, if it has ended */
    lki_logdir_unlock(options->logdir, &context->lock);
    lki_free((char *)options->logdir);
    lki_free((char *)options->loader_key);
    lki_free((char *)options->metric_key);
    lki_free((char *)options->resume_model);
    lki_free((char *)options->resume_names);
    lki_free((char *)options->resume_runner);
    lki_free(context->folder);
    lki_storage_fini(&context->storage);
    lki_free(context);
}

static bool copy_texts(lk_checkpoint_callback_options *options)
{
    const char **texts[] = {&options->logdir,       &options->loader_key,    &options->metric_key,
                            &options->resume_model, &options->resume_runner, &options->resume_names};
    bool complete = true;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const char *given = *texts[i];
        *texts[i] = lki_strdup(given);
        complete = complete && (!given || *texts[i]);
    }
    return complete;
}

lk_callback *lk_checkpoint_callback_with(const lk_checkpoint_callback_options *given)
{
    LKI_TAKE(lk_checkpoint_callback_options, options, given, NULL);
    static const lk_callback_ops ops = {
        LK_SIZE(lk_callback_ops),  .name = "Checkpoint",  .on_experiment_start = start,
        .on_epoch_end = epoch_end, .on_settled = settled, .on_experiment_end = end,
        .on_exception = exception, .free = free_context,
    };
    if (options.mode && strcmp(options.mode, "model") != 0 && strcmp(options.mode, "runner") != 0)
        return lki_fail_null(LK_ERR_INVALID,
                             "CheckpointCallback: mode is \"model\" or \"runner\", not \"%s\"", options.mode);
    if (options.topk < 0 || options.save_every_batches < 0 || options.keep_runners < 0)
        return lki_fail_null(LK_ERR_INVALID, "CheckpointCallback: %s must not be negative",
                             options.topk < 0                 ? "topk"
                             : options.save_every_batches < 0 ? "save_every_batches"
                                                              : "keep_runners");
    if ((options.resume_names || options.no_strict) && !options.resume_model)
        return lki_fail_null(LK_ERR_INVALID,
                             "CheckpointCallback: %s goes with resume_model, which is not set",
                             options.resume_names ? "resume_names" : "strict: false");
    if (options.minimize && options.maximize)
        return lki_fail_null(LK_ERR_INVALID,
                             "CheckpointCallback: minimize and maximize are both set: keep one of them");
    if (options.no_save_best && options.load_best_on_end)
        return lki_fail_null(LK_ERR_INVALID,
                             "CheckpointCallback: load_best_on_end needs the best to be kept: "
                             "leave no_save_best out");
    lk_callback *callback = lki_callback_new(&ops, sizeof(checkpoint_context), LK_ORDER_CHECKPOINT);
    if (!callback) return NULL;
    checkpoint_context *context = callback->context;
    context->lock = -1;
    callback->may_lag = options.save_every_batches <= 0;
    context->whole_runner = options.mode && strcmp(options.mode, "runner") == 0;
    context->options = options;
    context->options.mode = NULL;
    if (context->options.topk == 0) context->options.topk = 1;
    if (context->options.keep_runners == 0) context->options.keep_runners = 2;
    if (!copy_texts(&context->options)) {
        lk_callback_free(callback);
        return NULL;
    }
    return callback;
}

lk_callback *lk_skip_checkpoint_callback(void)
{
    static const lk_callback_ops ops = {LK_SIZE(lk_callback_ops), .name = "SkipCheckpoint"};
    lk_callback *callback = lk_callback_create(&ops, NULL, LK_ORDER_CHECKPOINT);
    if (callback) callback->declares_metrics = true;
    return callback;
}
