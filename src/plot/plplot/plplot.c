#include "plot/plplot/plplot_plugin.h"

#include "base/memory.h"
#include "base/number_text.h"
#include "base/plugin.h"
#include "base/status.h"

#include <errno.h>
#include <math.h>
#include <plplot/plplot.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MAX_DEVICES = 64, COLOURS = 256, BAR_STEPS = 128, STROKE_POINTS = 512 };
enum { DOT = 17 }; /* of the symbols that PLplot numbers */
enum { WHITE = 0, BLACK = 1, FIRST_CURVE = 2, GREY = 7 };

struct lki_page {
    char *path, *temporary;
    FILE *file;
};

static pthread_mutex_t plplot_lock = PTHREAD_MUTEX_INITIALIZER;

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* PLplot ends the process where a device is missing, so it is asked first. */
static bool has_device(const char *name)
{
    const char *texts[MAX_DEVICES], *names[MAX_DEVICES];
    const char **text = texts, **device = names;
    int count = MAX_DEVICES;
    plgFileDevs(&text, &device, &count);
    for (int i = 0; i < count; i++)
        if (strcmp(device[i], name) == 0) return true;
    return false;
}

/* White paper, black axes, and colours that stay apart for those who see fewer of them, and in print. */
static void choose_colours(void)
{
    static const PLINT red[] = {255, 0, 0, 213, 0, 230, 86, 128},
                       green[] = {255, 0, 114, 94, 158, 159, 180, 128},
                       blue[] = {255, 0, 178, 0, 115, 0, 233, 128};
    plscmap0(red, green, blue, 8);
}

static void choose_map(bool diverging)
{
    static const double at[] = {0, 0.25, 0.5, 0.75, 1};
    static const double viridis[3][5] = {{0.267, 0.231, 0.129, 0.369, 0.992},
                                         {0.004, 0.322, 0.569, 0.788, 0.906},
                                         {0.329, 0.545, 0.549, 0.384, 0.145}};
    static const double blue_red[3][5] = {{0.129, 0.573, 0.969, 0.957, 0.698},
                                          {0.400, 0.773, 0.969, 0.647, 0.094},
                                          {0.675, 0.871, 0.969, 0.510, 0.169}};
    const double(*map)[5] = diverging ? blue_red : viridis;
    plscmap1n(COLOURS);
    plscmap1l(1, 5, at, map[0], map[1], map[2], NULL);
}

static lk_status open_file(lki_page *page)
{
    page->file = fopen(page->temporary, "wb");
    if (page->file) return LK_OK;
    return lki_fail(LK_ERR_IO, "%s: cannot be written: %s", page->path, strerror(errno));
}

static void free_page(lki_page *page)
{
    lki_free(page->path);
    lki_free(page->temporary);
    lki_free(page);
}

static lk_status begin_page(lki_page **out, const char *path, int width, int height)
{
    const char *device = ends_with(path, ".png") ? "pngcairo" : ends_with(path, ".svg") ? "svgcairo" : NULL;
    if (!device) return lki_fail(LK_ERR_INVALID, "%s: a picture's name ends with .png or .svg", path);
    lki_page *page = LKI_NEW(lki_page);
    if (!page) return LK_ERR_NOMEM;
    page->path = lki_strdup(path);
    page->temporary = lki_format("%s.%ld.tmp", path, (long)getpid());
    lk_status status = page->path && page->temporary ? LK_OK : LK_ERR_NOMEM;
    pthread_mutex_lock(&plplot_lock);
    if (!status && !has_device(device))
        status = lki_fail(LK_ERR_UNSUPPORTED, "%s: PLplot's cairo driver is not installed", path);
    if (!status) status = open_file(page);
    if (status) {
        pthread_mutex_unlock(&plplot_lock);
        free_page(page);
        return status;
    }
    plsdev(device);
    plsfile(page->file);
    plspage(0, 0, width, height, 0, 0);
    choose_colours();
    plinit();
    pladv(0);
    plcol0(BLACK);
    *out = page;
    return LK_OK;
}

/* PLplot closes the file; what it could not write shows in the file's size and nowhere else. */
static lk_status end_page(lki_page *page)
{
    lk_status status = LK_OK;
    plend();
    pthread_mutex_unlock(&plplot_lock);
    FILE *written = fopen(page->temporary, "rb");
    bool whole = written && fseek(written, 0, SEEK_END) == 0 && ftell(written) > 0;
    if (written) fclose(written);
    if (!whole || rename(page->temporary, page->path)) {
        status = lki_fail(LK_ERR_IO, "%s: cannot be written: %s", page->path,
                          whole ? strerror(errno) : "it is empty");
        unlink(page->temporary);
    }
    free_page(page);
    return status;
}

/* ---- Ranges ---- */

typedef struct range {
    double low, high;
} range;

static double on_axis(double value, bool log)
{
    return log ? log10(value) : value;
}

static bool fits(double value, bool log)
{
    return isfinite(value) && (!log || value > 0);
}

static void widen(range *range, double value, bool log)
{
    if (!fits(value, log)) return;
    range->low = fmin(range->low, on_axis(value, log));
    range->high = fmax(range->high, on_axis(value, log));
}

static void add_margin(range *range, double share)
{
    if (!(range->low <= range->high)) *range = (struct range){0, 1};
    double margin = (range->high - range->low) * share;
    if (margin == 0) margin = fabs(range->low) > 0 ? 0.1 * fabs(range->low) : 1;
    range->low -= margin;
    range->high += margin;
}

/* ---- Numbers beside the axes ---- */

static void write_power(char *text, size_t capacity, double mantissa, int power)
{
    if (fabs(fabs(mantissa) - 1) < 1e-6)
        snprintf(text, capacity, "%s10#u%d#d", mantissa < 0 ? "-" : "", power);
    else
        lki_snprintf(text, capacity, "%.4g\302\26710#u%d#d", mantissa, power);
}

/* "0.04", "-250"; and where an axis is of very small or large numbers all of them as "2 x 10^-7". */
static void write_number(char *text, size_t capacity, double value, double span)
{
    int power = (int)floor(log10(span) + 1e-9);
    if (fabs(value) < 1e-9 * span) value = 0; /* a sum of steps that should have ended in nothing */
    if (value == 0 || (power > -4 && power < 5))
        lki_snprintf(text, capacity, "%.6g", value);
    else
        write_power(text, capacity, value / pow(10, power), power);
}

static void label_tick(PLINT axis, PLFLT value, char *text, PLINT capacity, PLPointer spans)
{
    write_number(text, (size_t)capacity, value, ((const double *)spans)[axis == PL_Y_AXIS]);
}

/* PLplot names only whole powers of ten; a range of few of them gets 2 and 5 too, or all. */
static void label_powers(const range *range, bool upright)
{
    static const double few[] = {1}, some[] = {1, 2, 5}, all[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    double span = range->high - range->low;
    const double *steps = span > 2.5 ? few : span > 0.8 ? some : all;
    int count = span > 2.5 ? 1 : span > 0.8 ? 3 : 9, every = 1 + (int)(span / 8);
    bool is_plain = range->low > -3.6 && range->high < 4.6;
    for (int power = (int)floor(range->low); power <= (int)ceil(range->high); power++) {
        if (power % every != 0) continue;
        for (int i = 0; i < count; i++) {
            char text[32];
            double at = (power + log10(steps[i]) - range->low) / span;
            if (at < 0 || at > 1) continue;
            if (is_plain)
                lki_snprintf(text, sizeof text, "%.6g", steps[i] * pow(10, power));
            else
                write_power(text, sizeof text, steps[i], power);
            plmtex(upright ? "lv" : "b", upright ? 0.8 : 1.6, at, upright ? 1 : 0.5, text);
        }
    }
}

static void draw_box(const range *x, bool log_x, const range *y, bool log_y)
{
    double spans[] = {x->high - x->low, y->high - y->low};
    plslabelfunc(label_tick, spans);
    plbox(log_x ? "bclst" : "bcnost", 0, 0, log_y ? "bclst" : "bcnostv", 0, 0);
    plslabelfunc(NULL, NULL);
    if (log_x) label_powers(x, false);
    if (log_y) label_powers(y, true);
}

/* ---- Lines ---- */

/* A run of points that are drawn as one line. */
typedef struct stroke {
    double x[STROKE_POINTS], y[STROKE_POINTS];
    int count;
} stroke;

static void end_stroke(stroke *stroke)
{
    if (stroke->count > 1) plline(stroke->count, stroke->x, stroke->y);
    if (stroke->count == 1) plpoin(1, stroke->x, stroke->y, DOT); /* a run of one epoch */
    stroke->count = 0;
}

/* A full stroke ends and the next one begins where it ended. */
static void add_point(stroke *stroke, double x, double y)
{
    if (stroke->count == STROKE_POINTS) {
        end_stroke(stroke);
        add_point(stroke, stroke->x[STROKE_POINTS - 1], stroke->y[STROKE_POINTS - 1]);
    }
    stroke->x[stroke->count] = x;
    stroke->y[stroke->count++] = y;
}

/* A histogram stands on the lower edge, and returns to it where a bin is empty. */
static void draw_steps(const lki_panel *panel, const lki_curve *curve, double floor)
{
    stroke stroke = {.count = 0};
    add_point(&stroke, on_axis(curve->x[0], panel->log_x), floor);
    for (int64_t i = 0; i < curve->count; i++) {
        double y = fits(curve->y[i], panel->log_y) ? on_axis(curve->y[i], panel->log_y) : floor;
        add_point(&stroke, on_axis(curve->x[i], panel->log_x), y);
        add_point(&stroke, on_axis(curve->x[i + 1], panel->log_x), y);
    }
    add_point(&stroke, on_axis(curve->x[curve->count], panel->log_x), floor);
    end_stroke(&stroke);
}

/* A curve of very many points is drawn through some of them: nobody could see more. */
static void draw_curve(const lki_panel *panel, const lki_curve *curve, int index, double floor)
{
    stroke stroke = {.count = 0};
    bool dashed = curve->kind == LKI_CURVE_DASHED, steps = curve->kind == LKI_CURVE_STEPS;
    int64_t every = 1 + curve->count / 2000;
    plcol0(dashed ? GREY : FIRST_CURVE + index % 5);
    /* The first curve is broad, so that one that covers it does not hide it. */
    plwidth(dashed ? 1.5 : steps ? 2 : index ? 1.8 : 4);
    pllsty(dashed ? 2 : 1);
    if (steps) draw_steps(panel, curve, floor);
    for (int64_t i = 0; i < curve->count && !steps; i++) {
        if (i % every != 0 && i != curve->count - 1) continue;
        if (!fits(curve->x[i], panel->log_x) || !fits(curve->y[i], panel->log_y)) {
            end_stroke(&stroke);
            continue;
        }
        add_point(&stroke, on_axis(curve->x[i], panel->log_x), on_axis(curve->y[i], panel->log_y));
    }
    end_stroke(&stroke);
    pllsty(1);
}

/* In the upper right corner, or the lower one where curves rise. */
static void draw_names(const lki_panel *panel, const lki_curve *curves, int count)
{
    const char *side = panel->names_below ? "b" : "t";
    double line = panel->names_below ? -1.8 - 2.2 * (count - (panel->note ? 0 : 1)) : -1.8;
    double step = panel->names_below ? 2.2 : -2.2;
    plschr(0, 0.7);
    for (int i = 0; i < count; i++, line += step) {
        plcol0(curves[i].kind == LKI_CURVE_DASHED ? GREY : FIRST_CURVE + i % 5);
        plmtex(side, line, 0.95, 1, curves[i].name);
    }
    plcol0(BLACK);
    if (panel->note) plmtex(side, line, 0.95, 1, panel->note);
    plschr(0, 1);
}

static void draw_curves(lki_page *page, const lki_panel *panel, const lki_curve *curves, int count)
{
    (void)page;
    range x = {INFINITY, -INFINITY}, y = x;
    for (int c = 0; c < count; c++) {
        int64_t extra = curves[c].kind == LKI_CURVE_STEPS;
        for (int64_t i = 0; i < curves[c].count + extra; i++) widen(&x, curves[c].x[i], panel->log_x);
        for (int64_t i = 0; i < curves[c].count; i++) widen(&y, curves[c].y[i], panel->log_y);
    }
    add_margin(&x, 0.02);
    add_margin(&y, 0.06);
    if (!panel->names_below) y.high += (y.high - y.low) * (0.03 + 0.07 * count); /* room for the names */
    plvpor(panel->left, panel->right, panel->bottom, panel->top);
    plwind(x.low, x.high, y.low, y.high);
    for (int i = 0; i < count; i++) draw_curve(panel, &curves[i], i, y.low);
    plcol0(BLACK);
    plwidth(1);
    plschr(0, 0.75);
    draw_box(&x, panel->log_x, &y, panel->log_y);
    plmtex("b", 3.4, 0.5, 0.5, panel->x_text ? panel->x_text : "");
    plmtex("l", panel->log_y ? 6.6 : 5.2, 0.5, 0.5, panel->y_text ? panel->y_text : "");
    plschr(0, 0.9);
    plmtex("t", 1.2, 0.5, 0.5, panel->title ? panel->title : "");
    draw_names(panel, curves, count);
}

/* ---- Images ---- */

/* One coloured cell after the other: exact places in both formats, where plimage would smooth. */
static void draw_cells(const double *values, int64_t rows, int64_t columns, double low, double high)
{
    double span = high > low ? high - low : 1;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) {
            double share = (values[r * columns + c] - low) / span;
            double x[] = {(double)c, (double)c + 1, (double)c + 1, (double)c};
            double y[] = {(double)r, (double)r, (double)r + 1, (double)r + 1};
            plcol1(share < 0 ? 0 : share > 1 ? 1 : share);
            plfill(4, x, y);
        }
}

static void draw_bar(const lki_panel *panel, double low, double high)
{
    double steps[BAR_STEPS], width = 0.018;
    for (int i = 0; i < BAR_STEPS; i++) steps[i] = (i + 0.5) / BAR_STEPS;
    plvpor(panel->right + 0.008, panel->right + 0.008 + width, panel->bottom, panel->top);
    plwind(0, 1, 0, BAR_STEPS);
    draw_cells(steps, BAR_STEPS, 1, 0, 1);
    plcol0(BLACK);
    plwind(0, 1, low, high);
    plschr(0, 0.6);
    double spans[] = {1, high - low};
    plslabelfunc(label_tick, spans);
    plbox("bc", 0, 0, "bcmostv", 0, 0);
    plslabelfunc(NULL, NULL);
}

static void draw_image(lki_page *page, const lki_panel *panel, const double *values, int64_t rows,
                       int64_t columns, double low, double high, bool diverging)
{
    (void)page;
    if (!(high > low)) high = low + 1;
    choose_map(diverging);
    plvpor(panel->left, panel->right, panel->bottom, panel->top);
    plwind(0, (double)columns, 0, (double)rows);
    draw_cells(values, rows, columns, low, high);
    plcol0(BLACK);
    plwidth(1);
    plschr(0, 0.7);
    draw_box(&(range){0, (double)columns}, false, &(range){0, (double)rows}, false);
    plmtex("b", 3.4, 0.5, 0.5, panel->x_text ? panel->x_text : "");
    plmtex("l", 3.4, 0.5, 0.5, panel->y_text ? panel->y_text : "");
    plschr(0, 0.9);
    plmtex("t", 1.2, 0.5, 0.5, panel->title ? panel->title : "");
    draw_bar(panel, low, high);
}

/* ---- A matrix of classes ---- */

enum { MOST_TEXTS = 24, MOST_NAMES = 60 }; /* classes */

/* From white over a light to a dark blue, on which the texts stay readable. */
static void choose_blues(void)
{
    static const double at[] = {0, 0.5, 1};
    static const double red[] = {0.98, 0.39, 0.04}, green[] = {0.99, 0.63, 0.20}, blue[] = {1, 0.84, 0.46};
    plscmap1n(COLOURS);
    plscmap1l(1, 3, at, red, green, blue, NULL);
}

static double longest_text(const char *const *texts, int64_t count)
{
    size_t longest = 1;
    for (int64_t i = 0; i < count; i++)
        if (strlen(texts[i]) > longest) longest = strlen(texts[i]);
    return (double)longest;
}

/* A size of letters at which a text of that length fits into a part of the page's width. */
static double letter_size(double length, double room)
{
    return fmin(0.85, room / (length * 0.0165));
}

/* Numbers within the cells; white where the cell is dark. */
static void draw_matrix_texts(const lki_matrix *m, double cell)
{
    plschr(0, letter_size(longest_text(m->texts, m->classes * m->classes), 0.8 * cell));
    for (int64_t i = 0; i < m->classes * m->classes; i++) {
        plcol0(m->shares[i] > 0.5 ? WHITE : BLACK);
        plptex((double)(i % m->classes) + 0.5, (double)(m->classes - 1 - i / m->classes) + 0.5, 1, 0, 0.5,
               m->texts[i]);
    }
    plcol0(BLACK);
}

/* A name that is wider than its cell stands upright. Of very many classes some are named. */
static void draw_matrix_names(const lki_matrix *m, double cell, double left)
{
    double length = longest_text(m->names, m->classes);
    int64_t every = 1 + (m->classes - 1) / MOST_NAMES;
    double size = fmin(letter_size(length, left - 0.06), 0.8);
    if (m->classes > MOST_TEXTS) size = fmin(size, 0.55);
    bool upright = length * 0.0165 * size > cell;
    plschr(0, size);
    for (int64_t c = 0; c < m->classes; c += every) {
        double at = ((double)c + 0.5) / (double)m->classes;
        plmtex(upright ? "bv" : "b", upright ? 0.6 : 1.5, at, upright ? 1 : 0.5, m->names[c]);
        plmtex("lv", 0.6, 1 - at, 1, m->names[c]);
    }
}

/* At the edges of the page: how long the names of the classes are is not known. */
static void draw_matrix_axes(const lki_panel *panel, const lki_matrix *m)
{
    plvpor(0, 1, 0, 1);
    plwind(0, 1, 0, 1);
    plschr(0, 0.85);
    plptex((panel->left + panel->right) / 2, 0.03, 1, 0, 0.5, panel->x_text ? panel->x_text : "");
    plptex(0.03, (panel->bottom + panel->top) / 2, 0, 1, 0.5, panel->y_text ? panel->y_text : "");
    plschr(0, 0.7);
    plptex(0.965, (panel->bottom + panel->top) / 2, 0, 1, 0.5, m->bar_text ? m->bar_text : "");
}

static void draw_matrix(lki_page *page, const lki_panel *panel, const lki_matrix *m)
{
    double cell = (panel->right - panel->left) / (double)m->classes;
    (void)page;
    choose_blues();
    plvpor(panel->left, panel->right, panel->bottom, panel->top);
    plwind(0, (double)m->classes, 0, (double)m->classes);
    for (int64_t r = 0; r < m->classes; r++)
        for (int64_t c = 0; c < m->classes; c++) {
            double top = (double)(m->classes - r), x[] = {(double)c, (double)c + 1, (double)c + 1, (double)c};
            double y[] = {top - 1, top - 1, top, top};
            plcol1(fmin(1, fmax(0, m->shares[r * m->classes + c])));
            plfill(4, x, y);
        }
    plcol0(BLACK);
    plwidth(1);
    plbox("bc", 0, 0, "bc", 0, 0);
    if (m->classes <= MOST_TEXTS) draw_matrix_texts(m, cell);
    draw_matrix_names(m, cell, panel->left);
    plschr(0, 0.95);
    plmtex("t", 1.3, 0.5, 0.5, panel->title ? panel->title : "");
    draw_bar(panel, 0, 1);
    draw_matrix_axes(panel, m);
}

LKI_PLUGIN_EXPORT(plplot, lki_plplot_functions, char, .begin = begin_page, .end = end_page,
                  .curves = draw_curves, .image = draw_image, .matrix = draw_matrix);
