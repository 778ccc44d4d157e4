/* The batches of a loader: each in its turn or, where the engine and all callbacks allow it, one ahead.
 *
 * One ahead, batch k + 1 is launched before anybody looks at batch k: then batch k is waited for and its
 * callbacks are called, with the runner's counters as they are for k, while k + 1 is under way. Nothing else
 * changes, neither the order of what callbacks see nor a number. Whatever ends the loader early, a batch that
 * is under way is brought to its end first. */
#include "run/batches.h"

#include "base/activity.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/trace.h"
#include "run/metrics.h"
#include "run/run.h"
#include "run/signals.h"
#include "step/backend.h"

#include <string.h>

enum { STOP_CHECK_BATCHES = 16 };

/* How late a request to stop may be noticed where batches are slow. */
static const int64_t STOP_CHECK_NS = 250000000;

/* Whether the callbacks let batches run ahead: nobody looks inside a batch or before it, and whoever looks
 * after it says that it may be late. */
static bool may_run_ahead(const lk_runner *runner)
{
    const lki_run *run = runner->run;
    if (runner->ops && runner->ops->handle_batch) return false;
    if (!lki_engine_runs_ahead(runner->engine) || runner->world_size > 1) return false;
    for (int moment = LKI_MOMENT_batch_start; moment < LKI_MOMENT_batch_end; moment++)
        if (run->listeners.at[moment].count) return false;
    for (int i = 0; i < run->listeners.count; i++) {
        const lk_callback *callback = run->listeners.callbacks[i];
        bool looks = callback->ops->on_batch_end || callback->ops->on_settled;
        if (looks && !callback->may_lag) return false;
    }
    return true;
}

static lk_status next_batch(lk_runner *runner, const lk_batch *under_way, lk_batch **out)
{
    *out = NULL;
    int64_t taken = runner->loader_batch_step + (under_way != NULL);
    if (taken >= runner->loader_batch_len || runner->need_loader_stop) return LK_OK;
    return lk_loader_next(runner->loader, out);
}

static void count_batch(lk_runner *runner, const lk_batch *batch)
{
    runner->batch = batch;
    runner->run->batch.made_count = runner->run->batch.output_count = 0;
    runner->batch_size = batch->count;
    runner->counted_batch_size = batch->count - batch->padding;
    runner->loader_batch_step++;
    runner->loader_sample_step += batch->count * runner->world_size;
    if (runner->is_train_loader) {
        runner->batch_step++;
        runner->sample_step += batch->count * runner->world_size;
    }
    lki_metrics_clear(runner->batch_metrics);
}

static lk_status end_batch(lk_runner *runner)
{
    lki_run *run = runner->run;
    bool is_due = lki_screen_count(&run->screen, runner);
    if (is_due) lki_screen_note_rate(runner);
    LKI_TRY(lki_run_call(runner, LKI_MOMENT_batch_end));
    if (is_due) LKI_TRY(lki_screen_after_batch(runner));
    if (run->names.has_strangers) LKI_TRY(lki_own_metrics_update(runner));
    if (runner->is_master && run->reporting.wants_batch_metrics) LKI_TRY(lki_report_batch(runner));
    LKI_TRY(lki_run_call(runner, LKI_MOMENT_settled));
    return lki_vitals_after_batch(runner);
}

static lk_status handle_batch(lk_runner *runner, const lk_batch *batch)
{
    count_batch(runner, batch);
    LKI_TRY(lki_run_call(runner, LKI_MOMENT_batch_start));
    LKI_TRY(lki_run_call(runner, LKI_MOMENT_sample));
    unsigned long said = lki_fail_count();
    if (runner->ops && runner->ops->handle_batch) LKI_TRY(lki_run_show_params(runner));
    if (runner->ops && runner->ops->handle_batch)
        LKI_TRY(lki_fail_if_silent(runner->ops->handle_batch(runner, batch), said, "the runner's",
                                   "handle_batch"));
    else
        LKI_TRY(lk_runner_supervised_batch(runner, batch));
    return end_batch(runner);
}

/* Waits for the batch under way and calls its callbacks; `next` was launched behind it, or is NULL. A batch
 * that was lost is made again, and the one behind it after it. */
static lk_status land(lk_runner *runner, const lk_batch *next)
{
    lki_run *run = runner->run;
    const lk_batch *batch = run->batch.under_way;
    bool lost;
    run->batch.under_way = next;
    count_batch(runner, batch);
    LKI_TRY(lki_run_land_batch(runner, &lost));
    if (lost) {
        run->batch.under_way = NULL;
        LKI_TRY(lk_runner_supervised_batch(runner, batch));
        if (next) LKI_TRY(lki_run_launch_batch(runner, next));
        run->batch.under_way = next;
    }
    return end_batch(runner);
}

static lk_status take_batch(lk_runner *runner, const lk_batch *batch, bool ahead)
{
    lki_run *run = runner->run;
    if (ahead && lki_run_may_launch_batch(runner, batch)) {
        LKI_TRY(lki_run_launch_batch(runner, batch));
        if (run->batch.under_way) return land(runner, batch);
        run->batch.under_way = batch;
        return LK_OK;
    }
    if (run->batch.under_way) LKI_TRY(land(runner, NULL));
    return handle_batch(runner, batch);
}

/* ---- Stopping ---- */

/* As many batches as fit between two looks, by the slowest rank's clock: the ranks must count alike. */
static int64_t batches_to_next_look(int64_t ns_a_batch)
{
    int64_t count = ns_a_batch > 0 ? STOP_CHECK_NS / ns_a_batch : STOP_CHECK_BATCHES;
    return count < 1 ? 1 : count > STOP_CHECK_BATCHES ? STOP_CHECK_BATCHES : count;
}

/* By rank 0's steady clock, whatever the others' say. */
static bool is_time_to_save(lk_runner *runner)
{
    lki_run *run = runner->run;
    int64_t every_ns = (int64_t)(run->given.options.save_every_minutes * 60e9), now = lki_now_ns();
    if (run->given.options.save_every_minutes <= 0 || !runner->is_train_loader || runner->rank != 0)
        return false;
    if (run->stop.saved_ns == 0) run->stop.saved_ns = now;
    if (now - run->stop.saved_ns < every_ns) return false;
    run->stop.saved_ns = now;
    return true;
}

/* What is left of the epoch, its validation and its checkpoint, is still done. */
static void end_if_time_is_up(lk_runner *runner, bool is_up)
{
    if (!is_up) return;
    runner->run->stop.time_is_up = true;
    runner->need_loader_stop = runner->need_early_stop = true;
}

/* The signal by which any rank was asked to stop; 0 for none. Costs a message, so it is asked every few
 * batches, about four times per second if they are slow, and `at_end` of a train loader. */
static lk_status stop_asked(lk_runner *runner, bool at_end, int *out)
{
    lki_run *run = runner->run;
    int64_t asked = run->stop.flag ? *run->stop.flag : 0;
    *out = (int)asked;
    if (!run->ranks.comm || run->ranks.comm->size == 1) {
        run->stop.save_due = run->stop.save_due || is_time_to_save(runner);
        end_if_time_is_up(runner, lki_limits_time_is_up(runner));
        return LK_OK;
    }
    *out = 0;
    /* Only where all ranks take as many batches may all of them ask: in training, and before the rest. */
    if (!runner->is_train_loader && (at_end || runner->loader_batch_step > 0)) return LK_OK;
    if (runner->is_train_loader && !at_end && --run->stop.look.batches_left > 0) return LK_OK;
    int64_t now = lki_now_ns(), taken = run->stop.look.batches;
    int64_t said[] = {asked, taken ? (now - run->stop.look.ns) / taken : 0, is_time_to_save(runner),
                      lki_limits_time_is_up(runner)};
    LKI_TRY(lk_comm_all_reduce(run->ranks.comm, said, 4, LK_I64, LK_REDUCE_MAX));
    run->stop.save_due = run->stop.save_due || said[2];
    end_if_time_is_up(runner, said[3]);
    if (runner->is_train_loader && !at_end) {
        run->stop.look.batches = run->stop.look.batches_left = taken ? batches_to_next_look(said[1]) : 1;
        run->stop.look.ns = lki_now_ns();
        run->vitals.agreed_ns += said[1] * taken;
    }
    *out = (int)said[0];
    return LK_OK;
}

/* A signal asked for an orderly end: everything that resume needs is saved by the checkpoint callback's
 * exception slot. */
static lk_status stop_if_asked(lk_runner *runner, bool at_end)
{
    int asked;
    LKI_TRY(stop_asked(runner, at_end, &asked));
    if (!asked) return LK_OK;
    if (runner->run->batch.under_way) LKI_TRY(land(runner, NULL));
    runner->run->stop.stopped = true;
    lki_signals_note_stop(asked);
    return lki_fail(LK_ERR_STOPPED, "stopped by a signal in epoch %lld, after batch %lld of loader \"%s\"",
                    (long long)runner->epoch_step, (long long)runner->loader_batch_step, runner->loader_key);
}

/* ---- The loop ---- */

/* Whether the next batch's line of steps shows the norm that clipping measures: that batch is waited for. */
static bool shows_norm(const lk_runner *runner)
{
    const lki_run *run = runner->run;
    int every = run->screen.step_lines;
    int64_t number = runner->batch_step + (run->batch.under_way != NULL) + 1;
    return every > 0 && !run->screen.is_idle && run->batch.step_options.clip_norm > 0 && number % every == 0;
}

/* The first batch is waited for: it shows which outputs are wanted. */
static lk_status go_through(lk_runner *runner)
{
    bool ahead = may_run_ahead(runner);
    for (bool is_first = true;; is_first = false) {
        lk_batch *batch;
        if (runner->run->profile.trace) lki_profile_next_batch(runner);
        LKI_TRY(stop_if_asked(runner, false));
        int64_t begin_ns = lki_trace_begin(), wait_ns = lki_vitals_begin_wait();
        lki_activity_set("waiting for a batch of loader ", runner->loader_key);
        LKI_TRY(next_batch(runner, runner->run->batch.under_way, &batch));
        lki_vitals_end_wait(&runner->run->vitals, wait_ns);
        lki_trace_end(LKI_TRACE_LOADER, "next batch", begin_ns);
        if (!batch) break;
        begin_ns = lki_trace_begin();
        lki_activity_set("computing a batch of loader ", runner->loader_key);
        LKI_TRY(take_batch(runner, batch, ahead && !is_first && !shows_norm(runner)));
        if (is_first) LKI_TRY(lki_screen_note_fallbacks(runner));
        lki_trace_end(LKI_TRACE_BATCH, runner->is_train_loader ? "train batch" : "batch", begin_ns);
    }
    if (runner->run->batch.under_way) LKI_TRY(land(runner, NULL));
    return stop_if_asked(runner, true);
}

lk_status lki_run_batches(lk_runner *runner)
{
    lki_error first = {0};
    runner->run->batch.under_way = NULL;
    lk_status status = lki_error_keep(&first, go_through(runner));
    if (status == LK_OK || !runner->run->batch.under_way) return status;
    /* Its update is made: its callbacks hear of it. What ended the loader is what the caller hears of. */
    (void)land(runner, NULL);
    return lki_error_restore(&first);
}
