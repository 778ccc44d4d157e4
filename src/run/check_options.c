#include "run/check_options.h"

#include "base/status.h"
#include "run/run.h"

#include <stdio.h>
#include <string.h>

enum { MAX_MINUTES = 1000000 };

static lk_status check_counts(const lk_train_options *options)
{
    const struct {
        const char *name;
        int value;
    } counts[] = {{"num_epochs", options->num_epochs},
                  {"nproc", options->nproc},
                  {"log_every", options->log_every},
                  {"check_replicas", options->check_replicas},
                  {"thread_count", options->thread_count},
                  {"save_every", options->save_every},
                  {"min_nodes", options->min_nodes},
                  {"profile_batches", options->profile_batches},
                  {"datasets.batch_size", options->datasets.batch_size},
                  {"datasets.num_workers", options->datasets.num_workers}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (counts[i].value < 0)
            return lki_fail(LK_ERR_INVALID, "%s: expected 0 for the default, or a number above it, found %d",
                            counts[i].name, counts[i].value);
    return LK_OK;
}

/* Numbers of a scaler that differ from PyTorch's have no effect unless the loss is scaled. */
static lk_status check_scaler(const lk_train_options *options, lk_dtype precision)
{
    const lk_scaler_options *s = &options->scaler;
    bool is_default = (s->init_scale == 0 || s->init_scale == 65536) &&
                      (s->growth_factor == 0 || s->growth_factor == 2) &&
                      (s->backoff_factor == 0 || s->backoff_factor == 0.5) &&
                      (s->growth_interval == 0 || s->growth_interval == 2000);
    if (is_default || precision == LK_F16) return LK_OK;
    return lki_fail(LK_ERR_INVALID,
                    "scaler: only a loss in fp16 is scaled: add .precision = \"fp16\", or leave "
                    "the scaler's numbers out");
}

/* Where a run ends and divides. */
static lk_status check_limits(const lk_train_options *options)
{
    if (options->max_steps < 0 || options->valid_every < 0)
        return lki_fail(LK_ERR_INVALID, "%s: expected 0 for the default, or a number above it, found %lld",
                        options->max_steps < 0 ? "max_steps" : "valid_every",
                        (long long)(options->max_steps < 0 ? options->max_steps : options->valid_every));
    if (options->valid_every && options->overfit)
        return lki_fail(LK_ERR_INVALID,
                        "valid_every: overfit has one batch per epoch: leave one of them out");
    if (!(options->max_minutes >= 0 && options->max_minutes <= MAX_MINUTES))
        return lki_fail(LK_ERR_INVALID, "max_minutes: expected a number from 0 to %d, found %g", MAX_MINUTES,
                        options->max_minutes);
    return LK_OK;
}

static lk_status check_minutes(const lk_train_options *options)
{
    double minutes = options->save_every_minutes;
    if (minutes >= 0 && minutes <= MAX_MINUTES) return LK_OK;
    return lki_fail(LK_ERR_INVALID, "save_every_minutes: expected a number from 0 to %d, found %g",
                    MAX_MINUTES, minutes);
}

static lk_status check_autoresume(const lk_train_options *options)
{
    const char *which = options->autoresume;
    if (!which) return LK_OK;
    if (strcmp(which, "last") != 0 && strcmp(which, "best") != 0)
        return lki_fail(LK_ERR_INVALID, "autoresume: expected \"last\" or \"best\", found \"%s\"", which);
    if (options->resume)
        return lki_fail(LK_ERR_INVALID,
                        "autoresume: resume names a checkpoint already: leave one of them out");
    return LK_OK;
}

static lk_status check_hparams(lk_hparam_list hparams)
{
    for (int i = 0; i < hparams.count; i++)
        if (!hparams.items[i].name || !*hparams.items[i].name || !hparams.items[i].value)
            return lki_fail(LK_ERR_INVALID, "hparams: number %d has no %s", i,
                            hparams.items[i].value ? "name" : "value");
    return LK_OK;
}

static lk_status check_profile(const lk_train_options *options)
{
    if (options->profile && !options->logdir)
        return lki_fail(LK_ERR_INVALID, "profile: trace.json is written to the logdir: add one");
    if (options->profile_batches && !options->profile)
        return lki_fail(LK_ERR_INVALID, "profile_batches: nothing is traced without profile");
    return LK_OK;
}

lk_status lki_check_train_options(const lk_train_options *options, lk_dtype precision)
{
    LKI_TRY(check_counts(options));
    LKI_TRY(check_scaler(options, precision));
    if (options->show < LK_SHOW_DEFAULT || options->show > LK_SHOW_ALL)
        return lki_fail(LK_ERR_INVALID, "show: expected one of lk_show, found %d", (int)options->show);
    LKI_TRY(check_minutes(options));
    LKI_TRY(lki_check_shards(options));
    LKI_TRY(check_limits(options));
    LKI_TRY(check_hparams(options->hparams));
    LKI_TRY(check_profile(options));
    if (options->datasets.per_gpu_scaling)
        return lki_fail(LK_ERR_INVALID,
                        "datasets.per_gpu_scaling: batch_size and num_workers are each rank's "
                        "already: leave it out");
    return check_autoresume(options);
}

static const lk_callback *find(const lki_run *run, const char *name)
{
    for (int i = 0; i < run->listeners.count; i++)
        if (strcmp(run->listeners.callbacks[i]->ops->name, name) == 0) return run->listeners.callbacks[i];
    return NULL;
}

/* What keeps no checkpoints cannot load them. Called before the run's own checkpoint callback is added. */
static lk_status check_checkpoints(const lki_run *run)
{
    const lk_train_options *options = &run->given.options;
    bool given = find(run, "Checkpoint") != NULL;
    const char *what = options->load_best_on_end ? "load_best_on_end"
                       : options->autoresume     ? "autoresume"
                       : options->save_every     ? "save_every"
                       : options->min_nodes      ? "min_nodes"
                                                 : "save_every_minutes";
    bool wanted = options->load_best_on_end || options->autoresume || options->save_every ||
                  options->min_nodes || options->save_every_minutes > 0;
    if (options->load_best_on_end && given)
        return lki_fail(LK_ERR_INVALID,
                        "load_best_on_end: the run has a CheckpointCallback of its own: set its "
                        ".load_best_on_end instead");
    if (!wanted || given) return LK_OK;
    if (!run->given.logdir)
        return lki_fail(LK_ERR_INVALID, "%s: the run keeps no checkpoints without a logdir: add one", what);
    if (options->no_checkpoints || options->check || options->overfit || find(run, "SkipCheckpoint"))
        return lki_fail(LK_ERR_INVALID,
                        "%s: this run keeps no checkpoints (no_checkpoints, check, overfit or "
                        "SkipCheckpointCallback): leave one of the two out",
                        what);
    return LK_OK;
}

/* Without an optimizer a train loader would only be evaluated. */
static lk_status check_optimizer(const lk_runner *runner)
{
    const lki_run *run = runner->run;
    bool own_batches = runner->ops && runner->ops->handle_batch;
    if (runner->optimizer || own_batches) return LK_OK;
    char reason[256];
    snprintf(reason, sizeof reason, "%s", lk_error()); /* perhaps its constructor's */
    for (int i = 0; i < run->loaders.count; i++)
        if (strncmp(run->loaders.items[i].key, "train", 5) == 0)
            return lki_fail(
                LK_ERR_INVALID,
                "there is no optimizer to train with on loader \"%s\": add one, or name the loader "
                "\"valid\" if it is only to be evaluated%s%s%s",
                run->loaders.items[i].key, *reason ? " (the last error was: " : "", reason,
                *reason ? ")" : "");
    return LK_OK;
}

lk_status lki_check_run(const lk_runner *runner)
{
    if (runner->run->evaluating) return LK_OK;
    LKI_TRY(check_optimizer(runner));
    return check_checkpoints(runner->run);
}
