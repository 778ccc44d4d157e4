/* lockstep watch: the curves of a run in the terminal. On a terminal the picture follows the run until that
 * ends, or until q or Ctrl-C; elsewhere it is printed once. */
#include "cli/commands.h"
#include "cli/run_logs.h"

#include "base/memory.h"
#include "base/status.h"
#include "base/terminal.h"
#include "logger/chart.h"

#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

typedef struct watch_options {
    lki_texts logdirs, metrics;
    lki_option_int every;
} watch_options;

#define OFFSET(field) offsetof(watch_options, field)

enum { MAX_METRICS = 8, PAGE_ROWS = 12, DEFAULT_EVERY_S = 1, MAX_EVERY_S = 86400 };

static const lki_option table[] = {
    {"metric", 'm', LKI_OPTION_TEXTS, OFFSET(metrics), "NAME", NULL,
     "the metrics to draw (the loss, and the metric that decides or the accuracy)", 0},
    {"every", 0, LKI_OPTION_INT, OFFSET(every), "SECONDS", NULL, "how often to read the logs again (1)", 1},
    {0},
};

/* ---- What to draw ---- */

static bool is_logged(const lki_run_logs *logs, const char *metric)
{
    for (int i = 0; i < logs->count; i++)
        if (lki_log_values(&logs->logs[i], metric)) return true;
    return false;
}

static lk_status choose_metrics(const lki_run_logs *logs, const watch_options *options,
                                const char *metrics[MAX_METRICS], int *count)
{
    *count = 0;
    for (int i = 0; i < options->metrics.count; i++) {
        const char *name = options->metrics.items[i];
        if (logs->count && !is_logged(logs, name))
            return lki_fail(LK_ERR_NOT_FOUND, "watch: the run has logged no metric \"%.60s\"", name);
        metrics[(*count)++] = name;
    }
    if (*count) return LK_OK;
    metrics[(*count)++] = "loss";
    if (logs->valid_metric && strcmp(logs->valid_metric, "loss") != 0)
        metrics[(*count)++] = logs->valid_metric;
    else if (is_logged(logs, "accuracy01"))
        metrics[(*count)++] = "accuracy01";
    return LK_OK;
}

/* The loaders' curves of a metric; those of "_epoch_" only if no loader has it. */
static void collect_series(lki_chart *chart, const lki_run_logs *logs)
{
    for (int i = 0; i < logs->count && chart->series_count < LKI_CHART_MAX_SERIES; i++) {
        const lki_log *log = &logs->logs[i];
        const double *values = lki_log_values(log, chart->title);
        bool is_epoch = strcmp(log->key, "_epoch_") == 0;
        if (!values || (is_epoch && chart->series_count)) continue;
        chart->series[chart->series_count++] =
            (lki_series){is_epoch ? "" : log->key, log->epochs, values, log->row_count};
    }
}

/* ---- A picture ---- */

static void print_title(FILE *out, const lki_run_logs *logs, const char *logdir, bool colour)
{
    fprintf(out, "%s%s%s: epoch %" PRId64, colour ? "\x1b[1m" : "", logdir, colour ? "\x1b[0m" : "",
            logs->epochs_done);
    if (logs->num_epochs > 0) fprintf(out, " of %" PRId64, logs->num_epochs);
    fprintf(out, ", %s\n", logs->is_running ? "running" : "ended");
}

/* `rows` for each chart. */
static lk_status print_picture(FILE *out, const lki_run_logs *logs, const watch_options *options,
                               const lki_terminal *terminal, int rows)
{
    const char *metrics[MAX_METRICS];
    int count;
    LKI_TRY(choose_metrics(logs, options, metrics, &count));
    if (terminal->is_terminal) rows = (terminal->rows - 3) / count;
    print_title(out, logs, options->logdirs.items[0], terminal->has_colour);
    if (logs->count == 0) fprintf(out, "waiting for the end of the first epoch\n");
    for (int i = 0; i < count && logs->count > 0; i++) {
        lki_chart chart = {.title = metrics[i],
                           .columns = terminal->columns,
                           .rows = rows,
                           .unicode = terminal->has_unicode,
                           .colour = terminal->has_colour};
        collect_series(&chart, logs);
        LKI_TRY(lki_chart_print(out, &chart));
    }
    return LK_OK;
}

/* Reads the logs and draws them into a text, which the caller frees. */
static lk_status make_picture(char **text, bool *is_running, const watch_options *options)
{
    lki_run_logs logs;
    lki_terminal terminal = lki_terminal_of(STDOUT_FILENO);
    size_t nbytes;
    *text = NULL;
    LKI_TRY(lki_run_logs_read(&logs, options->logdirs.items[0]));
    FILE *stream = open_memstream(text, &nbytes);
    lk_status status = stream ? print_picture(stream, &logs, options, &terminal, PAGE_ROWS)
                              : lki_fail(LK_ERR_NOMEM, "out of memory for the picture");
    if (stream) fclose(stream);
    *is_running = logs.is_running;
    lki_run_logs_fini(&logs);
    return status;
}

/* ---- Following a run ---- */

static volatile sig_atomic_t asked_to_end;

static void ask_to_end(int number)
{
    asked_to_end = number;
}

/* Keys come at once and are not shown; Ctrl-C is one of them. False if stdin is no terminal. */
static bool take_keys(struct termios *before)
{
    if (tcgetattr(STDIN_FILENO, before) != 0) return false;
    struct termios raw = *before;
    raw.c_lflag &= (tcflag_t) ~(ICANON | ECHO | ISIG);
    return tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
}

/* Whether to end: q or Ctrl-C within that time, or a signal. A terminal that is gone ends it too. */
static bool wait_for_end(bool has_keys, int seconds)
{
    enum { CTRL_C = 3 };
    struct pollfd keys = {has_keys ? STDIN_FILENO : -1, POLLIN, 0};
    char key;
    if (poll(&keys, 1, seconds * 1000) <= 0) return asked_to_end != 0;
    return read(STDIN_FILENO, &key, 1) <= 0 || key == 'q' || key == 'Q' || key == CTRL_C || asked_to_end;
}

/* Draws over the last picture: each line erases what it does not cover. */
static void show(const char *text)
{
    fputs("\x1b[H", stdout);
    for (; *text; text++) fputs(*text == '\n' ? "\x1b[K\n" : (char[]){*text, '\0'}, stdout);
    fputs("\x1b[J", stdout);
    fflush(stdout);
}

/* On the terminal's other screen, so that the last picture can stay on this one. */
static lk_status follow(const watch_options *options)
{
    struct termios before;
    struct sigaction end = {.sa_handler = ask_to_end};
    char *text = NULL;
    bool is_running = true, has_keys = take_keys(&before);
    int every = options->every.given ? (int)options->every.value : DEFAULT_EVERY_S;
    lk_status status = LK_OK;
    sigaction(SIGINT, &end, NULL);
    sigaction(SIGTERM, &end, NULL);
    fputs("\x1b[?1049h\x1b[?25l", stdout);
    while (!status && is_running) {
        free(text);
        status = make_picture(&text, &is_running, options);
        if (!status) show(text);
        if (!status && is_running && wait_for_end(has_keys, every)) break;
    }
    fputs("\x1b[?25h\x1b[?1049l", stdout);
    fflush(stdout);
    if (has_keys) tcsetattr(STDIN_FILENO, TCSANOW, &before);
    if (!status) fputs(text, stdout);
    free(text);
    return status;
}

static int run(const void *pointer)
{
    const watch_options *options = pointer;
    char *text = NULL;
    bool is_running = false;
    if (options->logdirs.count > 1) {
        lki_fail(LK_ERR_CONFIG, "watch: takes one logdir, found %d", options->logdirs.count);
        return lki_report(LKI_EXIT_WRONG);
    }
    if (options->metrics.count > MAX_METRICS || options->every.value > MAX_EVERY_S) {
        lki_fail(LK_ERR_CONFIG, "watch: takes at most %d metrics, and --every at most %d", MAX_METRICS,
                 MAX_EVERY_S);
        return lki_report(LKI_EXIT_WRONG);
    }
    lk_status status = make_picture(&text, &is_running, options);
    if (!status && is_running && lki_terminal_of(STDOUT_FILENO).is_terminal)
        status = follow(options);
    else if (!status)
        fputs(text, stdout);
    free(text);
    return status ? lki_report(LKI_EXIT_FAILED) : LKI_EXIT_DONE;
}

const lki_command lki_command_watch = {
    .name = "watch",
    .usage = "LOGDIR [options]",
    .summary = "Draws the curves of a run in the terminal.",
    .options = table,
    .options_nbytes = sizeof(watch_options),
    .positional = "the logdir of a run",
    .positional_offset = OFFSET(logdirs),
    .positional_minimum = 1,
    .run = run,
    .notes = "On a terminal it follows a run until that ends. q or Ctrl-C ends it earlier.",
};
