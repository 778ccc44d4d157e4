#include "run/screen.h"

#include "base/clock.h"
#include "base/number_text.h"
#include "base/status.h"
#include "run/run.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const int64_t LINE_INTERVAL_NS = 30000000000;

void lki_screen_print_time(const lki_screen *screen)
{
    char text[32];
    struct tm now;
    time_t seconds = time(NULL);
    if (screen->terminal.is_terminal || !localtime_r(&seconds, &now)) return;
    strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &now);
    printf("%s  ", text);
}

void lki_screen_header(const lk_runner *runner, const char *text)
{
    if (runner->run->screen.level == LK_SHOW_NOTHING) return;
    lki_print_folded(stdout, text, lki_fold_columns(stdout));
    fflush(stdout);
}

/* ---- Lines of steps ---- */

/* How many numbers a sample has if they are tokens: integers in a row. Else 0. */
int64_t lki_tokens_per_sample(const lk_runner *runner)
{
    for (int i = 0; runner->batch && i < runner->batch->field_count; i++) {
        const lk_batch_field *field = &runner->batch->fields[i];
        const lk_tensor *tensor = &field->tensor;
        if (strcmp(field->name, runner->input_key) != 0) continue;
        bool is_integer = tensor->dtype == LK_I64 || tensor->dtype == LK_I32;
        return is_integer && tensor->shape.rank == 2 ? tensor->shape.dim[1] : 0;
    }
    return 0;
}

/* The train batches of the whole run; 0 if that is not known. */
static int64_t total_steps(const lk_runner *runner)
{
    const lki_run *run = runner->run;
    const lki_run_loader *train = NULL;
    int64_t most = run->given.options.max_steps;
    int train_count = 0;
    for (int i = 0; i < run->loaders.count; i++) {
        if (strncmp(run->loaders.items[i].key, "train", strlen("train")) != 0) continue;
        train = &run->loaders.items[i];
        train_count++;
    }
    if (run->limits.by_steps) return most;
    if (train_count != 1 || train->pass_batches == LK_LENGTH_UNKNOWN) return 0;
    int64_t every = run->limits.has_divided ? run->given.options.valid_every : 0, whole = train->pass_batches;
    int64_t pieces = every ? (whole + every - 1) / every : 1, total = runner->num_epochs / pieces * whole;
    return most > 0 && most < total ? most : total;
}

static void set_mark(lki_screen *screen, const lk_runner *runner, int64_t now_ns)
{
    screen->mark.ns = now_ns;
    screen->mark.batch_step = runner->batch_step;
    screen->mark.sample_step = runner->sample_step;
}

/* The norm that clipping or GradientNorm has computed anyhow; NaN for none. */
static double gradient_norm(const lk_runner *runner)
{
    bool clips = runner->step && runner->run->batch.step_options.clip_norm > 0;
    return clips ? lk_step_grad_norm(runner->step) : lk_metrics_get(runner->batch_metrics, "grad_norm");
}

/* "step   20/1500 | loss 0.512345 | norm 1.2345 | lr 2.00e-02 | 0.05 ms | 650000 samples/s": the loss, norm
 * and rate of this step, and the mean time of those since the last line. */
static void format_step(char *text, size_t capacity, const lk_runner *runner, int64_t now_ns)
{
    const lki_screen *screen = &runner->run->screen;
    int64_t total = total_steps(runner), tokens = lki_tokens_per_sample(runner);
    double seconds = (double)(now_ns - screen->mark.ns) * 1e-9;
    double steps = (double)(runner->batch_step - screen->mark.batch_step);
    double samples = (double)(runner->sample_step - screen->mark.sample_step);
    char all[32];
    int width = snprintf(all, sizeof all, "/%" PRId64, total) - 1;
    int used = snprintf(text, capacity, "step %*" PRId64 "%s", total ? width : 4, runner->batch_step,
                        total ? all : "");
    used += lki_snprintf(text + used, capacity - (size_t)used, " | loss %.6f",
                         lk_metrics_get(runner->batch_metrics, runner->loss_key));
    double norm = gradient_norm(runner);
    if (!isnan(norm)) used += lki_snprintf(text + used, capacity - (size_t)used, " | norm %.4f", norm);
    if (!isnan(screen->rate))
        used += lki_snprintf(text + used, capacity - (size_t)used, " | lr %.2e", screen->rate);
    lki_snprintf(text + used, capacity - (size_t)used, " | %.2f ms | %.0f %s/s", 1e3 * seconds / steps,
                 samples * (double)(tokens ? tokens : 1) / seconds, tokens ? "tokens" : "samples");
}

static lk_status report_step(lk_runner *runner)
{
    lki_run *run = runner->run;
    lki_screen *screen = &run->screen;
    char line[LKI_SCREEN_LINE];
    int64_t now_ns = lki_now_ns();
    format_step(line, sizeof line, runner, now_ns);
    if (screen->level != LK_SHOW_NOTHING) {
        lki_progress_clear(&screen->progress);
        lki_screen_print_time(screen);
        printf("%s\n", line);
        fflush(stdout);
    }
    screen->line_ns = now_ns;
    if (screen->progress.fd < 0) screen->progress.drawn_ns = now_ns;
    set_mark(screen, runner, now_ns);
    FILE *file = run->reporting.log_file;
    if (!file || fprintf(file, "%s\n", line) >= 0) return LK_OK;
    return lki_fail(LK_ERR_IO, "%s/log.txt: could not write", run->given.logdir);
}

/* ---- The callback ---- */

/* "epoch 1/8, train: 43%, 812/1875, 01:05<01:20, 650.3it/s, loss=0.512", every 30 seconds. */
static void print_position(lki_screen *screen, const lk_runner *runner)
{
    lki_progress *progress = &screen->progress;
    char line[LKI_SCREEN_LINE];
    double elapsed_s = (double)(progress->now_ns - progress->start_ns) * 1e-9;
    progress->value = lk_metrics_get(runner->batch_metrics, runner->loss_key);
    lki_screen_print_time(screen);
    printf("%s\n", lki_progress_format(line, sizeof line, progress, elapsed_s, 0));
    fflush(stdout);
    screen->line_ns = progress->drawn_ns = progress->now_ns;
}

static lk_status loader_start(lk_callback *callback, lk_runner *runner)
{
    lki_screen *screen = &runner->run->screen;
    int64_t now_ns = lki_now_ns();
    char label[96];
    bool shows = screen->level != LK_SHOW_NOTHING;
    bool logs_steps = runner->is_train_loader && runner->run->given.options.log_every > 0;
    bool draws = shows && (!screen->terminal.is_terminal || !screen->has_bar);
    (void)callback;
    screen->is_idle = !runner->is_master || (!draws && !logs_steps);
    if (screen->is_idle) return LK_OK;
    screen->step_lines = logs_steps ? runner->run->given.options.log_every : 0;
    snprintf(label, sizeof label, "%" PRId64 "/%" PRId64 " * Epoch (%s)", runner->epoch_step,
             runner->num_epochs, runner->loader_key);
    fflush(stdout);
    lki_progress_begin(&screen->progress, draws ? STDOUT_FILENO : -1, label, runner->loader_batch_len,
                       runner->loss_key);
    screen->progress.first_done = runner->loader_batch_step;
    if (!screen->line_ns) screen->line_ns = now_ns;
    if (screen->progress.fd < 0) screen->progress.drawn_ns = screen->line_ns;
    set_mark(screen, runner, now_ns);
    return LK_OK;
}

static void look(lki_screen *screen, const lk_runner *runner)
{
    lki_progress *progress = &screen->progress;
    if (!lki_progress_look(progress)) return;
    if (progress->fd >= 0)
        lki_progress_draw(progress, lk_metrics_get(runner->batch_metrics, runner->loss_key));
    else if (screen->level != LK_SHOW_NOTHING && !screen->terminal.is_terminal &&
             progress->now_ns - progress->drawn_ns >= screen->line_interval_ns)
        print_position(screen, runner);
}

void lki_screen_note_rate(lk_runner *runner)
{
    const lk_optimizer *optimizer = runner->optimizer;
    runner->run->screen.rate =
        optimizer ? lk_optimizer_lr(optimizer, lk_optimizer_group_count(optimizer) - 1) : NAN;
}

lk_status lki_screen_after_batch(lk_runner *runner)
{
    lki_screen *screen = &runner->run->screen;
    if (screen->progress.calls_left <= 0) look(screen, runner);
    return screen->step_lines > 0 && runner->batch_step % screen->step_lines == 0 ? report_step(runner)
                                                                                  : LK_OK;
}

/* The line of the epoch comes where the bar was. */
static lk_status take_bar_away(lk_callback *callback, lk_runner *runner)
{
    lki_screen *screen = &runner->run->screen;
    (void)callback;
    lki_progress_clear(&screen->progress);
    screen->progress.fd = -1;
    screen->is_idle = true;
    return LK_OK;
}

static lk_status epoch_start(lk_callback *callback, lk_runner *runner)
{
    (void)callback;
    runner->run->screen.epoch_ns = lki_now_ns();
    return LK_OK;
}

static bool has_callback(const lki_run *run, const char *name)
{
    for (int i = 0; i < run->listeners.count; i++)
        if (strcmp(run->listeners.callbacks[i]->ops->name, name) == 0) return true;
    return false;
}

static lk_show level_of(const lk_train_options *options)
{
    if (options->show != LK_SHOW_DEFAULT) return options->show;
    return options->verbose ? LK_SHOW_ALL : options->log_every > 0 ? LK_SHOW_EPOCHS : LK_SHOW_NOTHING;
}

lk_status lki_screen_setup(lk_runner *runner)
{
    static const lk_callback_ops ops = {LK_SIZE(lk_callback_ops),       .name = "Screen",
                                        .on_epoch_start = epoch_start,  .on_loader_start = loader_start,
                                        .on_loader_end = take_bar_away, .on_exception = take_bar_away};
    lki_run *run = runner->run;
    const lk_train_options *options = &run->given.options;
    run->screen = (lki_screen){.level = level_of(options),
                               .is_idle = true,
                               .has_bar = has_callback(run, "Progress"),
                               .terminal = lki_terminal_of(STDOUT_FILENO),
                               .progress = {.fd = -1},
                               .line_interval_ns = LINE_INTERVAL_NS,
                               .epoch_ns = lki_now_ns()};
    runner->verbose = run->screen.level == LK_SHOW_ALL;
    if (run->evaluating || (run->screen.level == LK_SHOW_NOTHING && options->log_every == 0)) return LK_OK;
    lk_callback *callback = lk_callback_create(&ops, NULL, LK_ORDER_EXTERNAL);
    if (!callback) return lki_last_status();
    callback->may_lag = callback->declares_metrics = true;
    return lki_run_add_callback(runner, callback);
}
