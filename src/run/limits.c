#include "run/limits.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "nn/module.h"
#include "run/run.h"

#include <string.h>

static bool trains(const lki_run_loader *entry)
{
    return strncmp(entry->key, "train", strlen("train")) == 0;
}

static int64_t pieces_of(int64_t batches, int64_t every)
{
    return every > 0 ? batches / every + (batches % every > 0) : 1;
}

/* ---- What the limits come to ---- */

/* The batches that a pass over the train loaders takes. */
static lk_status count_batches(const lk_runner *runner, int64_t *out, int *loaders)
{
    const lki_run *run = runner->run;
    *out = *loaders = 0;
    for (int i = 0; i < run->loaders.count; i++) {
        const lki_run_loader *entry = &run->loaders.items[i];
        lk_pass_size size;
        if (!trains(entry)) continue;
        lk_pass_options pass = lki_run_pass_of(runner, runner->rank, true);
        LKI_TRY(lk_loader_size(entry->loader, &pass, &size));
        int64_t batches = lki_run_limit_batches(run, entry, size.batch_count);
        *out = batches == LK_LENGTH_UNKNOWN || *out == LK_LENGTH_UNKNOWN ? LK_LENGTH_UNKNOWN : *out + batches;
        ++*loaders;
    }
    return LK_OK;
}

static lk_status check_division(const lk_runner *runner, int train_loaders)
{
    if (train_loaders != 1)
        return lki_fail(LK_ERR_INVALID, "valid_every: the run has %d train loaders: divide one alone",
                        train_loaders);
    for (int i = 0; i < runner->run->loaders.count; i++)
        if (trains(&runner->run->loaders.items[i]) && runner->run->loaders.items[i].repeat)
            return lki_fail(
                LK_ERR_INVALID,
                "valid_every: loader \"%s\" repeats its first batches (BatchOverfitCallback): leave "
                "one of the two out",
                runner->run->loaders.items[i].key);
    if (runner->run->loaders.count == 1)
        return lki_fail(LK_ERR_INVALID,
                        "valid_every: there is no loader besides \"%s\" to go through: add a valid loader",
                        runner->run->loaders.items[0].key);
    return LK_OK;
}

lk_status lki_limits_settle(lk_runner *runner)
{
    lki_run *run = runner->run;
    const lk_train_options *options = &run->given.options;
    int64_t every = options->valid_every, steps = options->max_steps, batches;
    int train_loaders;
    run->limits.begun_ns = lki_now_ns();
    if (run->evaluating || (!every && !steps && options->max_minutes <= 0)) return LK_OK;
    LKI_TRY(count_batches(runner, &batches, &train_loaders));
    if (train_loaders == 0)
        return lki_fail(LK_ERR_INVALID, "%s: the run has no train loader",
                        every   ? "valid_every"
                        : steps ? "max_steps"
                                : "max_minutes");
    if (every) LKI_TRY(check_division(runner, train_loaders));
    bool by_steps = steps > 0 && options->num_epochs == 0 && !options->check;
    if (every && batches == LK_LENGTH_UNKNOWN && !by_steps)
        return lki_fail(
            LK_ERR_UNSUPPORTED,
            "valid_every: the train loader reads a stream, and how many batches it has is not known: "
            "set max_steps instead of num_epochs");
    if (every && !run->limits.has_divided && !by_steps) runner->num_epochs *= pieces_of(batches, every);
    run->limits.has_divided = every > 0;
    run->limits.by_steps = steps > 0 && options->num_epochs == 0 && !options->check;
    if (run->limits.by_steps && batches > 0)
        runner->num_epochs =
            steps / batches * pieces_of(batches, every) + pieces_of(steps % batches, every ? every : batches);
    if (options->max_minutes > 0 && !run->resuming.inside_epoch &&
        run->limits.earlier_min >= options->max_minutes)
        runner->need_early_stop = true;
    return LK_OK;
}

bool lki_limits_steps_done(const lk_runner *runner)
{
    int64_t steps = runner->run->given.options.max_steps;
    return steps > 0 && runner->batch_step >= steps;
}

double lki_limits_minutes(const lk_runner *runner)
{
    const lki_run_limits *limits = &runner->run->limits;
    return limits->earlier_min + (double)(lki_now_ns() - limits->begun_ns) / 60e9;
}

/* An epoch without a batch has no metrics, so that each trains on one at least. */
bool lki_limits_time_is_up(const lk_runner *runner)
{
    double minutes = runner->run->given.options.max_minutes;
    return minutes > 0 && runner->is_train_loader && runner->rank == 0 && runner->loader_batch_step > 0 &&
           lki_limits_minutes(runner) >= minutes;
}

/* ---- Pieces of a pass ---- */

int64_t lki_limits_first_batch(const lk_runner *runner)
{
    lk_loader_state state;
    lk_loader_save(runner->loader, &state);
    return state.next_batch - runner->loader_batch_step;
}

int64_t lki_limits_piece(const lk_runner *runner, int64_t first, int64_t count)
{
    const lk_train_options *options = &runner->run->given.options;
    int64_t piece = count == LK_LENGTH_UNKNOWN ? count : count - first;
    int64_t steps_left = options->max_steps - runner->batch_step + runner->loader_batch_step;
    if (options->valid_every > 0 && piece > options->valid_every) piece = options->valid_every;
    if (options->max_steps > 0 && piece > steps_left) piece = steps_left;
    return piece;
}

lk_status lki_limits_keep_place(lk_runner *runner, lki_run_loader *entry, int64_t count)
{
    lk_loader_state place;
    lki_free(entry->cut);
    entry->cut = NULL;
    if (!runner->is_train_loader || entry->repeat) return LK_OK;
    lk_loader_save(entry->loader, &place);
    bool is_over = lki_limits_steps_done(runner) || runner->run->stop.time_is_up;
    bool is_divided = runner->run->given.options.valid_every > 0 && !runner->need_loader_stop;
    if ((!is_over && !is_divided) || !place.in_pass || place.next_batch >= count) return LK_OK;
    if (!(entry->cut = LKI_NEW(lk_loader_state))) return LK_ERR_NOMEM;
    *entry->cut = place;
    return LK_OK;
}

/* ---- Freezing ---- */

static lk_status freeze(const lk_param_list *params, const char *pattern)
{
    int count = 0;
    for (int i = 0; i < params->count; i++) {
        lk_param *param = params->items[i].param;
        if (param->is_buffer || !lki_matches_one_of(pattern, params->items[i].path)) continue;
        param->trainable = false;
        count++;
    }
    if (count) return LK_OK;
    return lki_fail(LK_ERR_NOT_FOUND, "freeze: \"%s\" matches none of the model's parameters, as in \"%s\"",
                    pattern, params->count ? params->items[0].path : "");
}

lk_status lki_limits_freeze(const lk_runner *runner)
{
    const char *patterns = runner->run->given.options.freeze;
    lk_param_list params;
    if (!patterns) return LK_OK;
    if (!runner->model)
        return lki_fail(LK_ERR_INVALID, "freeze: the runner has no model of its own: call "
                                        "lk_module_set_trainable");
    LKI_SCOPED char *copy = lki_strdup(patterns);
    if (!copy) return LK_ERR_NOMEM;
    LKI_TRY(lki_module_params(runner->model, &params));
    lk_status status = LK_OK;
    char *rest = NULL;
    for (char *one = strtok_r(copy, ", ", &rest); one && !status; one = strtok_r(NULL, ", ", &rest))
        status = freeze(&params, one);
    lk_param_list_free(&params);
    return status;
}
