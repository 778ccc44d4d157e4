/* What a batch of a training config costs here: its run is begun, and ended at the first batch, whose step is
 * timed. Nothing is written. */
#include "cli/bench/measure_config.h"
#include "config/call_parts.h"
#include "config/config.h"

#include "base/memory.h"
#include "base/status.h"
#include "base/threads.h"
#include "data/loader.h"

#include <lockstep/callback.h>

#include <limits.h>
#include <string.h>

typedef struct measurement {
    lki_workload *out;
    lki_step_ops *ops; /* or NULL */
    const char *name;
    double seconds;
    bool done;
} measurement;

/* The run has no further use: it ends as if it had been stopped. */
static lk_status measure_batch(lk_callback *callback, lk_runner *runner)
{
    measurement *m = callback->context;
    if (!runner->step) return lki_fail(LK_ERR_UNSUPPORTED, "this config's runner has no step to measure");
    LKI_TRY(lki_workload_measure(m->out, runner->step, m->name, m->seconds));
    m->out->batch_size = runner->batch_size;
    if (m->ops) LKI_TRY(lki_step_ops_measure(m->ops, runner->step, m->seconds / 2));
    m->done = true;
    return lki_fail(LK_ERR_STOPPED, "measured");
}

static lk_status take_all(lk_args *args, lki_call_lists *l, lk_train_options *options)
{
    lk_runner *runner = lk_args_runner(args);
    LKI_TRY(lki_call_take_model(args, &options->model));
    LKI_TRY(
        lki_call_take_optimizer(args, options->model ? options->model : runner->model, &options->optimizer));
    LKI_TRY(lki_call_take_criterion(args, &options->criterion));
    return lki_call_take_loaders(args, l, &options->loaders);
}

/* Of the config's callbacks, those that say what the loss is; the others are freed. */
static lk_status keep_losses(lk_args *args, lki_call_lists *l, lk_train_options *options)
{
    static const char *const names[] = {"Criterion", "Backward", "MetricAggregation"};
    lk_status status = lki_call_take_callbacks(args, l, &options->callbacks);
    int kept = 0;
    for (int i = 0; i < options->callbacks.count; i++) {
        lk_callback *callback = l->callbacks[i];
        bool says = false;
        for (int k = 0; callback && k < 3; k++) says = says || !strcmp(callback->ops->name, names[k]);
        if (says)
            l->callbacks[kept++] = callback;
        else if (callback)
            lk_callback_free(callback);
    }
    options->callbacks.count = kept;
    return status;
}

static void drop_all(const lk_train_options *options)
{
    for (int i = 0; i < options->loaders.count; i++) lk_loader_free(options->loaders.items[i].loader);
    for (int i = 0; i < options->callbacks.count; i++) lk_callback_free(options->callbacks.items[i]);
    lk_module_free(options->model);
    lk_criterion_free(options->criterion);
    lk_optimizer_free(options->optimizer);
}

/* The loader that trains alone, whose batches the ranks divide; the others are freed. */
static lk_status keep_train_loader(lk_train_options *options, int64_t global_batch)
{
    int kept = 0;
    lk_named_loader *items = (lk_named_loader *)options->loaders.items;
    for (int i = 0; i < options->loaders.count; i++) {
        if (!kept && strncmp(items[i].key, "train", strlen("train")) == 0)
            items[kept++] = items[i];
        else
            lk_loader_free(items[i].loader);
    }
    options->loaders.count = kept;
    if (!kept) return lki_fail(LK_ERR_CONFIG, "the config has no loader that trains");
    return lki_loader_set_batch_size(items[0].loader, global_batch / options->nproc);
}

static lk_status take_trial(lk_args *args, lki_call_lists *l, lk_train_options *options,
                            const lki_trial_run *trial)
{
    LKI_TRY(lki_call_read_engine(args, options));
    options->ddp = false;
    options->nproc = trial->ranks;
    lk_status status = take_all(args, l, options);
    if (status == LK_OK) status = keep_losses(args, l, options);
    if (status == LK_OK && args->status) status = args->status;
    if (status == LK_OK && trial->ranks) status = keep_train_loader(options, trial->global_batch);
    return status;
}

lk_status lki_config_run_trial(lk_config *config, lki_plan *plan, const lki_trial_run *trial)
{
    lki_object *call = lki_config_find_call(config, "train");
    lk_callback *callback = trial->callback_owned;
    if (!call || !callback) {
        lk_callback_free(callback);
        return callback ? lki_fail(LK_ERR_CONFIG, "the config has no call of train to measure")
                        : lki_last_status();
    }
    lk_args args = {.plan = plan, .object = call};
    lki_call_lists l = {0};
    lk_train_options options = {LK_SIZE(lk_train_options), .num_epochs = trial->minutes > 0 ? INT_MAX : 1,
                                .max_minutes = trial->minutes, .thread_count = trial->thread_count,
                                .no_checkpoints = true};
    lki_place_text(call->node->place, args.place, sizeof args.place);
    lk_status status = take_trial(&args, &l, &options, trial);
    if (status) {
        drop_all(&options);
        lk_callback_free(callback);
    } else {
        l.callbacks[options.callbacks.count++] = callback; /* there is room for one more */
        status = lk_train_with(lk_args_runner(&args), &options);
    }
    lki_call_lists_fini(&l);
    return status;
}

lk_status lki_config_measure(lk_config *config, lki_plan *plan, lki_workload *out, lki_step_ops *ops,
                             const char *name, int thread_count, double seconds)
{
    *out = (lki_workload){0};
    if (ops) *ops = (lki_step_ops){0};
    measurement m = {.out = out, .ops = ops, .name = name, .seconds = seconds};
    lki_trial_run trial = {.thread_count = thread_count,
                           .callback_owned = lk_on(batch_end, measure_batch, &m)};
    lk_status status = lki_config_run_trial(config, plan, &trial);
    if (m.done && status == LK_ERR_STOPPED) status = LK_OK;
    if (status) lki_workload_fini(out);
    if (status && ops) lki_step_ops_fini(ops);
    return status;
}

lk_status lki_config_batch(lk_config *config, lki_plan *plan, int *ranks, int64_t *batch_size)
{
    lki_object *call = lki_config_find_call(config, "train");
    if (!call) return lki_fail(LK_ERR_CONFIG, "the config has no call of train to measure");
    lk_args args = {.plan = plan, .object = call};
    lki_call_lists l = {0};
    lk_train_options options = {LK_SIZE(lk_train_options)};
    lki_place_text(call->node->place, args.place, sizeof args.place);
    lk_status status = lki_call_read_engine(&args, &options);
    *ranks = options.nproc > 0 ? options.nproc : options.ddp ? lki_core_count() : 1;
    if (status == LK_OK) status = take_all(&args, &l, &options);
    *batch_size = 0;
    for (int i = options.loaders.count - 1; i >= 0; i--)
        if (strncmp(options.loaders.items[i].key, "train", strlen("train")) == 0)
            *batch_size = lk_loader_batch_size(options.loaders.items[i].loader);
    drop_all(&options);
    lki_call_lists_fini(&l);
    if (status == LK_OK && *batch_size == 0)
        return lki_fail(LK_ERR_CONFIG, "the config has no loader that trains");
    return status;
}
