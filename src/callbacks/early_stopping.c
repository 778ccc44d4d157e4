/* Ends the run when the metric has not become better for a number of epochs. */
#include "base/memory.h"
#include "base/arguments.h"
#include "base/status.h"
#include "base/take.h"
#include "callbacks/callbacks.h"

#include <math.h>

typedef struct early_stopping_context {
    lk_early_stopping_callback_options options; /* its keys are copies */
    double best;
    int64_t bad_epochs;
    bool has_best;
} early_stopping_context;

/* Better means better by at least min_delta: an equal score is no improvement. */
static bool is_better(const early_stopping_context *context, double score, bool minimize)
{
    if (isnan(score)) return false;
    if (!context->has_best) return true;
    double delta = context->options.min_delta;
    return minimize ? score <= context->best - delta : score >= context->best + delta;
}

/* A run that had stopped for this reason does not go on when it is resumed. */
static lk_status start(lk_callback *callback, lk_runner *runner)
{
    const early_stopping_context *context = callback->context;
    LKI_TRY(lki_metric_names_watch(runner, "EarlyStoppingCallback", context->options.loader_key,
                                   context->options.metric_key));
    if (context->bad_epochs >= context->options.patience) runner->need_early_stop = true;
    return LK_OK;
}

static lk_status epoch_end(lk_callback *callback, lk_runner *runner)
{
    early_stopping_context *context = callback->context;
    const lk_early_stopping_callback_options *options = &context->options;
    double score;
    if (!lki_callback_metric(runner, options->loader_key, options->metric_key, &score)) {
        const char *loader = options->loader_key ? options->loader_key : runner->valid_loader;
        if (lki_run_find_loader(&runner->run->loaders, loader) >= 0 &&
            !lk_runner_loader_metrics(runner, loader))
            return LK_OK;
        return lki_callback_no_metric(runner, "EarlyStoppingCallback", options->loader_key,
                                      options->metric_key);
    }
    if (is_better(context, score, lki_callback_minimizes(runner, options->minimize, options->maximize))) {
        context->best = score;
        context->has_best = true;
        context->bad_epochs = 0;
    } else {
        context->bad_epochs++;
    }
    if (context->bad_epochs >= options->patience) runner->need_early_stop = true;
    return LK_OK;
}

static lk_status save_state(lk_callback *callback, lk_state_dict *state, const char *prefix)
{
    early_stopping_context *context = callback->context;
    LKI_SCOPED char *best = lki_format("%sbest", prefix);
    LKI_SCOPED char *bad = lki_format("%sbad_epochs", prefix);
    if (!best || !bad) return LK_ERR_NOMEM;
    LKI_TRY(lk_state_dict_put_f64(state, best, context->has_best ? context->best : NAN));
    return lk_state_dict_put_i64(state, bad, context->bad_epochs);
}

static lk_status load_state(lk_callback *callback, const lk_state_dict *state, const char *prefix)
{
    early_stopping_context *context = callback->context;
    LKI_SCOPED char *best = lki_format("%sbest", prefix);
    LKI_SCOPED char *bad = lki_format("%sbad_epochs", prefix);
    if (!best || !bad) return LK_ERR_NOMEM;
    LKI_TRY(lk_state_dict_get_f64(state, best, &context->best));
    context->has_best = !isnan(context->best);
    return lk_state_dict_get_i64(state, bad, &context->bad_epochs);
}

static void free_context(lk_callback *callback)
{
    early_stopping_context *context = callback->context;
    lki_free((char *)context->options.loader_key);
    lki_free((char *)context->options.metric_key);
    lki_free(context);
}

lk_callback *lk_early_stopping_callback_with(const lk_early_stopping_callback_options *given)
{
    LKI_TAKE(lk_early_stopping_callback_options, options, given, NULL);
    static const lk_callback_ops ops = {
        LK_SIZE(lk_callback_ops),  .name = "EarlyStopping",  .on_experiment_start = start,
        .on_epoch_end = epoch_end, .save_state = save_state, .load_state = load_state,
        .free = free_context,
    };
    if (options.patience < 1)
        return lki_fail_null(LK_ERR_INVALID, "EarlyStoppingCallback: patience must be at least 1");
    if (!(options.min_delta >= 0) || isinf(options.min_delta))
        return lki_fail_null(LK_ERR_INVALID,
                             "EarlyStoppingCallback: min_delta: expected a number of at least 0, found %g",
                             options.min_delta);
    if (options.minimize && options.maximize)
        return lki_fail_null(LK_ERR_INVALID,
                             "EarlyStoppingCallback: minimize and maximize are both set: keep one of them");
    lk_callback *callback = lki_callback_new(&ops, sizeof(early_stopping_context), LK_ORDER_EXTERNAL);
    if (!callback) return NULL;
    early_stopping_context *context = callback->context;
    context->options = options;
    context->options.min_delta = lki_number_or(options.min_delta, 1e-6);
    context->options.loader_key = lki_strdup(options.loader_key);
    context->options.metric_key = lki_strdup(options.metric_key);
    return callback;
}
