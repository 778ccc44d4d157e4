/* What an epoch has come to: one line, and with LK_SHOW_ALL a table of its other metrics. */
#include "base/clock.h"
#include "base/memory.h"
#include "base/number_text.h"
#include "base/status.h"
#include "logger/chart.h"
#include "logger/format.h"
#include "run/run.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

/* ---- The line ---- */

/* One entry of the line: "train loss 0.4513". */
typedef struct entry {
    char label[96];
    char value[LKI_NUMBER_LENGTH];
} entry;

enum { MAX_ENTRIES = 8 };

typedef struct entries {
    entry items[MAX_ENTRIES];
    int count;
} entries;

static void format_value(char text[LKI_NUMBER_LENGTH], double value)
{
    double size = fabs(value);
    if (!isfinite(value))
        lki_format_exact(text, value);
    else if (size != 0 && (size < 1e-3 || size >= 1e5))
        lki_snprintf(text, LKI_NUMBER_LENGTH, "%.3e", value);
    else
        lki_snprintf(text, LKI_NUMBER_LENGTH, "%.4f", value);
}

static entry *add_entry(entries *all, const char *before, const char *label)
{
    entry *made = &all->items[all->count++];
    snprintf(made->label, sizeof made->label, "%s%s%s", before ? before : "", before ? " " : "", label);
    return made;
}

/* Adds a metric that the loader has reported; of one that rested in this epoch, a dash. */
static void add_metric(entries *all, const lk_runner *runner, const char *loader, const char *before,
                       const char *metric)
{
    const lk_metrics *metrics = lk_runner_loader_metrics(runner, loader);
    if (all->count == MAX_ENTRIES || (metrics && !lk_metrics_has(metrics, metric))) return;
    entry *made = add_entry(all, before, metric);
    if (metrics)
        format_value(made->value, lk_metrics_get(metrics, metric));
    else
        strcpy(made->value, "-");
}

static bool is_train(const char *loader)
{
    return strncmp(loader, "train", strlen("train")) == 0;
}

static const char *train_loader(const lk_runner *runner)
{
    const lki_run_loaders *loaders = &runner->run->loaders;
    for (int i = 0; i < loaders->count; i++)
        if (is_train(loaders->items[i].key)) return loaders->items[i].key;
    return NULL;
}

/* The loader that is shown beside the train loader: the one that decides. If that is a train loader, then one
 * that only looks. */
static const char *other_loader(const lk_runner *runner)
{
    const lki_run_loaders *loaders = &runner->run->loaders;
    if (!is_train(runner->valid_loader)) return runner->valid_loader;
    for (int i = 0; i < loaders->count; i++)
        if (!is_train(loaders->items[i].key)) return loaders->items[i].key;
    return runner->valid_loader;
}

/* The loader of the metric beside the loss. */
static const char *metric_loader(const lk_runner *runner)
{
    bool is_loss = strcmp(runner->valid_metric, runner->loss_key) == 0;
    return is_loss ? other_loader(runner) : runner->valid_loader;
}

/* The metric beside the loss: the one that decides, or else the accuracy. */
static const char *other_metric(const lk_runner *runner)
{
    return strcmp(runner->valid_metric, runner->loss_key) != 0 ? runner->valid_metric : "accuracy01";
}

/* The rate that the epoch was trained with, as it is logged; the optimizer has the next one by now. */
static double learning_rate(const lk_runner *runner)
{
    const char *train = train_loader(runner);
    const lk_metrics *metrics = train ? lk_runner_loader_metrics(runner, train) : NULL;
    if (metrics && lk_metrics_has(metrics, "lr")) return lk_metrics_get(metrics, "lr");
    return lk_optimizer_lr(runner->optimizer, lk_optimizer_group_count(runner->optimizer) - 1);
}

static void collect_entries(entries *all, const lk_runner *runner)
{
    const char *train = train_loader(runner), *other = other_loader(runner),
               *decisive = metric_loader(runner);
    all->count = 0;
    if (train) add_metric(all, runner, train, train, runner->loss_key);
    if (!train || strcmp(train, other) != 0) add_metric(all, runner, other, other, runner->loss_key);
    add_metric(all, runner, decisive, strcmp(decisive, other) == 0 ? NULL : decisive, other_metric(runner));
    if (runner->optimizer) {
        char rate[LKI_NUMBER_LENGTH];
        snprintf(add_entry(all, NULL, "lr")->value, LKI_NUMBER_LENGTH, "%-7s",
                 lki_format_short(rate, learning_rate(runner)));
    }
}

static const char *format_seconds(char text[32], double seconds)
{
    if (seconds >= 100) return lki_format_duration(text, seconds);
    lki_snprintf(text, 32, seconds < 9.995 ? "%.2fs" : "%.1fs", seconds);
    return text;
}

/* One that may be printed plainly: colours take no columns. */
static int line_length(const entries *all, int epoch_width)
{
    int length = 6 + 2 * epoch_width + 1 + 2 + 6 + 2;
    for (int i = 0; i < all->count; i++)
        length += 2 + (int)strlen(all->items[i].label) + 1 + (int)strlen(all->items[i].value);
    return length;
}

static void print_line(lk_runner *runner, const entries *all, bool is_best)
{
    lki_screen *screen = &runner->run->screen;
    bool colour = screen->terminal.has_colour;
    char count[32], seconds[32];
    int width = snprintf(count, sizeof count, "%" PRId64, runner->num_epochs);
    if (screen->terminal.is_terminal && line_length(all, width) > lki_terminal_columns(STDOUT_FILENO))
        screen->is_compact = true;
    const char *gap = screen->is_compact ? " " : "  ";
    lki_screen_print_time(screen);
    printf("%s%s%*" PRId64 "/%s%s", colour ? "\x1b[1m" : "", screen->is_compact ? "" : "epoch ", width,
           runner->epoch_step, count, colour ? "\x1b[0m" : "");
    for (int i = 0; i < all->count; i++)
        printf("%s%s%s%s %s", gap, colour ? "\x1b[2m" : "", all->items[i].label, colour ? "\x1b[0m" : "",
               all->items[i].value);
    format_seconds(seconds, (double)(lki_now_ns() - screen->epoch_ns) * 1e-9);
    printf("%s%6s", gap, seconds);
    if (is_best) printf(" %s*%s", colour ? "\x1b[1;32m" : "", colour ? "\x1b[0m" : "");
    printf("\n");
}

/* ---- The other metrics ---- */

/* "loss/mean" beside a "loss" of the same value. */
static bool repeats_another(const lk_metrics *metrics, const char *name, double value)
{
    char base[256];
    size_t length = strlen(name), tail = strlen("/mean");
    if (length <= tail || length - tail >= sizeof base || strcmp(name + length - tail, "/mean") != 0)
        return false;
    snprintf(base, sizeof base, "%.*s", (int)(length - tail), name);
    return lk_metrics_has(metrics, base) && lk_metrics_get(metrics, base) == value;
}

typedef struct columns {
    const lk_metrics *metrics[LKI_MAX_LOADERS + 1];
    const char *title[LKI_MAX_LOADERS + 1];
    int count;
} columns;

static bool is_in_line(const lk_runner *runner, const char *name, int column, const columns *all)
{
    const char *train = train_loader(runner), *title = all->title[column];
    bool is_first = train && strcmp(title, train) == 0;
    if (strcmp(name, runner->loss_key) == 0) return is_first || strcmp(title, other_loader(runner)) == 0;
    if (strcmp(name, "lr") == 0) return is_first;
    return strcmp(name, other_metric(runner)) == 0 && strcmp(title, metric_loader(runner)) == 0;
}

/* Whether this column has something to say about the metric that neither another row nor the line says. */
static bool has_news(const lk_runner *runner, const columns *all, int column, const char *name)
{
    const lk_metrics *metrics = all->metrics[column];
    return lk_metrics_has(metrics, name) && !is_in_line(runner, name, column, all) &&
           !repeats_another(metrics, name, lk_metrics_get(metrics, name));
}

static bool row_has_news(const lk_runner *runner, const columns *all, const char *name)
{
    for (int i = 0; i < all->count; i++)
        if (has_news(runner, all, i, name)) return true;
    return false;
}

/* Whether an earlier column had this row already. */
static bool is_told(const columns *all, int column, const char *name)
{
    for (int i = 0; i < column; i++)
        if (lk_metrics_has(all->metrics[i], name)) return true;
    return false;
}

static void print_row(const columns *all, const char *name, int name_width)
{
    printf("  %-*s", name_width, name);
    for (int i = 0; i < all->count; i++) {
        char value[LKI_NUMBER_LENGTH] = "";
        bool has_value = lk_metrics_has(all->metrics[i], name);
        if (has_value) format_value(value, lk_metrics_get(all->metrics[i], name));
        if (has_value || i + 1 < all->count) printf("  %10s", value);
    }
    printf("\n");
}

typedef void (*visit_row)(const columns *all, const char *name, int *width);

static void widen(const columns *all, const char *name, int *width)
{
    (void)all;
    if ((int)strlen(name) > *width) *width = (int)strlen(name);
}

static void show_row(const columns *all, const char *name, int *width)
{
    print_row(all, name, *width);
}

static void for_each_row(const lk_runner *runner, const columns *all, visit_row visit, int *width)
{
    for (int i = 0; i < all->count; i++)
        for (int k = 0; k < lk_metrics_count(all->metrics[i]); k++) {
            const char *name = lk_metrics_name(all->metrics[i], k);
            if (!is_told(all, i, name) && row_has_news(runner, all, name)) visit(all, name, width);
        }
}

static void print_others(const lk_runner *runner)
{
    const lki_run_loaders *loaders = &runner->run->loaders;
    columns all = {0};
    int width = 0;
    for (int i = 0; i < loaders->count; i++) {
        if (!loaders->items[i].has_metrics) continue;
        all.title[all.count] = loaders->items[i].key;
        all.metrics[all.count++] = loaders->items[i].metrics;
    }
    all.title[all.count] = "epoch";
    all.metrics[all.count++] = runner->epoch_metrics;
    bool epoch_has_news = false;
    for (int k = 0; k < lk_metrics_count(runner->epoch_metrics); k++)
        if (has_news(runner, &all, all.count - 1, lk_metrics_name(runner->epoch_metrics, k)))
            epoch_has_news = true;
    if (!epoch_has_news) all.count--;
    for_each_row(runner, &all, widen, &width);
    if (width == 0) return;
    printf("  %-*s", width, "");
    for (int i = 0; i < all.count; i++) printf("  %10s", all.title[i]);
    printf("\n");
    for_each_row(runner, &all, show_row, &width);
}

void lki_screen_epoch(lk_runner *runner)
{
    lki_screen *screen = &runner->run->screen;
    entries all;
    if (screen->level == LK_SHOW_NOTHING || screen->has_epochs) return;
    collect_entries(&all, runner);
    print_line(runner, &all, lki_epoch_table_last_is_best(&runner->run->reporting.table, runner));
    if (screen->level == LK_SHOW_ALL) print_others(runner);
    screen->line_ns = lki_now_ns();
    fflush(stdout); /* an output that cannot be written is no reason to stop a run */
}

/* ---- The end ---- */

/* "train loss  ▇▅▃▁  0.4513 to 0.0912" */
static void print_curve(const lk_runner *runner, const char *loader)
{
    enum { WIDTH = 40 };
    const lki_screen *screen = &runner->run->screen;
    char text[4 * WIDTH + 1], title[160], first[LKI_NUMBER_LENGTH], last[LKI_NUMBER_LENGTH];
    LKI_SCOPED double *values = NULL;
    snprintf(title, sizeof title, "%s %s", loader, runner->loss_key);
    int count = lki_epoch_table_column(&runner->run->reporting.table, title, &values);
    if (count < 2) return;
    lki_sparkline(text, values, count, WIDTH, screen->terminal.has_unicode);
    int begin = 0, end = count - 1; /* a loader that rests in some epochs has no loss there */
    while (begin < end && !isfinite(values[begin])) begin++;
    while (end > begin && !isfinite(values[end])) end--;
    format_value(first, values[begin]);
    format_value(last, values[end]);
    if (*text) printf("%s: %s  %s to %s\n", title, text, first, last);
}

void lki_screen_end(lk_runner *runner)
{
    const lki_screen *screen = &runner->run->screen;
    const char *train = train_loader(runner);
    enum { SHORT_TABLE = 24 };
    if (screen->level == LK_SHOW_NOTHING || runner->run->reporting.table.row_count == 0) return;
    printf("\n");
    lki_epoch_table_print(stdout, &runner->run->reporting.table, runner,
                          screen->level == LK_SHOW_ALL ? 0 : SHORT_TABLE);
    if (train) print_curve(runner, train);
    if (!train || strcmp(train, other_loader(runner)) != 0) print_curve(runner, other_loader(runner));
    fflush(stdout);
}
