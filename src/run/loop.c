/* The loop: epochs over loaders over batches, with the callbacks called at each moment. */
#include "run/loop.h"

#include "base/activity.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/trace.h"
#include "data/loader.h"
#include "resume/frozen_params.h"
#include "run/batches.h"
#include "run/compare_metrics.h"
#include "run/metrics.h"
#include "run/run.h"
#include "run/stragglers.h"
#include "step/step.h"

#include <string.h>

static bool has_prefix(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* What a stream cannot say: how many batches make a part of it. */
static lk_status check_portion(const lki_run_loader *entry)
{
    bool is_part = entry->portion > 0 && entry->portion < 1;
    return is_part ? lki_loader_check_length(entry->loader, "a portion of a loader's batches") : LK_OK;
}

/* A loader without a batch ends the run before the first batch of any loader. */
static lk_status check_loaders(const lk_runner *runner)
{
    const lki_run *run = runner->run;
    for (int i = 0; i < run->loaders.count; i++) {
        const lki_run_loader *entry = &run->loaders.items[i];
        lk_pass_options pass = lki_run_pass_of(runner, runner->rank, has_prefix(entry->key, "train"));
        LKI_TRY(lki_loader_set_shares(entry->loader, lki_run_own_share_count(runner)));
        LKI_TRY(check_portion(entry));
        if (lki_run_shards(runner)) LKI_TRY(lki_loader_check_shards(entry->loader));
        LKI_TRY(lki_loader_check_pass(entry->loader, &pass));
    }
    return LK_OK;
}

lk_status lki_run_call_start(lk_runner *runner)
{
    LKI_TRY(lki_run_call(runner, LKI_MOMENT_experiment_start));
    LKI_TRY(check_loaders(runner));
    LKI_TRY(lki_limits_settle(runner));
    LKI_TRY(lki_objective_settle(runner));
    return lki_metric_names_check(runner);
}

/* Ranks take a train loader's batches together: of a stream, they say for each batch what they have. */
static lk_status most_of_all_ranks(void *context, int64_t own, int64_t *most)
{
    const lk_runner *runner = context;
    *most = own;
    return lk_comm_all_reduce(runner->run->ranks.comm, most, 1, LK_I64, LK_REDUCE_MAX);
}

static void agree_on_batches(lk_runner *runner)
{
    const lk_comm *comm = runner->run->ranks.comm;
    bool together = runner->is_train_loader && comm && comm->size > 1;
    lki_loader_set_agree(runner->loader, together ? most_of_all_ranks : NULL, runner);
}

/* A loader that repeats itself starts its first pass again: the same samples in the same order. One whose
 * pass the last epoch has left goes on with it. */
static lk_status begin_or_repeat(lki_run_loader *entry, lk_pass_options pass, lk_pass_size *size)
{
    if (entry->cut) {
        bool has_next;
        LKI_TRY(lk_loader_restore(entry->loader, entry->cut, size));
        LKI_TRY(lki_loader_has_next(entry->loader, &has_next));
        entry->continued += has_next;
        if (has_next) return LK_OK; /* a stream may have ended just where the last epoch left it */
    }
    pass.epoch -= entry->continued;
    if (entry->repeat && entry->first_pass) return lk_loader_restore(entry->loader, entry->first_pass, size);
    LKI_TRY(lk_loader_begin(entry->loader, &pass, size));
    if (!entry->repeat) return LK_OK;
    entry->first_pass = LKI_NEW(lk_loader_state);
    if (!entry->first_pass) return LK_ERR_NOMEM;
    lk_loader_save(entry->loader, entry->first_pass);
    return LK_OK;
}

static lk_status begin_pass(lk_runner *runner, int index, lk_pass_size *size)
{
    lki_run *run = runner->run;
    lk_loader *loader = run->loaders.items[index].loader;
    run->resuming.inside_loader =
        run->resuming.loader_state && run->resuming.inside_epoch && index == run->resuming.first_loader;
    if (run->resuming.inside_loader) {
        lk_status status = lk_loader_restore(loader, run->resuming.loader_state, size);
        runner->loader_batch_step = run->resuming.loader_batch_step;
        runner->loader_sample_step = run->resuming.loader_sample_step;
        return status;
    }
    /* From 1 on, as Catalyst calls set_epoch: the number seeds the order that ranks share. */
    lk_pass_options pass = lki_run_pass_of(runner, runner->rank, runner->is_train_loader);
    pass.epoch = runner->epoch_step;
    pass.seed = runner->seed;
    runner->loader_batch_step = runner->loader_sample_step = 0;
    return begin_or_repeat(&run->loaders.items[index], pass, size);
}

int64_t lki_run_limit_batches(const lki_run *run, const lki_run_loader *entry, int64_t count)
{
    double portion = entry->portion;
    int64_t limit = count;
    if (portion >= 1) limit = (int64_t)portion;
    if (portion > 0 && portion < 1) limit = (int64_t)(portion * (double)count);
    if (run->loaders.batch_limit && limit > run->loaders.batch_limit) limit = run->loaders.batch_limit;
    if (limit < 1) limit = 1;
    return limit < count ? limit : count;
}

/* Each rank's batches have moved its running statistics; what is evaluated and saved is rank 0's model. */
static lk_status share_buffers(lk_runner *runner)
{
    lki_run *run = runner->run;
    if (runner->step) LKI_TRY(lki_replicas_share_buffers(&runner->step->replicas));
    for (int i = 0; i < run->parts.count; i++)
        if (run->parts.items[i].step)
            LKI_TRY(lki_replicas_share_buffers(&run->parts.items[i].step->replicas));
    return LK_OK;
}

/* The batches of this epoch: all of the pass, or a piece of it. */
static void set_length(lk_runner *runner, lki_run_loader *entry, const lk_pass_size *size)
{
    int64_t whole = lki_run_limit_batches(runner->run, entry, size->batch_count), piece = whole;
    runner->loader_batch_size = lk_loader_batch_size(runner->loader);
    entry->pass_batches = whole;
    if (runner->is_train_loader) piece = lki_limits_piece(runner, lki_limits_first_batch(runner), whole);
    runner->loader_batch_len = piece;
    if (lki_loader_is_stream(runner->loader)) {
        runner->loader_sample_len = LK_LENGTH_UNKNOWN;
        return;
    }
    int64_t samples = piece * runner->loader_batch_size * lki_run_share_count(runner);
    runner->loader_sample_len =
        piece < whole && samples < size->total_sample_count ? samples : size->total_sample_count;
}

static lk_status start_loader(lk_runner *runner, int index)
{
    lki_run *run = runner->run;
    lk_pass_size size;
    run->loaders.current = index;
    runner->loader = run->loaders.items[index].loader;
    runner->loader_key = run->loaders.items[index].key;
    runner->is_train_loader = has_prefix(runner->loader_key, "train");
    runner->is_valid_loader = has_prefix(runner->loader_key, "valid");
    runner->is_infer_loader = has_prefix(runner->loader_key, "infer");
    runner->loader_metrics = run->loaders.items[index].metrics;
    runner->need_loader_stop = false;
    lki_metrics_clear(runner->loader_metrics);
    if (!runner->is_train_loader) LKI_TRY(share_buffers(runner));
    bool own_batches = runner->ops && runner->ops->handle_batch;
    lki_loader_defer(runner->loader, !own_batches && lki_engine_keeps_rows(runner->engine));
    LKI_TRY(lki_loader_set_shares(runner->loader, lki_run_own_share_count(runner)));
    agree_on_batches(runner);
    LKI_TRY(begin_pass(runner, index, &size));
    LKI_TRY(lki_pass_metrics_start(runner));
    set_length(runner, &run->loaders.items[index], &size);
    return lki_run_call(runner, LKI_MOMENT_loader_start);
}

/* Ranks make a step together, but only train loaders have a batch for each of them. */
static lk_status make_step_together(lk_runner *runner)
{
    const lk_comm *comm = runner->run->ranks.comm;
    bool own_batches = runner->ops && runner->ops->handle_batch;
    return comm && comm->size > 1 && !own_batches ? lki_run_prepare_step(runner) : LK_OK;
}

/* One rank without a sample is no failure, but all of them are. A stream says so only at its end. */
static lk_status check_stream_had_batches(lk_runner *runner)
{
    const lk_comm *comm = runner->run->ranks.comm;
    bool asks = lki_loader_is_stream(runner->loader) && !runner->is_train_loader && comm && comm->size > 1;
    int64_t most;
    if (!asks) return LK_OK;
    LKI_TRY(most_of_all_ranks(runner, runner->loader_batch_step, &most));
    if (most > 0) return LK_OK;
    return lki_fail(LK_ERR_INVALID, "loader \"%s\" is empty: its stream has no batch", runner->loader_key);
}

static lk_status run_one_loader(lk_runner *runner, int index)
{
    LKI_TRY(start_loader(runner, index));
    LKI_TRY(make_step_together(runner));
    lki_profile_begin_pass(runner);
    lki_vitals_begin_pass(runner);
    lk_status status = lki_run_batches(runner);
    if (!status) status = check_stream_had_batches(runner);
    if (!status) status = lki_vitals_end_pass(runner);
    lki_profile_end_pass(runner);
    lki_run_wake(runner);
    if (status) return status;
    runner->batch = NULL;
    lki_run_loader *entry = &runner->run->loaders.items[index];
    lki_activity_set("at the end of loader ", entry->key);
    LKI_TRY(lki_limits_keep_place(runner, entry, entry->pass_batches));
    LKI_TRY(lki_metric_reduce(runner->run->pass.metrics, runner->run->pass.count,
                              &runner->run->ranks.collectives));
    LKI_TRY(lki_own_metrics_report(runner));
    LKI_TRY(lki_run_call(runner, LKI_MOMENT_loader_end));
    LKI_TRY(lki_compare_metrics(runner, runner->loader_metrics, "loader"));
    LKI_TRY(lki_metric_names_check_loader(runner));
    entry->has_metrics = true;
    return lki_report_loader(runner);
}

lk_status lki_run_one_loader(lk_runner *runner, int index)
{
    int64_t begin_ns = lki_trace_begin();
    lki_activity_words before = lki_activity_current();
    lk_status status = run_one_loader(runner, index);
    lki_activity_set(before.what, before.name); /* the loader's key may go with the runner */
    LKI_TRY(status);
    /* The trace keeps the name: that of another runner, which a callback uses, may be freed first. */
    if (runner->run->profile.trace) lki_trace_end(LKI_TRACE_PHASE, runner->loader_key, begin_ns);
    return LK_OK;
}

static lk_status run_epoch(lk_runner *runner)
{
    lki_run *run = runner->run;
    bool resumed = run->resuming.inside_epoch;
    run->inside_epoch = true;
    if (!resumed) {
        for (int i = 0; i < run->loaders.count; i++) run->loaders.items[i].has_metrics = false;
        lki_metrics_clear(runner->epoch_metrics);
        LKI_TRY(lki_run_call(runner, LKI_MOMENT_epoch_start));
    }
    for (int i = resumed ? run->resuming.first_loader : 0; i < run->loaders.count; i++) {
        bool is_over = has_prefix(run->loaders.items[i].key, "train") && lki_limits_steps_done(runner);
        if (run->loaders.items[i].skip || (is_over && !run->resuming.inside_epoch)) continue;
        LKI_TRY(lki_run_one_loader(runner, i));
        run->resuming.inside_epoch = false; /* later loaders and epochs start at their beginning */
    }
    run->inside_epoch = false;
    LKI_TRY(share_buffers(runner));
    LKI_TRY(lki_run_call(runner, LKI_MOMENT_epoch_end));
    LKI_TRY(lki_compare_metrics(runner, runner->epoch_metrics, "epoch"));
    LKI_TRY(lki_distributed_agree(runner));
    LKI_TRY(lki_report_epoch(runner));
    return lki_run_call(runner, LKI_MOMENT_settled);
}

int64_t lki_run_epochs_done(const lk_runner *runner)
{
    return runner->run->resuming.inside_epoch ? runner->epoch_step - 1 : runner->epoch_step;
}

bool lki_run_has_epochs_left(const lk_runner *runner)
{
    const lki_run *run = runner->run;
    if (runner->need_early_stop) return false;
    if (lki_limits_steps_done(runner)) return run->resuming.inside_epoch;
    return run->limits.by_steps || lki_run_epochs_done(runner) < runner->num_epochs;
}

/* What a run leaves behind is one model, not as many as there are ranks. */
static lk_status compare_replicas(lk_runner *runner)
{
    lki_run *run = runner->run;
    lk_step *step = runner->step;
    if (step) LKI_TRY(lki_replicas_check(&step->replicas, step->update.step_count));
    for (int i = 0; i < run->parts.count; i++) {
        step = run->parts.items[i].step;
        if (step) LKI_TRY(lki_replicas_check(&step->replicas, step->update.step_count));
    }
    return LK_OK;
}

static lk_status run_epochs(lk_runner *runner)
{
    LKI_TRY(lki_run_call_start(runner));
    LKI_TRY(lki_frozen_look(runner));
    LKI_TRY(lki_report_run_start(runner));
    LKI_TRY(lki_distributed_agree_to_stop(runner));
    while (lki_run_has_epochs_left(runner)) {
        if (!runner->run->resuming.inside_epoch) runner->epoch_step++;
        /* How many epochs the steps take is not known of a stream. */
        if (runner->run->limits.by_steps && runner->num_epochs < runner->epoch_step)
            runner->num_epochs = runner->epoch_step;
        LKI_TRY(lki_profile_begin(runner));
        int64_t begin_ns = lki_trace_begin();
        LKI_TRY(run_epoch(runner));
        lki_trace_end(LKI_TRACE_PHASE, "epoch", begin_ns);
        LKI_TRY(lki_profile_end(runner));
        LKI_TRY(lki_distributed_agree_to_stop(runner)); /* what settles an epoch may stop the run */
        LKI_TRY(lki_distributed_take_in(runner));
    }
    LKI_TRY(compare_replicas(runner));
    LKI_TRY(lki_stragglers_report(runner));
    LKI_TRY(lki_run_call(runner, LKI_MOMENT_experiment_end));
    return lki_report_run_end(runner);
}

/* Rank 0 may still write when the others have nothing left to do: where they ended, a launcher would end it
 * too. */
static lk_status clean_up(lk_runner *runner)
{
    LKI_TRY(lki_run_call(runner, LKI_MOMENT_exception));
    return runner->run->stop.stopped ? lki_distributed_leave_together(runner) : LK_OK;
}

/* What ended the run is what the caller hears of, whatever the callbacks' clean-up says. */
lk_status lki_run_loop(lk_runner *runner)
{
    lki_error first = {0};
    lk_status status = lki_error_keep(&first, run_epochs(runner));
    lki_profile_drop_trace(&runner->run->profile);
    if (status == LK_OK) return LK_OK;
    runner->exception = status;
    lki_report_failure(runner, status);
    if (clean_up(runner)) {
        runner->run->stop.stopped = false; /* not together */
        return lki_fail(status, "%s (and then: %.511s)", first.sentence, lk_error());
    }
    return lki_error_restore(&first);
}
