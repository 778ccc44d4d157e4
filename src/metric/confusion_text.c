/* The confusion matrix as CSV and as a table for the terminal. */
#include "base/atomic_file.h"
#include "metric/canvas.h"
#include "metric/confusion.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static lk_status write_name(lki_atomic_file *file, const char *name)
{
    if (!strpbrk(name, ",\"\r\n")) return lki_atomic_file_printf(file, "%s", name);
    LKI_TRY(lki_atomic_file_write(file, "\"", 1));
    for (; *name; name++)
        LKI_TRY(lki_atomic_file_write(file, *name == '"' ? "\"\"" : name, *name == '"' ? 2 : 1));
    return lki_atomic_file_write(file, "\"", 1);
}

static lk_status write_table(lki_atomic_file *file, const lki_confusion_metric *confusion)
{
    int64_t classes = confusion->base.class_count;
    LKI_TRY(lki_atomic_file_printf(file, "true\\predicted"));
    for (int64_t c = 0; c < classes; c++) {
        LKI_TRY(lki_atomic_file_printf(file, ","));
        LKI_TRY(write_name(file, confusion->class_names[c]));
    }
    for (int64_t row = 0; row < classes; row++) {
        LKI_TRY(lki_atomic_file_printf(file, "\n"));
        LKI_TRY(write_name(file, confusion->class_names[row]));
        for (int64_t c = 0; c < classes; c++)
            LKI_TRY(lki_atomic_file_printf(file, confusion->normalize ? ",%.9g" : ",%.0f",
                                           lki_confusion_cell(confusion, row, c)));
    }
    return lki_atomic_file_printf(file, "\n");
}

lk_status lk_confusion_matrix_save_csv(const lk_metric *metric, const char *path)
{
    const lki_confusion_metric *confusion = lki_confusion_of(metric);
    lki_atomic_file *file;
    if (!confusion) return lki_last_status();
    LKI_TRY(lki_atomic_file_open(&file, path));
    write_table(file, confusion); /* commit says what a write said */
    return lki_atomic_file_commit(file);
}

enum { COLUMN_LETTERS = 9, ROW_LETTERS = 24, LONGEST_NAME = 4 * ROW_LETTERS + 8 };
#define CORNER "true \\ predicted"

typedef struct writer {
    char *text;
    size_t used, capacity;
} writer;

static void put(writer *w, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The text has room for the whole table: see lk_confusion_matrix_text. */
static void put(writer *w, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(w->text + w->used, w->capacity - w->used, format, arguments);
    va_end(arguments);
    if (length > 0 && (size_t)length < w->capacity - w->used) w->used += (size_t)length;
}

/* Right-aligned by letters, which printf would count as bytes. */
static void put_right(writer *w, const char *text, int width)
{
    put(w, "%*s%s", width - lki_text_length(text) > 0 ? width - lki_text_length(text) : 0, "", text);
}

/* Nine blues of the 256-colour palette, from light to dark. */
static void put_cell(writer *w, const lki_confusion_metric *confusion, int64_t row, int64_t column, int width,
                     bool colour)
{
    static const int blues[] = {231, 195, 153, 111, 75, 68, 32, 25, 18};
    char text[40];
    lki_confusion_cell_text(text, sizeof text, confusion, row, column);
    double share = lki_confusion_share(confusion, row, column);
    if (colour) put(w, "\x1b[48;5;%dm\x1b[38;5;%dm", blues[(int)(share * 8 + 0.5)], share > 0.4 ? 231 : 16);
    put_right(w, text, width);
    if (colour) put(w, " \x1b[0m");
}

/* The letters that a column and the row names need. */
static void measure(const lki_confusion_metric *confusion, int *width, int *corner)
{
    char text[LONGEST_NAME];
    int64_t classes = confusion->base.class_count;
    *width = 4;
    *corner = lki_text_length(CORNER);
    for (int64_t i = 0; i < classes * classes; i++) {
        lki_confusion_cell_text(text, sizeof text, confusion, i / classes, i % classes);
        if ((int)strlen(text) + 1 > *width) *width = (int)strlen(text) + 1;
    }
    for (int64_t c = 0; c < classes; c++) {
        int letters =
            lki_text_length(lki_text_shorten(text, sizeof text, confusion->class_names[c], COLUMN_LETTERS));
        if (letters + 1 > *width) *width = letters + 1;
        letters =
            lki_text_length(lki_text_shorten(text, sizeof text, confusion->class_names[c], ROW_LETTERS));
        if (letters > *corner) *corner = letters;
    }
}

char *lk_confusion_matrix_text(const lk_metric *metric, bool colour)
{
    const lki_confusion_metric *confusion = lki_confusion_of(metric);
    char name[LONGEST_NAME];
    int width, corner;
    if (!confusion) return NULL;
    int64_t classes = metric->class_count;
    measure(confusion, &width, &corner);
    size_t row_nbytes =
        (size_t)corner + 4 * ROW_LETTERS + (size_t)classes * ((size_t)width + 4 * COLUMN_LETTERS + 32);
    writer w = {lki_calloc((size_t)(classes + 1) * row_nbytes, "a confusion matrix as text"), 0,
                (size_t)(classes + 1) * row_nbytes};
    if (!w.text) return NULL;
    put_right(&w, CORNER, corner);
    for (int64_t c = 0; c < classes; c++) {
        put_right(&w, lki_text_shorten(name, sizeof name, confusion->class_names[c], COLUMN_LETTERS), width);
        if (colour) put(&w, " ");
    }
    put(&w, "\n");
    for (int64_t row = 0; row < classes; row++) {
        put_right(&w, lki_text_shorten(name, sizeof name, confusion->class_names[row], ROW_LETTERS), corner);
        for (int64_t c = 0; c < classes; c++) put_cell(&w, confusion, row, c, width, colour);
        put(&w, "\n");
    }
    return w.text;
}
