/* A criterion of each batch: what it compares, and its value over the samples of a loader: NAME, NAME/mean,
 * NAME/std. */
#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "callbacks/callbacks.h"
#include "resume/metric_state.h"

typedef struct criterion_context {
    char *input_key, *target_key, *metric_key, *criterion_key; /* NULL: the runner's */
    lk_metric *metric; /* made when the run starts: only then is the name known */
} criterion_context;

static const char *name_of(const criterion_context *context, const lk_runner *runner)
{
    return context->metric_key ? context->metric_key : runner->loss_key;
}

/* A handle_batch may compute the loss by itself: then there is a number to report, and no criterion. */
static lk_status start(lk_callback *callback, lk_runner *runner)
{
    criterion_context *context = callback->context;
    const char *name = name_of(context, runner);
    lki_criterion_term term = {.input_key = context->input_key ? context->input_key : runner->output_key,
                               .target_key = context->target_key ? context->target_key : runner->target_key,
                               .metric_key = name,
                               .criterion_key = context->criterion_key};
    bool own_batches = runner->ops && runner->ops->handle_batch;
    if (!context->metric) context->metric = lk_mean_metric(name);
    if (!context->metric) return lki_last_status();
    LKI_TRY(lki_callback_declare_mean(runner, name));
    if (runner->criterion || context->criterion_key || !own_batches)
        LKI_TRY(lki_objective_add_term(runner, term));
    return lki_run_register_metric(runner, context->metric);
}

static lk_status reset(lk_callback *callback, lk_runner *runner)
{
    criterion_context *context = callback->context;
    if (!runner->run->resuming.inside_loader) lk_metric_reset(context->metric);
    return LK_OK;
}

static lk_status update(lk_callback *callback, lk_runner *runner)
{
    criterion_context *context = callback->context;
    const char *name = name_of(context, runner);
    if (!lk_metrics_has(runner->batch_metrics, name)) return LK_OK;
    return lki_run_add_loss(runner, name, context->metric);
}

static lk_status report(lk_callback *callback, lk_runner *runner)
{
    criterion_context *context = callback->context;
    return lki_metric_report(context->metric, runner->loader_metrics);
}

static lk_status save_state(lk_callback *callback, lk_state_dict *state, const char *prefix)
{
    return lki_metric_save(((criterion_context *)callback->context)->metric, state, prefix);
}

static lk_status load_state(lk_callback *callback, const lk_state_dict *state, const char *prefix)
{
    return lki_metric_restore(((criterion_context *)callback->context)->metric, state, prefix);
}

static void free_context(lk_callback *callback)
{
    criterion_context *context = callback->context;
    lk_metric_free(context->metric);
    lki_free(context->input_key);
    lki_free(context->target_key);
    lki_free(context->metric_key);
    lki_free(context->criterion_key);
    lki_free(context);
}

lk_callback *lk_criterion_callback_with(const lk_criterion_callback_options *given)
{
    LKI_TAKE(lk_criterion_callback_options, options, given, NULL);
    static const lk_callback_ops ops = {
        LK_SIZE(lk_callback_ops), .name = "Criterion",      .on_experiment_start = start,
        .on_loader_start = reset, .on_batch_end = update,   .on_loader_end = report,
        .save_state = save_state, .load_state = load_state, .free = free_context,
    };
    lk_callback *callback = lki_callback_new(&ops, sizeof(criterion_context), LK_ORDER_METRIC);
    if (!callback) return NULL;
    criterion_context *context = callback->context;
    callback->may_lag = true;
    const struct {
        char **copy;
        const char *given;
    } keys[] = {{&context->input_key, options.input_key},
                {&context->target_key, options.target_key},
                {&context->metric_key, options.metric_key},
                {&context->criterion_key, options.criterion_key}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        *keys[i].copy = lki_strdup(keys[i].given);
        if (!keys[i].given || *keys[i].copy) continue;
        lk_callback_free(callback);
        return NULL;
    }
    return callback;
}
