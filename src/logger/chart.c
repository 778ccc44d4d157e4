#include "logger/chart.h"

#include "base/memory.h"
#include "base/number_text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MIN_COLUMNS = 24, MIN_ROWS = 5, LABEL = 10, DOTS_X = 2, DOTS_Y = 4, LEVELS = 8 };

/* ---- A line of blocks ---- */

static const char *level_text(double share, bool unicode)
{
    static const char *const blocks[LEVELS] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char *const plain[LEVELS] = {"_", "_", "-", "-", "*", "*", "#", "#"};
    int level = (int)(share * (LEVELS - 1) + 0.5);
    return (unicode ? blocks : plain)[level < 0 ? 0 : level >= LEVELS ? LEVELS - 1 : level];
}

/* The mean of the finite values of cell `cell` of `width`, or NaN. */
static double cell_mean(const double *values, int64_t count, int cell, int width)
{
    int64_t begin = count * cell / width, end = count * (cell + 1) / width;
    double sum = 0;
    int64_t used = 0;
    for (int64_t i = begin; i < end; i++)
        if (isfinite(values[i])) sum += values[i], used++;
    return used ? sum / (double)used : NAN;
}

char *lki_sparkline(char *text, const double *values, int64_t count, int width, bool unicode)
{
    double low = INFINITY, high = -INFINITY;
    *text = '\0';
    if (count < width) width = (int)count;
    for (int i = 0; i < width; i++) {
        double mean = cell_mean(values, count, i, width);
        if (isnan(mean)) continue;
        low = fmin(low, mean);
        high = fmax(high, mean);
    }
    if (low > high) return text;
    char *at = text;
    for (int i = 0; i < width; i++) {
        double mean = cell_mean(values, count, i, width);
        const char *cell =
            isnan(mean) ? " " : level_text(high > low ? (mean - low) / (high - low) : 0, unicode);
        at = stpcpy(at, cell);
    }
    return text;
}

/* ---- A chart ---- */

/* What the curves are drawn into: Braille dots or marks, by cell, (rows, columns). */
typedef struct canvas {
    int columns, rows;
    bool braille;
    unsigned char *dots; /* Braille's eight bits */
    short *owners;       /* the series that was drawn last; -1 for none */
    double x_low, x_high, y_low, y_high;
} canvas;

static void find_ranges(canvas *c, const lki_chart *chart)
{
    c->x_low = c->y_low = INFINITY;
    c->x_high = c->y_high = -INFINITY;
    for (int s = 0; s < chart->series_count; s++) {
        const lki_series *series = &chart->series[s];
        for (int64_t i = 0; i < series->count; i++) {
            if (!isfinite(series->y[i])) continue;
            c->x_low = fmin(c->x_low, series->x[i]);
            c->x_high = fmax(c->x_high, series->x[i]);
            c->y_low = fmin(c->y_low, series->y[i]);
            c->y_high = fmax(c->y_high, series->y[i]);
        }
    }
}

static void set_dot(canvas *c, int x, int y, int owner)
{
    /* The bit of each dot of a Braille cell, (4, 2). */
    static const unsigned char bits[DOTS_Y][DOTS_X] = {{1, 8}, {2, 16}, {4, 32}, {64, 128}};
    int dots_x = c->braille ? DOTS_X : 1, dots_y = c->braille ? DOTS_Y : 1;
    if (x < 0 || y < 0 || x >= c->columns * dots_x || y >= c->rows * dots_y) return;
    int cell = y / dots_y * c->columns + x / dots_x;
    c->dots[cell] |= bits[y % dots_y][x % dots_x];
    c->owners[cell] = (short)owner;
}

static void draw_line(canvas *c, int x0, int y0, int x1, int y1, int owner)
{
    int steps = abs(x1 - x0) > abs(y1 - y0) ? abs(x1 - x0) : abs(y1 - y0);
    for (int i = 0; i <= steps; i++) {
        double share = steps ? (double)i / steps : 0;
        set_dot(c, (int)lround(x0 + share * (x1 - x0)), (int)lround(y0 + share * (y1 - y0)), owner);
    }
}

static int place(double value, double low, double high, int count)
{
    return high > low ? (int)lround((value - low) / (high - low) * (count - 1)) : 0;
}

static void draw_series(canvas *c, const lki_series *series, int owner)
{
    int width = c->columns * (c->braille ? DOTS_X : 1), height = c->rows * (c->braille ? DOTS_Y : 1);
    int last_x = -1, last_y = -1;
    for (int64_t i = 0; i < series->count; i++) {
        if (!isfinite(series->y[i])) {
            last_x = -1;
            continue;
        }
        int x = place(series->x[i], c->x_low, c->x_high, width);
        int y = height - 1 - place(series->y[i], c->y_low, c->y_high, height);
        if (last_x < 0) last_x = x, last_y = y;
        draw_line(c, last_x, last_y, x, y, owner);
        last_x = x;
        last_y = y;
    }
}

static const char *colour_of(const lki_chart *chart, int series)
{
    static const char *const colours[] = {"\x1b[36m", "\x1b[33m", "\x1b[35m", "\x1b[32m"};
    return chart->colour ? colours[series % 4] : "";
}

static char mark_of(int series)
{
    return "*o+x#@%&"[series % LKI_CHART_MAX_SERIES];
}

static const char *colour_end(const lki_chart *chart)
{
    return chart->colour ? "\x1b[0m" : "";
}

/* "loss   * train 0.4513   o valid 0.3421" */
static void print_title(FILE *out, const lki_chart *chart, bool braille)
{
    fprintf(out, "%s", chart->title);
    for (int s = 0; s < chart->series_count; s++) {
        const lki_series *series = &chart->series[s];
        char mark[4] = "";
        if (!braille) snprintf(mark, sizeof mark, "%c ", mark_of(s));
        lki_fprintf(out, "   %s%s%s %.5g%s", colour_of(chart, s), mark, series->name,
                    series->count ? series->y[series->count - 1] : NAN, colour_end(chart));
    }
    fprintf(out, "\n");
}

static void print_cell(FILE *out, const lki_chart *chart, const canvas *c, int cell)
{
    int owner = c->owners[cell];
    if (owner < 0) {
        fputc(' ', out);
    } else if (c->braille) {
        unsigned code = 0x2800u + c->dots[cell]; /* as three bytes of UTF-8 */
        fprintf(out, "%s%c%c%c%s", colour_of(chart, owner), (int)(0xe0 | code >> 12),
                (int)(0x80 | (code >> 6 & 63)), (int)(0x80 | (code & 63)), colour_end(chart));
    } else {
        fprintf(out, "%s%c%s", colour_of(chart, owner), mark_of(owner), colour_end(chart));
    }
}

static void print_rows(FILE *out, const lki_chart *chart, const canvas *c)
{
    const char *bar = chart->unicode ? "│" : "|", *tick = chart->unicode ? "┤" : "+";
    for (int row = 0; row < c->rows; row++) {
        bool labelled = row == 0 || row == c->rows - 1;
        if (labelled)
            lki_fprintf(out, "%*.5g %s", LABEL - 2, row == 0 ? c->y_high : c->y_low, tick);
        else
            fprintf(out, "%*s%s", LABEL - 1, "", bar);
        int end = c->columns; /* nothing is written behind the last mark */
        while (end > 0 && c->owners[row * c->columns + end - 1] < 0) end--;
        for (int i = 0; i < end; i++) print_cell(out, chart, c, row * c->columns + i);
        fprintf(out, "\n");
    }
}

static void print_x_axis(FILE *out, const lki_chart *chart, const canvas *c)
{
    char low[32], high[32];
    lki_snprintf(low, sizeof low, "%.6g", c->x_low);
    lki_snprintf(high, sizeof high, "%.6g", c->x_high);
    fprintf(out, "%*s%s", LABEL - 1, "", chart->unicode ? "└" : "+");
    for (int i = 0; i < c->columns; i++) fprintf(out, "%s", chart->unicode ? "─" : "-");
    fprintf(out, "\n%*s%s", LABEL, "", low);
    if (c->x_high > c->x_low) fprintf(out, "%*s", c->columns - (int)strlen(low), high);
    fprintf(out, "\n");
}

lk_status lki_chart_print(FILE *out, const lki_chart *chart)
{
    int columns = chart->columns < MIN_COLUMNS ? MIN_COLUMNS : chart->columns;
    int rows = chart->rows < MIN_ROWS ? MIN_ROWS : chart->rows;
    canvas c = {.columns = columns - LABEL - 1, .rows = rows - 3};
    c.braille = chart->unicode && (chart->colour || chart->series_count == 1);
    find_ranges(&c, chart);
    print_title(out, chart, c.braille);
    if (c.x_low > c.x_high) {
        fprintf(out, "%*sno value yet\n", LABEL, "");
        return LK_OK;
    }
    LKI_SCOPED unsigned char *dots = LKI_NEW_ARRAY(unsigned char, c.columns *c.rows);
    LKI_SCOPED short *owners = LKI_NEW_ARRAY(short, c.columns *c.rows);
    if (!dots || !owners) return LK_ERR_NOMEM;
    memset(owners, -1, sizeof *owners * (size_t)(c.columns * c.rows));
    c.dots = dots;
    c.owners = owners;
    for (int s = 0; s < chart->series_count; s++) draw_series(&c, &chart->series[s], s);
    print_rows(out, chart, &c);
    print_x_axis(out, chart, &c);
    return LK_OK;
}
