/* How updates are made (accumulation, clipping), and the learning rate and momentum among the metrics. */
#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "callbacks/callbacks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct optimizer_context {
    lk_optimizer_callback_options options;
    char *metric_key, *optimizer_key;
    lki_accumulation_change changes[LKI_MAX_ACCUMULATION_CHANGES];
    int change_count;
} optimizer_context;

/* "5: 2, 10: 4": epochs from which on an update takes so many batches. */
static lk_status read_schedule(optimizer_context *context, const char *text)
{
    for (const char *at = text; text && *at;) {
        char *end;
        lki_accumulation_change *change = &context->changes[context->change_count];
        if (context->change_count == LKI_MAX_ACCUMULATION_CHANGES)
            return lki_fail(LK_ERR_INVALID, "accumulation_schedule: it has more than %d entries",
                            LKI_MAX_ACCUMULATION_CHANGES);
        change->epoch = strtoll(at, &end, 10);
        bool is_read = end != at;
        at = end + strspn(end, " ");
        is_read = is_read && *at == ':';
        long long steps = is_read ? strtoll(at + 1, &end, 10) : 0;
        change->steps = (int)steps;
        at = end + strspn(end, " ,");
        bool is_next = context->change_count == 0 || change->epoch > change[-1].epoch;
        if (!is_read || change->epoch < 1 || steps < 1 || steps > INT32_MAX || !is_next)
            return lki_fail(LK_ERR_INVALID,
                            "accumulation_schedule: expected rising epochs and batches per update, as in "
                            "\"5: 2, 10: 4\", found \"%s\"",
                            text);
        context->change_count++;
    }
    return LK_OK;
}

/* The step is made for the most batches per update. */
static void ask_for_schedule(const optimizer_context *context, lki_run_batch *batch)
{
    int most = batch->step_options.accumulation_steps > 1 ? batch->step_options.accumulation_steps : 1;
    if (!context->change_count) return;
    batch->first_steps = most;
    batch->change_count = context->change_count;
    memcpy(batch->changes, context->changes, sizeof batch->changes);
    for (int i = 0; i < context->change_count; i++)
        if (context->changes[i].steps > most) most = context->changes[i].steps;
    batch->step_options.accumulation_steps = most;
}

static const lk_optimizer *optimizer_of(const optimizer_context *context, const lk_runner *runner)
{
    return context->optimizer_key ? lk_runner_optimizer(runner, context->optimizer_key) : runner->optimizer;
}

/* "lr", or of an optimizer by its key "lr/KEY". */
static const char *name_in(char *buffer, size_t capacity, const char *name, const char *key)
{
    snprintf(buffer, capacity, "%s%s%s", name, key ? "/" : "", key ? key : "");
    return buffer;
}

static lk_status declare(const optimizer_context *context, lk_runner *runner)
{
    char name[128];
    const char *key = context->optimizer_key;
    LKI_TRY(lk_runner_declare_metric(runner, name_in(name, sizeof name, "lr", key)));
    LKI_TRY(lk_runner_declare_metric(runner, name_in(name, sizeof name, "momentum", key)));
    return key ? LK_OK : lk_runner_declare_metric(runner, "lr/group_*");
}

static lk_status start(lk_callback *callback, lk_runner *runner)
{
    const optimizer_context *context = callback->context;
    const lk_optimizer_callback_options *options = &context->options;
    lk_step_options *step = &runner->run->batch.step_options;
    if (context->optimizer_key && !optimizer_of(context, runner))
        return lki_fail(LK_ERR_NOT_FOUND, "OptimizerCallback: there is no optimizer \"%s\"",
                        context->optimizer_key);
    /* What one leaves open another may say: Catalyst clips in one callback and accumulates in the other. */
    if (options->accumulation_steps) step->accumulation_steps = options->accumulation_steps;
    ask_for_schedule(context, &runner->run->batch);
    if (options->restart_each_epoch) runner->run->batch.restarts_groups = true;
    if (options->clip_norm > 0) step->clip_norm = options->clip_norm;
    if (options->clip_value > 0) step->clip_value = options->clip_value;
    if (!context->optimizer_key)
        LKI_TRY(lki_objective_minimize(runner, "OptimizerCallback", context->metric_key));
    return declare(context, runner);
}

/* Those of the first group, as Catalyst does; the rates of all of them if there are several. */
static lk_status put_numbers(const optimizer_context *context, const lk_runner *runner, lk_metrics *metrics)
{
    char name[128];
    const lk_optimizer *optimizer = optimizer_of(context, runner);
    const char *key = context->optimizer_key;
    if (!runner->is_train_loader || !optimizer) return LK_OK;
    int groups = lk_optimizer_group_count(optimizer);
    LKI_TRY(lk_metrics_set(metrics, name_in(name, sizeof name, "lr", key), lk_optimizer_lr(optimizer, 0)));
    LKI_TRY(lk_metrics_set(metrics, name_in(name, sizeof name, "momentum", key),
                           lk_optimizer_momentum(optimizer, 0)));
    for (int i = 0; !key && groups > 1 && i < groups; i++) {
        snprintf(name, sizeof name, "lr/group_%02d", i);
        LKI_TRY(lk_metrics_set(metrics, name, lk_optimizer_lr(optimizer, i)));
    }
    return LK_OK;
}

static lk_status report_batch(lk_callback *callback, lk_runner *runner)
{
    if (runner->run->reporting.wants_batch_metrics)
        return put_numbers(callback->context, runner, runner->batch_metrics);
    lki_run_rest(runner, callback, LKI_MOMENT_batch_end);
    return LK_OK;
}

static lk_status report_loader(lk_callback *callback, lk_runner *runner)
{
    return put_numbers(callback->context, runner, runner->loader_metrics);
}

static void free_context(lk_callback *callback)
{
    optimizer_context *context = callback->context;
    lki_free(context->metric_key);
    lki_free(context->optimizer_key);
    lki_free(context);
}

static lk_status check(const lk_optimizer_callback_options *options)
{
    if (options->accumulation_steps < 0 || !(options->clip_norm >= 0) || !(options->clip_value >= 0))
        return lki_fail(LK_ERR_INVALID,
                        "OptimizerCallback: accumulation_steps and clipping must not be negative");
    if (options->restart_each_epoch && options->accumulation_steps < 2 && !options->accumulation_schedule)
        return lki_fail(LK_ERR_INVALID,
                        "OptimizerCallback: restart_each_epoch needs accumulation_steps above 1");
    if (options->optimizer_key && (options->accumulation_steps > 1 || options->accumulation_schedule ||
                                   options->clip_norm > 0 || options->clip_value > 0))
        return lki_fail(LK_ERR_INVALID,
                        "OptimizerCallback: an optimizer by key belongs to your own step: set "
                        "accumulation_steps and clipping in the options of lk_runner_step");
    return LK_OK;
}

lk_callback *lk_optimizer_callback_with(const lk_optimizer_callback_options *given)
{
    LKI_TAKE(lk_optimizer_callback_options, options, given, NULL);
    static const lk_callback_ops ops = {
        LK_SIZE(lk_callback_ops),       .name = "Optimizer",
        .on_experiment_start = start,   .on_batch_end = report_batch,
        .on_loader_end = report_loader, .free = free_context,
    };
    if (check(&options)) return NULL;
    lk_callback *callback = lki_callback_new(&ops, sizeof(optimizer_context), LK_ORDER_OPTIMIZER);
    if (!callback) return NULL;
    optimizer_context *context = callback->context;
    context->options = options;
    context->metric_key = lki_strdup(options.metric_key);
    context->optimizer_key = lki_strdup(options.optimizer_key);
    context->options.accumulation_schedule = NULL; /* the text is the caller's */
    if (read_schedule(context, options.accumulation_schedule)) {
        lk_callback_free(callback);
        return NULL;
    }
    callback->may_lag = true; /* who changes the numbers between batches does not */
    if ((options.metric_key && !context->metric_key) || (options.optimizer_key && !context->optimizer_key)) {
        lk_callback_free(callback);
        return NULL;
    }
    return callback;
}
