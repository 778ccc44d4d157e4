/* Looks for a learning rate: raises it batch by batch from its value to final_lr, keeps what each batch
 * scored, and ends the run. The rate is put back; the weights have been trained with all of them. */
#include "base/atomic_file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "callbacks/callbacks.h"
#include "data/loader.h"
#include "optim/suggest_lr.h"

#include <math.h>
#include <string.h>

typedef struct finder_row {
    double lr, loss;
} finder_row;

typedef struct finder_context {
    double final_lr;
    bool linear;
    int64_t num_steps; /* 0: the batches of the loader */
    char *optimizer_key;
    lk_optimizer *optimizer; /* borrowed; NULL before the first batch */
    double *initial_lrs;     /* one a group */
    finder_row *rows;        /* (num_steps) */
    int64_t row_count;
} finder_context;

static lk_status begin(finder_context *context, lk_runner *runner)
{
    lk_optimizer *optimizer =
        context->optimizer_key ? lk_runner_optimizer(runner, context->optimizer_key) : runner->optimizer;
    if (!optimizer)
        return lki_fail(LK_ERR_NOT_FOUND, "LRFinder: the run has no optimizer%s%s",
                        context->optimizer_key ? " named " : "",
                        context->optimizer_key ? context->optimizer_key : "");
    int groups = lk_optimizer_group_count(optimizer);
    if (context->num_steps == 0 && runner->loader_batch_len == LK_LENGTH_UNKNOWN)
        return lki_loader_check_length(runner->loader, "LRFinder: num_steps");
    if (context->num_steps == 0) context->num_steps = runner->loader_batch_len;
    context->initial_lrs = LKI_NEW_ARRAY(double, groups);
    context->rows = LKI_NEW_ARRAY(finder_row, context->num_steps);
    if (!context->initial_lrs || !context->rows) return LK_ERR_NOMEM;
    for (int i = 0; i < groups; i++) context->initial_lrs[i] = lk_optimizer_lr(optimizer, i);
    context->optimizer = optimizer;
    return LK_OK;
}

/* log: lr0 (final / lr0)^(i / n); linear: lr0 + (final - lr0) i / n */
static double rate_at(const finder_context *context, double initial)
{
    double part = (double)context->row_count / (double)context->num_steps;
    if (context->linear) return initial + (context->final_lr - initial) * part;
    return initial * pow(context->final_lr / initial, part);
}

static lk_status start(lk_callback *callback, lk_runner *runner)
{
    (void)callback;
    runner->run->batch.nan_ends_run = true; /* rates that are too high are what is looked for */
    return LK_OK;
}

static lk_status batch_start(lk_callback *callback, lk_runner *runner)
{
    finder_context *context = callback->context;
    if (!runner->is_train_loader) return LK_OK;
    if (!context->optimizer) LKI_TRY(begin(context, runner));
    for (int i = 0; i < lk_optimizer_group_count(context->optimizer); i++)
        lk_optimizer_set_lr(context->optimizer, i, rate_at(context, context->initial_lrs[i]));
    return LK_OK;
}

static lk_status batch_end(lk_callback *callback, lk_runner *runner)
{
    finder_context *context = callback->context;
    if (!runner->is_train_loader || context->row_count == context->num_steps) return LK_OK;
    context->rows[context->row_count++] = (finder_row){
        lk_optimizer_lr(context->optimizer, 0),
        lk_metrics_get(runner->batch_metrics, lki_objective_key(&runner->run->objective, runner))};
    if (context->row_count == context->num_steps) runner->need_loader_stop = runner->need_early_stop = true;
    return LK_OK;
}

static lk_status write_rows(const finder_context *context, const lk_runner *runner)
{
    if (!runner->logdir || !runner->is_master) return LK_OK;
    LKI_SCOPED char *path = lki_format("%s/lr_finder.csv", runner->logdir);
    lki_atomic_file *file;
    if (!path) return LK_ERR_NOMEM;
    LKI_TRY(lki_atomic_file_open(&file, path));
    lk_status status =
        lki_atomic_file_printf(file, "step,lr,%s\n", lki_objective_key(&runner->run->objective, runner));
    for (int64_t i = 0; i < context->row_count && !status; i++)
        status = lki_atomic_file_printf(file, "%lld,%.9g,%.9g\n", (long long)i + 1, context->rows[i].lr,
                                        context->rows[i].loss);
    if (status == LK_OK) return lki_atomic_file_commit(file);
    lki_atomic_file_abort(file);
    return status;
}

/* Says which rate the test speaks for. */
static lk_status suggest(const finder_context *context, const lk_runner *runner)
{
    LKI_SCOPED double *both = LKI_NEW_ARRAY(double, 2 * context->row_count + 1);
    if (!runner->is_master) return LK_OK;
    if (!both) return LK_ERR_NOMEM;
    double *rates = both, *losses = both + context->row_count;
    for (int64_t i = 0; i < context->row_count; i++) {
        rates[i] = context->rows[i].lr;
        losses[i] = context->rows[i].loss;
    }
    double rate = lki_suggest_lr(rates, losses, context->row_count, NULL);
    if (isnan(rate))
        lki_log(LKI_LOG_INFO,
                "LRFinder: no rate to suggest: the loss does not fall, or the test is too short");
    else
        lki_log(LKI_LOG_INFO, "LRFinder: suggested lr %.3g, where the loss falls most steeply", rate);
    return LK_OK;
}

static lk_status loader_end(lk_callback *callback, lk_runner *runner)
{
    finder_context *context = callback->context;
    if (!runner->is_train_loader || !context->optimizer) return LK_OK;
    if (!runner->need_early_stop) return LK_OK; /* it goes on in the next epoch */
    for (int i = 0; i < lk_optimizer_group_count(context->optimizer); i++)
        lk_optimizer_set_lr(context->optimizer, i, context->initial_lrs[i]);
    LKI_TRY(suggest(context, runner));
    return write_rows(context, runner);
}

static void free_context(lk_callback *callback)
{
    finder_context *context = callback->context;
    lki_free(context->initial_lrs);
    lki_free(context->rows);
    lki_free(context->optimizer_key);
    lki_free(context);
}

lk_callback *lk_lr_finder_callback_with(const lk_lr_finder_callback_options *given)
{
    LKI_TAKE(lk_lr_finder_callback_options, options, given, NULL);
    static const lk_callback_ops ops = {
        LK_SIZE(lk_callback_ops),      .name = "LRFinder",        .on_experiment_start = start,
        .on_batch_start = batch_start, .on_batch_end = batch_end, .on_loader_end = loader_end,
        .free = free_context,
    };
    const char *scale = options.scale ? options.scale : "log";
    if (!(options.final_lr > 0) || isinf(options.final_lr))
        return lki_fail_null(LK_ERR_INVALID, "LRFinder: final_lr must be positive");
    if (options.num_steps < 0)
        return lki_fail_null(LK_ERR_INVALID, "LRFinder: num_steps must not be negative");
    if (strcmp(scale, "log") != 0 && strcmp(scale, "linear") != 0)
        return lki_fail_null(LK_ERR_INVALID, "LRFinder: scale is log or linear, not \"%s\"", scale);
    /* Behind the optimizer's own, which reports the rate that the batch was trained with. */
    lk_callback *callback = lki_callback_new(&ops, sizeof(finder_context), LK_ORDER_OPTIMIZER + 1);
    if (!callback) return NULL;
    finder_context *context = callback->context;
    context->final_lr = options.final_lr;
    context->linear = strcmp(scale, "linear") == 0;
    context->num_steps = options.num_steps;
    context->optimizer_key = lki_strdup(options.optimizer_key);
    if (options.optimizer_key && !context->optimizer_key) {
        lk_callback_free(callback);
        return NULL;
    }
    return callback;
}
