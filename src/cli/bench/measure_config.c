/* What a batch of a training config costs here: its run is begun, and ended at the first batch, whose step is
 * timed. Nothing is written. */
#include "cli/bench/measure_config.h"
#include "config/call_parts.h"
#include "config/config.h"

#include "base/memory.h"
#include "base/status.h"

#include <lockstep/callback.h>

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

static void drop_all(const lk_train_options *options)
{
    for (int i = 0; i < options->loaders.count; i++) lk_loader_free(options->loaders.items[i].loader);
    lk_module_free(options->model);
    lk_criterion_free(options->criterion);
    lk_optimizer_free(options->optimizer);
}

lk_status lki_config_measure(lk_config *config, lki_plan *plan, lki_workload *out, lki_step_ops *ops,
                             const char *name, int thread_count, double seconds)
{
    lki_object *call = lki_config_find_call(config, "train");
    *out = (lki_workload){0};
    if (ops) *ops = (lki_step_ops){0};
    if (!call) return lki_fail(LK_ERR_CONFIG, "the config has no call of train to measure");
    lk_args args = {.plan = plan, .object = call};
    lki_call_lists l = {0};
    measurement m = {.out = out, .ops = ops, .name = name, .seconds = seconds};
    lk_train_options options = {LK_SIZE(lk_train_options), .num_epochs = 1, .thread_count = thread_count,
                                .no_checkpoints = true};
    lki_place_text(call->node->place, args.place, sizeof args.place);
    LKI_TRY(lki_call_read_engine(&args, &options));
    options.ddp = false;
    options.nproc = 0;
    lk_status status = take_all(&args, &l, &options);
    if (status == LK_OK && args.status) status = args.status;
    lk_callback *callback = status ? NULL : lk_on(batch_end, measure_batch, &m);
    if (!status && !callback) status = lki_last_status();
    if (status) {
        drop_all(&options);
    } else {
        options.callbacks = (lk_callback_list){&callback, 1};
        status = lk_train_with(lk_args_runner(&args), &options);
        if (m.done && status == LK_ERR_STOPPED) status = LK_OK;
    }
    lki_call_lists_fini(&l);
    if (status) lki_workload_fini(out);
    if (status && ops) lki_step_ops_fini(ops);
    return status;
}
