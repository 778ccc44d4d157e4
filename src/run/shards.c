#include "run/shards.h"

#include "base/memory.h"
#include "base/status.h"
#include "data/loader.h"
#include "metric/mean.h"
#include "run/run.h"
#include "step/step.h"
#include "tensor/element.h"

#include <stdio.h>
#include <string.h>

enum { MAX_SHARDS = 1 << LKI_SHARD_LEVELS };

int lki_run_shards(const lk_runner *runner)
{
    int shards = runner->run->evaluating ? 0 : runner->run->given.options.shards;
    return shards > 1 ? shards : 0;
}

int lki_run_share_count(const lk_runner *runner)
{
    int shards = lki_run_shards(runner);
    return shards ? shards : runner->world_size;
}

int lki_run_own_share_count(const lk_runner *runner)
{
    return lki_run_share_count(runner) / runner->world_size;
}

bool lki_run_is_shared(const lk_runner *runner)
{
    return lki_run_share_count(runner) > 1;
}

/* ---- What cannot be ---- */

lk_status lki_check_shards(const lk_train_options *options)
{
    int shards = options->shards;
    const struct {
        const char *name;
        bool is_set;
        const char *why;
    } others[] = {
        {"local_gradients", options->local_gradients, "the shards' gradients are always averaged"},
        {"compress_gradients", options->compress_gradients, "what is left out would depend on the ranks"},
        {"sync_batch_norm", options->sync_batch_norm, "a shard has the statistics of its own batch"},
    };
    if (shards < 0 || shards > MAX_SHARDS || (shards & (shards - 1)) != 0)
        return lki_fail(LK_ERR_INVALID,
                        "shards: expected a power of two up to %d, or 0 for a shard per rank, found %d",
                        MAX_SHARDS, shards);
    for (size_t i = 0; shards && i < sizeof others / sizeof *others; i++)
        if (others[i].is_set)
            return lki_fail(LK_ERR_INVALID, "shards: %s cannot be had with them: %s", others[i].name,
                            others[i].why);
    return LK_OK;
}

/* "1, 2, 4 or 8" */
static void list_divisors(char *text, size_t capacity, int shards)
{
    size_t used = 0;
    for (int ranks = 1; ranks <= shards && used < capacity; ranks *= 2)
        used += (size_t)snprintf(text + used, capacity - used, "%s%d",
                                 ranks == 1        ? ""
                                 : ranks == shards ? " or "
                                                   : ", ",
                                 ranks);
}

lk_status lki_run_check_shards(const lk_runner *runner)
{
    int shards = runner->run->given.options.shards;
    const char *engine = lk_engine_name(runner->engine);
    char divisors[64];
    if (!shards || runner->run->evaluating) return LK_OK;
    if (runner->ops && runner->ops->handle_batch)
        return lki_fail(LK_ERR_UNSUPPORTED,
                        "shards: a handle_batch of your own sees a rank's batch, not a shard's: leave one "
                        "of the two out");
    list_divisors(divisors, sizeof divisors, shards);
    if (runner->world_size > shards || shards % runner->world_size != 0)
        return lki_fail(LK_ERR_INVALID, "shards: %d ranks cannot share %d shards: start %s ranks",
                        runner->world_size, shards, divisors);
    if (strcmp(engine, "cpu") != 0 && strcmp(engine, "ref") != 0)
        return lki_fail(LK_ERR_UNSUPPORTED,
                        "shards: the same bits on any number of ranks need device cpu or ref, not %s",
                        engine);
    return LK_OK;
}

/* ---- The data ---- */

lk_pass_options lki_run_pass_of(const lk_runner *runner, int rank, bool train)
{
    return (lk_pass_options){LK_SIZE(lk_pass_options), .rank = rank * lki_run_own_share_count(runner),
                             .world = lki_run_share_count(runner), .train = train};
}

/* ---- The step ---- */

bool lki_run_has_its_shards(const lk_runner *runner, const lk_step *step)
{
    int total = lki_run_shards(runner);
    return step->shards.total == total && (!total || step->shards.own == total / runner->world_size);
}

lk_status lki_run_shard_step(const lk_runner *runner, lk_step *step)
{
    return lki_shards_init(step, lki_run_shards(runner), runner->world_size);
}

lk_status lki_run_place_shards(lk_runner *runner, const lk_batch *batch)
{
    int own = runner->step->shards.own;
    int64_t rows = 0;
    if (!lki_shards_are_on(&runner->step->shards) || runner->run->evaluating) return LK_OK;
    LKI_SCOPED lki_batch_share *places = LKI_NEW_ARRAY(lki_batch_share, own);
    if (!places) return LK_ERR_NOMEM;
    if (own == 1)
        places[0] = (lki_batch_share){.count = batch->count - batch->padding,
                                      .pad_first = batch->count - batch->padding,
                                      .pad_count = batch->padding};
    else
        lki_loader_last_shares(runner->loader, places);
    for (int i = 0; i < own; i++) rows += lki_share_rows(&places[i]);
    if (rows != batch->count)
        return lki_fail(
            LK_ERR_INVALID,
            "shards: a batch of %lld samples is not the loader's, which has %lld: only batches of "
            "the run's loaders can be split",
            (long long)batch->count, (long long)rows);
    lki_shards_place(runner->step, places);
    return LK_OK;
}

/* The sum of a shard's samples, where the batch's samples are known. */
static lk_status add_samples(lk_metric *metric, const lki_sample_losses *losses, const lki_batch_share *place)
{
    double sum = 0, weight = 0;
    for (int64_t i = place->first; i < place->first + place->count; i++) {
        sum += losses->sums[i];
        weight += losses->weights[i];
    }
    return weight != 0 ? lk_metric_update_value(metric, sum / weight, place->count) : LK_OK;
}

/* Not one that a callback has put in its place. */
static bool is_shards_number(lk_step *step, const char *name, double value)
{
    double first;
    if (!step || !step->shards.has_batch || !lki_shards_number(step, name, 0, &first)) return false;
    const lk_tensor *mean = lki_shards_output(step, name);
    return mean && lki_load(mean->dtype, mean->data, 0) == value;
}

/* A shard with padding must not count all that its loss is the mean of. */
lk_status lki_run_add_shards(lk_runner *runner, const char *name, double value, lk_metric *metric, bool *done)
{
    lk_step *step = runner->step;
    const lki_sample_losses *losses = NULL;
    bool is_loss = step && strcmp(name, step->options.loss_key) == 0;
    *done = is_loss ? step->shards.has_batch && step->loss == value : is_shards_number(step, name, value);
    if (!*done) return LK_OK;
    if (is_loss && step->current->sample_rule.output)
        LKI_TRY(lki_step_sample_losses(step, runner->batch, runner->counted_batch_size, &losses));
    for (int i = 0; i < step->shards.own; i++) {
        const lki_batch_share *place = &step->shards.places[i];
        if (place->count == 0) continue;
        if (losses && losses->count && place->pad_count) {
            LKI_TRY(add_samples(metric, losses, place));
        } else if (lki_shards_number(step, name, i, &value)) {
            LKI_TRY(lk_metric_update_value(metric, value, place->count));
        }
    }
    return LK_OK;
}
