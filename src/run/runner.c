/* Making and freeing runners. */
#include "run/run.h"

#include "base/memory.h"
#include "base/take.h"
#include "resume/kept_optimizer.h"
#include "run/metrics.h"
#include "run/several_keys.h"

static void set_keys(lk_runner *runner, const lk_supervised_runner_options *options)
{
    runner->input_key = options->input_key ? options->input_key : "features";
    runner->output_key = options->output_key ? options->output_key : "logits";
    runner->target_key = options->target_key ? options->target_key : "targets";
    runner->loss_key = options->loss_key ? options->loss_key : "loss";
}

/* The library's copy of a custom runner's ops lies behind the runner, in one block. */
typedef struct created_runner {
    lk_runner runner;
    lk_runner_ops ops;
} created_runner;

lk_runner *lk_supervised_runner_with(const lk_supervised_runner_options *given)
{
    LKI_TAKE(lk_supervised_runner_options, options, given, NULL);
    created_runner *made = LKI_NEW(created_runner);
    if (!made) return NULL;
    lk_runner *runner = &made->runner;
    runner->run = LKI_NEW(lki_run);
    runner->batch_metrics = lki_metrics_create();
    runner->epoch_metrics = lki_metrics_create();
    if (!runner->run || !runner->batch_metrics || !runner->epoch_metrics) {
        lk_runner_free(runner);
        return NULL;
    }
    set_keys(runner, &options);
    runner->world_size = 1;
    runner->is_master = true;
    if ((options.input_keys || options.output_keys) && lki_run_use_several_keys(runner, &options) != LK_OK) {
        lk_runner_free(runner);
        return NULL;
    }
    return runner;
}

#undef lk_custom_runner /* the header fills in a size that is missing */
lk_runner *lk_custom_runner(const lk_runner_ops *given, void *context)
{
    LKI_TAKE(lk_runner_ops, ops, given, NULL);
    lk_runner *runner = lk_supervised_runner();
    if (!runner) return NULL;
    created_runner *made = (created_runner *)runner;
    made->ops = ops;
    runner->ops = &made->ops;
    runner->context = context;
    return runner;
}

void lk_runner_free(lk_runner *runner)
{
    if (!runner) return;
    if (runner->ops && runner->ops->free) runner->ops->free(runner);
    if (runner->run) {
        lki_run_teardown(runner);
        lki_step_drop(&runner->step, &runner->run->batch.kept);
        lki_run_free_parts(&runner->run->parts);
        lk_engine_close(runner->run->engine.handle);
    }
    lk_module_free(runner->model);
    lk_criterion_free(runner->criterion);
    lk_optimizer_free(runner->optimizer);
    lk_scheduler_free(runner->scheduler);
    lki_metrics_free(runner->batch_metrics);
    lki_metrics_free(runner->epoch_metrics);
    lki_free(runner->run);
    lki_free(runner);
}
