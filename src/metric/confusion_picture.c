/* The confusion matrix as a picture: a cell is the darker the larger its share of its row, and carries its
 * number. */
#include "base/number_text.h"
#include "metric/canvas.h"
#include "metric/confusion.h"
#include "tensor/png.h"

#include <stdio.h>
#include <string.h>

enum { MARGIN = 16, NAME_LETTERS = 18, BAR_WIDTH = 18, PICTURE_LIMIT = 4000 };

static const lki_colour WHITE = {255, 255, 255}, INK = {32, 36, 44}, FAINT = {120, 126, 138},
                        LINE = {214, 219, 227};

typedef struct layout {
    int classes;
    int cell, scale;             /* pixels of a cell; size of the letters in it, 0 for none */
    int name_scale, name_length; /* letters of the longest name shown */
    int left, top;               /* where the matrix starts */
    int side;                    /* its width and height */
    int width, height;
} layout;

/* From white over a light to a dark blue. */
static lki_colour shade(double share)
{
    static const double stops[3][3] = {{247, 250, 254}, {100, 160, 214}, {10, 52, 118}};
    double place = share * 2;
    int from = place < 1 ? 0 : 1;
    double part = place - from;
    double rgb[3];
    for (int i = 0; i < 3; i++) rgb[i] = stops[from][i] + (stops[from + 1][i] - stops[from][i]) * part;
    return (lki_colour){(uint8_t)(rgb[0] + 0.5), (uint8_t)(rgb[1] + 0.5), (uint8_t)(rgb[2] + 0.5)};
}

static int longest_number(const lki_confusion_metric *metric)
{
    char text[40];
    int longest = 1;
    int64_t classes = metric->base.class_count;
    for (int64_t i = 0; i < classes * classes; i++) {
        lki_confusion_cell_text(text, sizeof text, metric, i / classes, i % classes);
        if ((int)strlen(text) > longest) longest = (int)strlen(text);
    }
    return longest;
}

static int longest_name(const lki_confusion_metric *metric)
{
    int longest = 1;
    for (int64_t c = 0; c < metric->base.class_count; c++) {
        int length = lki_text_length(metric->class_names[c]);
        if (length > longest) longest = length;
    }
    return longest < NAME_LETTERS ? longest : NAME_LETTERS;
}

static layout plan(const lki_confusion_metric *metric)
{
    layout l = {.classes = (int)metric->base.class_count, .name_length = longest_name(metric)};
    int number = longest_number(metric);
    l.scale = l.classes <= 24 ? 2 : l.classes <= 80 ? 1 : 0;
    l.cell = l.scale ? number * LKI_GLYPH_WIDTH * l.scale + 10 : PICTURE_LIMIT / l.classes;
    if (l.cell < 22 * l.scale) l.cell = 22 * l.scale;
    if (l.scale == 0 && l.cell > 12) l.cell = 12;
    if (l.cell < 2) l.cell = 2;
    l.name_scale = l.cell >= LKI_GLYPH_HEIGHT * 2 ? 2 : 1;
    if (l.classes > 24) l.name_scale = 1;
    int names = l.cell >= LKI_GLYPH_HEIGHT ? l.name_length * LKI_GLYPH_WIDTH * l.name_scale + 8 : 0;
    l.side = l.cell * l.classes;
    l.left = MARGIN + 2 * LKI_GLYPH_HEIGHT + 12 + names;
    l.top = MARGIN + 2 * LKI_GLYPH_HEIGHT + 16;
    l.width = l.left + l.side + MARGIN + BAR_WIDTH + 3 * LKI_GLYPH_WIDTH * 2 + MARGIN;
    if (l.width < 46 * LKI_GLYPH_WIDTH * 2) l.width = 46 * LKI_GLYPH_WIDTH * 2;
    l.height = l.top + l.side + names + 8 + 2 * LKI_GLYPH_HEIGHT + MARGIN + 8;
    return l;
}

static void draw_cells(lki_canvas *canvas, const layout *l, const lki_confusion_metric *metric)
{
    int gap = l->cell >= 8 ? 1 : 0;
    char text[40];
    lki_canvas_fill(canvas, l->left - gap, l->top - gap, l->side + gap, l->side + gap, LINE);
    for (int i = 0; i < l->classes * l->classes; i++) {
        int row = i / l->classes, column = i % l->classes;
        int x = l->left + column * l->cell, y = l->top + row * l->cell;
        double share = lki_confusion_share(metric, row, column);
        lki_canvas_fill(canvas, x, y, l->cell - gap, l->cell - gap, shade(share));
        if (l->scale == 0) continue;
        lki_confusion_cell_text(text, sizeof text, metric, row, column);
        bool nothing = lki_confusion_cell(metric, row, column) == 0;
        lki_colour ink = share > 0.45 ? WHITE : nothing ? FAINT : INK;
        lki_canvas_text(canvas, x + (l->cell - gap - lki_text_width(text, l->scale)) / 2,
                        y + (l->cell - gap - 7 * l->scale) / 2, l->scale, text, ink);
    }
}

static void draw_names(lki_canvas *canvas, const layout *l, const lki_confusion_metric *metric)
{
    char name[4 * NAME_LETTERS + 8];
    if (l->cell < LKI_GLYPH_HEIGHT) return;
    for (int c = 0; c < l->classes; c++) {
        lki_text_shorten(name, sizeof name, metric->class_names[c], NAME_LETTERS);
        int width = lki_text_width(name, l->name_scale), height = 7 * l->name_scale;
        int middle = c * l->cell + l->cell / 2;
        lki_canvas_text(canvas, l->left - 8 - width, l->top + middle - height / 2, l->name_scale, name, INK);
        if (l->name_length * LKI_GLYPH_WIDTH * l->name_scale <= l->cell)
            lki_canvas_text(canvas, l->left + middle - width / 2, l->top + l->side + 8, l->name_scale, name,
                            INK);
        else
            lki_canvas_text_upwards(canvas, l->left + middle - height / 2, l->top + l->side + 8 + width,
                                    l->name_scale, name, INK);
    }
}

static void draw_frame(lki_canvas *canvas, const layout *l, const lki_confusion_metric *metric)
{
    char title[120];
    int64_t right = 0, all = 0, classes = l->classes;
    for (int64_t i = 0; i < classes * classes; i++) all += metric->counts[i];
    for (int64_t c = 0; c < classes; c++) right += metric->counts[c * classes + c];
    lki_snprintf(title, sizeof title, "Confusion matrix: %.2f%% of %lld right",
                 all ? 100.0 * (double)right / (double)all : 0.0, (long long)all);
    lki_canvas_text(canvas, MARGIN, MARGIN, 2, title, INK);
    lki_canvas_text_upwards(canvas, MARGIN, l->top + l->side / 2 + lki_text_width("true", 2) / 2, 2, "true",
                            FAINT);
    lki_canvas_text(canvas, l->left + l->side / 2 - lki_text_width("predicted", 2) / 2,
                    l->height - MARGIN - 2 * LKI_GLYPH_HEIGHT, 2, "predicted", FAINT);
    int x = l->left + l->side + MARGIN;
    for (int y = 0; y < l->side; y++)
        lki_canvas_fill(canvas, x, l->top + y, BAR_WIDTH, 1,
                        shade(1 - (double)y / (double)(l->side > 1 ? l->side - 1 : 1)));
    lki_canvas_text(canvas, x + BAR_WIDTH + 6, l->top, 2, "1", FAINT);
    lki_canvas_text(canvas, x + BAR_WIDTH + 6, l->top + l->side - 14, 2, "0", FAINT);
}

lk_tensor *lk_confusion_matrix_draw(const lk_metric *metric)
{
    const lki_confusion_metric *confusion = lki_confusion_of(metric);
    if (!confusion) return NULL;
    if (metric->class_count > PICTURE_LIMIT)
        return lki_fail_null(LK_ERR_INVALID, "confusion matrix: %lld classes are too many for a picture",
                             (long long)metric->class_count);
    layout l = plan(confusion);
    lki_canvas canvas;
    if (lki_canvas_init(&canvas, l.width, l.height, WHITE)) return NULL;
    draw_cells(&canvas, &l, confusion);
    draw_names(&canvas, &l, confusion);
    draw_frame(&canvas, &l, confusion);
    return canvas.pixels;
}

lk_status lk_confusion_matrix_save_png(const lk_metric *metric, const char *path)
{
    lk_tensor *pixels = lk_confusion_matrix_draw(metric);
    if (!pixels) return lki_last_status();
    lk_status status = lki_png_write(path, pixels);
    lk_tensor_free(pixels);
    return status;
}
