/* lockstep plot: pictures of what a run has left in its logdir, for a paper or a page. */
#include "cli/commands.h"
#include "cli/plot_table.h"

#include "base/atomic_file.h"
#include "base/memory.h"
#include "base/number_text.h"
#include "base/status.h"
#include "optim/suggest_lr.h"
#include "plot/plot.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_LOADERS = 8, MOST_CLASSES = 1000, WIDTH = 900, HEIGHT = 600 };

#define WHOLE_PAGE .left = 0.14, .right = 0.96, .bottom = 0.16, .top = 0.9

typedef struct plot_options {
    const char *output, *format;
    lki_texts metrics, logdir;
} plot_options;

#define OFFSET(field) offsetof(plot_options, field)

static const lki_option table[] = {
    {"output", 'o', LKI_OPTION_TEXT, OFFSET(output), "DIR", NULL,
     "the folder for the pictures (LOGDIR/plots)", 0},
    {"format", 0, LKI_OPTION_TEXT, OFFSET(format), NULL, "both|png|svg", "what to write (both)", 0},
    {"metric", 0, LKI_OPTION_TEXTS, OFFSET(metrics), "NAME", NULL,
     "draw this metric over the epochs, too; may be given several times", 0},
    {0},
};

typedef struct job {
    const char *logdir, *format;
    char *folder;
    int count; /* of pictures */
} job;

/* ---- Formats ---- */

typedef lk_status (*draw_page)(lki_page *page, const void *what);

/* NAME.png and NAME.svg, or one of them. */
static lk_status write_picture(job *j, const char *name, int width, int height, draw_page draw,
                               const void *what)
{
    static const char *const endings[] = {"png", "svg"};
    for (int i = 0; i < 2; i++) {
        lki_page *page;
        if (j->format && strcmp(j->format, "both") != 0 && strcmp(j->format, endings[i]) != 0) continue;
        LKI_SCOPED char *path = lki_format("%s/%s.%s", j->folder, name, endings[i]);
        if (!path) return LK_ERR_NOMEM;
        LKI_TRY(lki_make_folders(j->folder));
        LKI_TRY(lki_page_begin(&page, path, width, height));
        lk_status status = draw(page, what);
        lk_status ended = lki_page_end(page);
        LKI_TRY(status ? status : ended);
        printf("%s\n", path);
        j->count++;
    }
    return LK_OK;
}

typedef struct chart {
    lki_panel panel;
    lki_curve curves[MAX_LOADERS];
    int count;
} chart;

static lk_status draw_chart(lki_page *page, const void *what)
{
    const chart *c = what;
    lki_page_curves(page, &c->panel, c->curves, c->count);
    return LK_OK;
}

/* ---- A metric over the epochs ---- */

static bool is_table(const char *name)
{
    size_t length = strlen(name);
    return length > 4 && strcmp(name + length - 4, ".csv") == 0 && strcmp(name, "_epoch_.csv") != 0 &&
           *name != '.';
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The files that a filter takes, sorted; at most `capacity` of them. Each is freed with lki_free. */
static int list_files(const char *folder, bool (*takes)(const char *), char **names, int capacity)
{
    int count = 0;
    DIR *entries = opendir(folder);
    for (struct dirent *entry; entries && count < capacity && (entry = readdir(entries));)
        if (takes(entry->d_name) && (names[count] = lki_strdup(entry->d_name))) count++;
    if (entries) closedir(entries);
    qsort(names, (size_t)count, sizeof *names, by_name);
    return count;
}

/* Takes a curve out of a loader's table, if that has the metric. What it is made of is freed with it. */
static lk_status add_curve(chart *c, const char *path, const char *loader, const char *metric)
{
    lki_plot_table log;
    LKI_TRY(lki_plot_table_read(&log, path));
    int x = lki_plot_column(&log, "step"), y = lki_plot_column(&log, metric);
    lk_status status = LK_OK;
    if (x >= 0 && y >= 0 && log.rows > 0) {
        lki_curve curve = {.name = lki_strndup(loader, strlen(loader) - 4),
                           .x = lki_plot_numbers(&log, x),
                           .y = lki_plot_numbers(&log, y),
                           .count = log.rows,
                           .kind = LKI_CURVE_LINE};
        c->curves[c->count++] = curve;
        if (!curve.name || !curve.x || !curve.y) status = LK_ERR_NOMEM;
    }
    lki_plot_table_fini(&log);
    return status;
}

static void free_chart(chart *c)
{
    for (int i = 0; i < c->count; i++) {
        lki_free((char *)c->curves[i].name);
        lki_free((double *)c->curves[i].x);
        lki_free((double *)c->curves[i].y);
    }
}

/* A loss that falls by more than a factor of ten is seen better on a logarithmic axis. */
static bool spans_decades(const chart *c)
{
    double low = INFINITY, high = -INFINITY;
    for (int i = 0; i < c->count; i++)
        for (int64_t k = 0; k < c->curves[i].count; k++) {
            low = fmin(low, c->curves[i].y[k]);
            high = fmax(high, c->curves[i].y[k]);
        }
    return low > 0 && high > 10 * low;
}

static lk_status plot_metric(job *j, const char *metric, bool required)
{
    char *names[MAX_LOADERS];
    chart c = {.panel = {WHOLE_PAGE, .x_text = "epoch", .y_text = metric, .title = metric}};
    LKI_SCOPED char *folder = lki_format("%s/csv_logger", j->logdir);
    LKI_SCOPED char *name = lki_strdup(metric);
    if (!folder || !name) return LK_ERR_NOMEM;
    lk_status status = LK_OK;
    int count = list_files(folder, is_table, names, MAX_LOADERS);
    for (int i = 0; i < count; i++) {
        LKI_SCOPED char *path = lki_format("%s/%s", folder, names[i]);
        if (!status) status = path ? add_curve(&c, path, names[i], metric) : LK_ERR_NOMEM;
        lki_free(names[i]);
    }
    for (char *at = name; *at; at++)
        if (*at == '/') *at = '.';
    c.panel.log_y = spans_decades(&c);
    if (!status && c.count) status = write_picture(j, name, WIDTH, HEIGHT, draw_chart, &c);
    if (!status && !c.count && required)
        status =
            lki_fail(LK_ERR_NOT_FOUND, "plot: no log of %s has the metric \"%.100s\"", j->logdir, metric);
    free_chart(&c);
    return status;
}

/* ---- The test of learning rates ---- */

static lk_status draw_finder(job *j, const lki_plot_table *log)
{
    char suggestion[64] = "no rate to suggest";
    LKI_SCOPED double *rates = lki_plot_numbers(log, 1), *losses = lki_plot_numbers(log, 2);
    LKI_SCOPED double *smoothed = LKI_NEW_ARRAY(double, log->rows + 1);
    if (!rates || !losses || !smoothed) return LK_ERR_NOMEM;
    double rate = lki_suggest_lr(rates, losses, log->rows, smoothed);
    double low = INFINITY, high = -INFINITY;
    /* The end of the test, where the loss has run away, would leave no room for the rest. */
    for (int64_t i = 0; i < log->rows; i++) low = fmin(low, smoothed[i]);
    double most = smoothed[0] + 2 * (smoothed[0] - low);
    int64_t shown = 0;
    while (shown < log->rows && losses[shown] <= fmax(most, 1.5 * smoothed[0])) {
        high = fmax(high, losses[shown]);
        low = fmin(low, losses[shown++]);
    }
    if (!isnan(rate)) lki_snprintf(suggestion, sizeof suggestion, "suggested: %.3g", rate);
    const double at[] = {rate, rate}, ends[] = {low, high};
    chart c = {.panel = {WHOLE_PAGE, .x_text = "learning rate", .y_text = lki_plot_cell(log, -1, 2),
                         .title = "learning rate finder", .log_x = true},
               .curves = {{"smoothed", rates, smoothed, shown, LKI_CURVE_LINE},
                          {"each batch", rates, losses, shown, LKI_CURVE_LINE},
                          {suggestion, at, ends, 2, LKI_CURVE_DASHED}},
               .count = isnan(rate) ? 2 : 3};
    if (isnan(rate)) c.panel.note = suggestion;
    return write_picture(j, "lr_finder", WIDTH, HEIGHT, draw_chart, &c);
}

static lk_status plot_finder(job *j)
{
    lki_plot_table log;
    LKI_SCOPED char *path = lki_format("%s/lr_finder.csv", j->logdir);
    if (!path) return LK_ERR_NOMEM;
    if (access(path, F_OK)) return LK_OK;
    LKI_TRY(lki_plot_table_read(&log, path));
    lk_status status = log.columns == 3 && log.rows > 0
                           ? draw_finder(j, &log)
                           : lki_fail(LK_ERR_FORMAT, "%s: expected step, lr and a loss", path);
    lki_plot_table_fini(&log);
    return status;
}

/* ---- Confusion matrices ---- */

typedef struct square {
    lki_matrix matrix;
    char title[120];
} square;

static lk_status draw_square(lki_page *page, const void *what)
{
    const square *s = what;
    lki_panel panel = {.left = 0.2,
                       .right = 0.86,
                       .bottom = 0.2,
                       .top = 0.9,
                       .x_text = "predicted",
                       .y_text = "true",
                       .title = s->title};
    lki_page_matrix(page, &panel, &s->matrix);
    return LK_OK;
}

/* Counts, or shares of a row if the callback has normalised them. */
static lk_status draw_confusion(job *j, const lki_plot_table *log, const char *name)
{
    int64_t classes = log->rows;
    LKI_SCOPED double *shares = LKI_NEW_ARRAY(double, classes *classes);
    LKI_SCOPED const char **texts = LKI_NEW_ARRAY(const char *, classes *classes);
    LKI_SCOPED const char **names = LKI_NEW_ARRAY(const char *, classes);
    LKI_SCOPED char(*shown)[16] = lki_calloc(16 * (size_t)(classes * classes), "the numbers of a picture");
    double right = 0, all = 0;
    bool whole = true;
    if (!shares || !texts || !names || !shown) return LK_ERR_NOMEM;
    for (int64_t r = 0; r < classes; r++) {
        double sum = 0;
        names[r] = lki_plot_cell(log, r, 0);
        for (int64_t c = 0; c < classes; c++) {
            double value = lki_strtod(lki_plot_cell(log, r, (int)c + 1), NULL);
            shares[r * classes + c] = value;
            sum += value;
            whole = whole && value == floor(value);
            lki_snprintf(shown[r * classes + c], sizeof *shown, value == floor(value) ? "%.0f" : "%.2f",
                         value);
            texts[r * classes + c] = shown[r * classes + c];
        }
        right += shares[r * classes + r];
        all += sum;
        for (int64_t c = 0; c < classes && sum > 0; c++) shares[r * classes + c] /= sum;
    }
    square s = {.matrix = {classes, shares, texts, names, "share of the true class"}};
    if (whole && all > 0)
        lki_snprintf(s.title, sizeof s.title, "%s: %.2f%% of %.0f are right", name, 100 * right / all, all);
    else
        snprintf(s.title, sizeof s.title, "%s: shares of the true class", name);
    LKI_SCOPED char *file = lki_format("confusion_matrix_%s", name);
    return file ? write_picture(j, file, 1000, 860, draw_square, &s) : LK_ERR_NOMEM;
}

/* "valid_0003.csv" -> "valid". */
static size_t stem(const char *file)
{
    const char *line = strrchr(file, '_');
    return line ? (size_t)(line - file) : strlen(file);
}

static lk_status plot_confusion(job *j, const char *folder, const char *file)
{
    lki_plot_table log;
    LKI_SCOPED char *path = lki_format("%s/%s", folder, file);
    LKI_SCOPED char *name = lki_strndup(file, stem(file));
    if (!path || !name) return LK_ERR_NOMEM;
    LKI_TRY(lki_plot_table_read(&log, path));
    lk_status status;
    if (log.rows < 1 || log.columns != log.rows + 1)
        status = lki_fail(LK_ERR_FORMAT, "%s: expected as many rows as classes", path);
    else if (log.rows > MOST_CLASSES)
        status = lki_fail(LK_ERR_UNSUPPORTED, "%s: %lld classes are too many for a picture", path,
                          (long long)log.rows);
    else
        status = draw_confusion(j, &log, name);
    lki_plot_table_fini(&log);
    return status;
}

/* Of each loader the last epoch's, whose file comes last. */
static lk_status plot_confusions(job *j)
{
    enum { MOST_FILES = 20000 };
    lk_status status = LK_OK;
    LKI_SCOPED char *folder = lki_format("%s/confusion_matrix", j->logdir);
    LKI_SCOPED char **names = LKI_NEW_ARRAY(char *, MOST_FILES);
    if (!folder || !names) return LK_ERR_NOMEM;
    int count = list_files(folder, is_table, names, MOST_FILES);
    for (int i = 0; i < count; i++) {
        bool is_last = i + 1 == count || stem(names[i]) != stem(names[i + 1]) ||
                       strncmp(names[i], names[i + 1], stem(names[i])) != 0;
        if (!status && is_last) status = plot_confusion(j, folder, names[i]);
    }
    for (int i = 0; i < count; i++) lki_free(names[i]);
    return status;
}

/* ---- The command ---- */

static lk_status plot_all(job *j, const plot_options *options)
{
    if (access(j->logdir, R_OK | X_OK))
        return lki_fail(LK_ERR_NOT_FOUND, "plot: %s: there is no such folder", j->logdir);
    LKI_TRY(plot_metric(j, "loss", false));
    for (int i = 0; i < options->metrics.count; i++) LKI_TRY(plot_metric(j, options->metrics.items[i], true));
    LKI_TRY(plot_finder(j));
    LKI_TRY(plot_confusions(j));
    if (j->count) return LK_OK;
    return lki_fail(LK_ERR_NOT_FOUND,
                    "plot: %s: nothing to draw: no csv_logger, confusion_matrix or lr_finder.csv", j->logdir);
}

static int run(const void *pointer)
{
    const plot_options *options = pointer;
    job j = {.logdir = options->logdir.items[0], .format = options->format};
    if (options->logdir.count > 1) {
        lki_fail(LK_ERR_CONFIG, "plot: one logdir at a time, found %d", options->logdir.count);
        return lki_report(LKI_EXIT_WRONG);
    }
    j.folder = options->output ? lki_strdup(options->output) : lki_format("%s/plots", j.logdir);
    lk_status status = j.folder ? plot_all(&j, options) : LK_ERR_NOMEM;
    lki_free(j.folder);
    return status ? lki_report(LKI_EXIT_FAILED) : LKI_EXIT_DONE;
}

const lki_command lki_command_plot = {
    .name = "plot",
    .usage = "LOGDIR [-o DIR] [--format both|png|svg] [--metric NAME ...]",
    .summary = "Draws the loss, the confusion matrix and the learning rates of a run.",
    .options = table,
    .options_nbytes = sizeof(plot_options),
    .positional = "the logdir of a run",
    .positional_offset = OFFSET(logdir),
    .positional_minimum = 1,
    .run = run,
};
