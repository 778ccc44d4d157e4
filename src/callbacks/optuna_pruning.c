/* Tells the study of `lockstep tune` how good each epoch was, and ends the trial if the study asks for it. */
#include "base/arguments.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "callbacks/callbacks.h"
#include "run/study_link.h"

#include <math.h>

typedef struct pruning_context {
    lk_optuna_pruning_callback_options options; /* its keys are copies */
    double best;                                /* NaN before the first epoch with a number */
} pruning_context;

/* Whose metric is watched: the callback's own keys come before the study's. */
static const char *loader_key(const pruning_context *context)
{
    const lki_study_metric *study = lki_study_joined();
    return context->options.loader_key || !study ? context->options.loader_key : study->loader_key;
}

static const char *metric_key(const pruning_context *context)
{
    const lki_study_metric *study = lki_study_joined();
    return context->options.metric_key || !study ? context->options.metric_key : study->metric_key;
}

static lk_status start(lk_callback *callback, lk_runner *runner)
{
    const pruning_context *context = callback->context;
    if (runner->run->evaluating) return LK_OK;
    if (!lki_study_joined())
        return lki_fail(LK_ERR_CONFIG,
                        "OptunaPruningCallback: this run is no trial: start it with `lockstep tune`, or "
                        "leave the callback out");
    if (!lki_study_watches(runner->run->given.logdir)) return LK_OK;
    return lki_metric_names_watch(runner, "OptunaPruningCallback", loader_key(context), metric_key(context));
}

/* Better means better by at least min_delta, as in EarlyStopping. */
static bool is_better(const pruning_context *context, double score, bool minimize)
{
    double delta = context->options.min_delta;
    if (isnan(score) || isnan(context->best)) return !isnan(score);
    return minimize ? score <= context->best - delta : score >= context->best + delta;
}

static lk_status epoch_end(lk_callback *callback, lk_runner *runner)
{
    pruning_context *context = callback->context;
    const char *loader = loader_key(context) ? loader_key(context) : runner->valid_loader;
    bool prune = false;
    double score;
    if (runner->run->evaluating || !lki_study_watches(runner->run->given.logdir)) return LK_OK;
    if (!lki_callback_metric(runner, loader, metric_key(context), &score)) {
        if (lki_run_find_loader(&runner->run->loaders, loader) >= 0 &&
            !lk_runner_loader_metrics(runner, loader))
            return LK_OK; /* it did not run in this epoch */
        return lki_callback_no_metric(runner, "OptunaPruningCallback", loader, metric_key(context));
    }
    bool says = context->options.minimize || context->options.maximize;
    bool minimize = says ? context->options.minimize : lki_study_joined()->minimize;
    if (is_better(context, score, minimize)) context->best = score;
    if (runner->rank != 0) return LK_OK; /* it hears of the end from rank 0 */
    LKI_TRY(lki_study_tell_epoch(runner->epoch_step, context->best, &prune));
    if (prune) runner->need_early_stop = true;
    return LK_OK;
}

static lk_status save_state(lk_callback *callback, lk_state_dict *state, const char *prefix)
{
    const pruning_context *context = callback->context;
    LKI_SCOPED char *best = lki_format("%sbest", prefix);
    return best ? lk_state_dict_put_f64(state, best, context->best) : LK_ERR_NOMEM;
}

static lk_status load_state(lk_callback *callback, const lk_state_dict *state, const char *prefix)
{
    pruning_context *context = callback->context;
    LKI_SCOPED char *best = lki_format("%sbest", prefix);
    return best ? lk_state_dict_get_f64(state, best, &context->best) : LK_ERR_NOMEM;
}

static void free_context(lk_callback *callback)
{
    pruning_context *context = callback->context;
    lki_free((char *)context->options.loader_key);
    lki_free((char *)context->options.metric_key);
    lki_free(context);
}

/* Before the checkpoint: an epoch that a checkpoint holds has been reported. */
enum { ORDER = LK_ORDER_CHECKPOINT - 1 };

lk_callback *lk_optuna_pruning_callback_with(const lk_optuna_pruning_callback_options *given)
{
    LKI_TAKE(lk_optuna_pruning_callback_options, options, given, NULL);
    static const lk_callback_ops ops = {
        LK_SIZE(lk_callback_ops),  .name = "OptunaPruning",  .on_experiment_start = start,
        .on_epoch_end = epoch_end, .save_state = save_state, .load_state = load_state,
        .free = free_context,
    };
    if (!(options.min_delta >= 0) || isinf(options.min_delta))
        return lki_fail_null(LK_ERR_INVALID,
                             "OptunaPruningCallback: min_delta: expected a number of at least 0, found %g",
                             options.min_delta);
    if (options.minimize && options.maximize)
        return lki_fail_null(LK_ERR_INVALID,
                             "OptunaPruningCallback: minimize and maximize are both set: keep one of them");
    lk_callback *callback = lki_callback_new(&ops, sizeof(pruning_context), ORDER);
    if (!callback) return NULL;
    pruning_context *context = callback->context;
    context->options = options;
    context->options.min_delta = lki_number_or(options.min_delta, 1e-6);
    context->options.loader_key = lki_strdup(options.loader_key);
    context->options.metric_key = lki_strdup(options.metric_key);
    context->best = NAN;
    return callback;
}
