#include "resume/place_state.h"

#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/state_values.h"
#include "resume/loader_states.h"
#include "run/run.h"
#include "tensor/random.h"

#include <string.h>

enum { FORMAT_VERSION = 1 };

/* The metrics of the loaders that this epoch has already been through: the decisions at its end need them. */
static lk_status save_loader_metrics(const lki_run *run, lk_state_dict *state)
{
    for (int i = 0; i < run->loaders.count; i++) {
        const lki_run_loader *loader = &run->loaders.items[i];
        for (int k = 0; loader->has_metrics && k < lk_metrics_count(loader->metrics); k++) {
            LKI_SCOPED char *name =
                lki_format("metrics.%s.%s", loader->key, lk_metrics_name(loader->metrics, k));
            if (!name) return LK_ERR_NOMEM;
            LKI_TRY(lk_state_dict_put_f64(state, name, lk_metrics_value(loader->metrics, k)));
        }
    }
    return LK_OK;
}

static lk_status restore_loader_metrics(lki_run *run, const lk_state_dict *state)
{
    for (int i = 0; i < run->loaders.count; i++) {
        lki_run_loader *loader = &run->loaders.items[i];
        LKI_SCOPED char *prefix = lki_format("metrics.%s.", loader->key);
        if (!prefix) return LK_ERR_NOMEM;
        for (int64_t k = 0; k < lk_state_dict_count(state); k++) {
            const char *name = lk_state_dict_name(state, k);
            double value;
            if (strncmp(name, prefix, strlen(prefix)) != 0) continue;
            LKI_TRY(lk_state_dict_get_f64(state, name, &value));
            LKI_TRY(lk_metrics_set(loader->metrics, name + strlen(prefix), value));
            loader->has_metrics = true;
        }
    }
    return LK_OK;
}

/* Between two epochs the last one may not have been reported yet. Only the master reports. */
static lk_status save_table(lk_runner *runner, lk_state_dict *state)
{
    lki_run *run = runner->run;
    if (!run->inside_epoch && runner->is_master) LKI_TRY(lki_epoch_table_add(&run->reporting.table, runner));
    return lki_epoch_table_save(&run->reporting.table, state);
}

lk_status lki_place_save(lk_runner *runner, lk_state_dict *state)
{
    const lki_run *run = runner->run;
    lk_loader_state loader;
    bool inside = run->inside_epoch;
    LKI_TRY(lk_state_dict_put_i64(state, "runner.format", FORMAT_VERSION));
    LKI_TRY(lk_state_dict_put_i64(state, "runner.epoch_step", runner->epoch_step));
    LKI_TRY(lk_state_dict_put_i64(state, "runner.batch_step", runner->batch_step));
    LKI_TRY(lk_state_dict_put_i64(state, "runner.sample_step", runner->sample_step));
    LKI_TRY(lk_state_dict_put_i64(state, "runner.seed", (int64_t)runner->seed));
    LKI_TRY(lk_state_dict_put_i64(state, "runner.world_size", runner->world_size));
    LKI_TRY(lk_state_dict_put_i64(state, "runner.shards", lki_run_shards(runner)));
    LKI_TRY(lk_state_dict_put_i64(state, "runner.inside_epoch", inside));
    if (run->given.options.max_minutes > 0)
        LKI_TRY(lk_state_dict_put_f64(state, "runner.minutes", lki_limits_minutes(runner)));
    LKI_TRY(lki_state_dict_put_bytes(state, "generator", lk_default_generator(), sizeof(lk_generator)));
    LKI_TRY(lki_loader_states_save(&run->loaders, state));
    LKI_TRY(save_table(runner, state));
    if (!inside) return LK_OK;
    LKI_TRY(lk_state_dict_put_i64(state, "runner.loader", run->loaders.current));
    LKI_TRY(lk_state_dict_put_i64(state, "runner.loader_batch_step", runner->loader_batch_step));
    LKI_TRY(lk_state_dict_put_i64(state, "runner.loader_sample_step", runner->loader_sample_step));
    LKI_TRY(lk_state_dict_put_i64(state, "runner.loader_batch_size", lk_loader_batch_size(runner->loader)));
    LKI_TRY(save_loader_metrics(run, state));
    lk_loader_save(runner->loader, &loader);
    return lki_state_dict_put_bytes(state, "loader", &loader, sizeof loader);
}

/* The place in a pass is a number of batches. Of another size that is another place, except at the start. */
static lk_status check_batch_size(const lk_runner *runner, const lk_state_dict *state)
{
    const lki_run *run = runner->run;
    const char *name = "runner.loader_batch_size";
    int64_t own = lk_loader_batch_size(run->loaders.items[run->resuming.first_loader].loader), saved = own;
    if (lk_state_dict_has(state, name)) LKI_TRY(lk_state_dict_get_i64(state, name, &saved));
    if (saved == own || run->resuming.loader_batch_step == 0) return LK_OK;
    return lki_fail(
        LK_ERR_INVALID,
        "the run was stopped in the middle of epoch %lld with batch size %lld and cannot continue it with "
        "%lld: finish the epoch as it was begun (num_epochs %lld), then change them",
        (long long)runner->epoch_step, (long long)saved, (long long)own, (long long)runner->epoch_step);
}

static lk_status restore_generator(const lk_state_dict *state)
{
    lk_generator saved;
    LKI_TRY(lki_state_dict_get_bytes(state, "generator", &saved, sizeof saved));
    LKI_TRY(lki_generator_check(&saved, "generator"));
    *lk_default_generator() = saved;
    return LK_OK;
}

/* The rest of an epoch is dealt out as its beginning was. */
static lk_status check_shares(const lk_runner *runner, const lk_state_dict *state, int64_t world)
{
    int64_t saved = 0, own = lki_run_shards(runner);
    if (lk_state_dict_has(state, "runner.shards"))
        LKI_TRY(lk_state_dict_get_i64(state, "runner.shards", &saved));
    if (saved != own)
        return lki_fail(
            LK_ERR_INVALID,
            "the run was stopped inside an epoch with shards %lld and cannot go on with %lld there",
            (long long)saved, (long long)own);
    if (own || world == runner->world_size) return LK_OK;
    return lki_fail(LK_ERR_INVALID,
                    "the run was stopped inside an epoch with %lld ranks and cannot go on with %d there",
                    (long long)world, runner->world_size);
}

lk_status lki_place_restore(lk_runner *runner, const lk_state_dict *state)
{
    lki_run *run = runner->run;
    int64_t format, inside, loader, world;
    LKI_TRY(lk_state_dict_get_i64(state, "runner.format", &format));
    if (format != FORMAT_VERSION)
        return lki_fail(LK_ERR_UNSUPPORTED, "runner checkpoint of format %lld, this library reads %d",
                        (long long)format, FORMAT_VERSION);
    LKI_TRY(lki_state_dict_get_counter(state, "runner.epoch_step", &runner->epoch_step));
    LKI_TRY(lki_state_dict_get_counter(state, "runner.batch_step", &runner->batch_step));
    LKI_TRY(lki_state_dict_get_counter(state, "runner.sample_step", &runner->sample_step));
    LKI_TRY(lki_state_dict_get_counter(state, "runner.world_size", &world));
    LKI_TRY(lk_state_dict_get_i64(state, "runner.inside_epoch", &inside));
    if (lk_state_dict_has(state, "runner.minutes"))
        LKI_TRY(lk_state_dict_get_f64(state, "runner.minutes", &run->limits.earlier_min));
    LKI_TRY(restore_generator(state));
    LKI_TRY(lki_loader_states_restore(runner, state));
    LKI_TRY(lki_epoch_table_restore(&run->reporting.table, state));
    runner->seed = lk_default_generator()->seed;
    run->resuming.inside_epoch = inside;
    if (!inside) return LK_OK;
    LKI_TRY(check_shares(runner, state, world));
    LKI_TRY(lk_state_dict_get_i64(state, "runner.loader", &loader));
    if (loader < 0 || loader >= run->loaders.count)
        return lki_fail(LK_ERR_INVALID, "the run was stopped in loader %lld, but there are only %d",
                        (long long)loader, run->loaders.count);
    run->resuming.first_loader = (int)loader;
    LKI_TRY(lki_state_dict_get_counter(state, "runner.loader_batch_step", &run->resuming.loader_batch_step));
    LKI_TRY(check_batch_size(runner, state));
    LKI_TRY(
        lki_state_dict_get_counter(state, "runner.loader_sample_step", &run->resuming.loader_sample_step));
    run->resuming.loader_state = LKI_NEW(lk_loader_state);
    if (!run->resuming.loader_state) return LK_ERR_NOMEM;
    LKI_TRY(lki_state_dict_get_bytes(state, "loader", run->resuming.loader_state,
                                     sizeof *run->resuming.loader_state));
    /* Rank 0 has saved it; the order is the same for all. */
    run->resuming.loader_state->rank = runner->rank * lki_run_own_share_count(runner);
    return restore_loader_metrics(run, state);
}
