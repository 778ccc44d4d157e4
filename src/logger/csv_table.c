#include "logger/csv_table.h"

#include "base/atomic_file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/number_text.h"
#include "base/status.h"
#include "logger/append_file.h"
#include "logger/format.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Seconds since the epoch. */
static const char time_column[] = "time";

typedef struct cell {
    double value;
    bool present;
} cell;

typedef struct row {
    int64_t step;
    cell *cells; /* one a column */
} row;

struct lki_csv_table {
    lki_append_file file;
    bool on_disk; /* the file is ours: it has our header and every row but the latest */
    char **columns;
    int column_count;
    row *rows;
    int64_t row_count, row_capacity;
};

static void free_table(lki_csv_table *table)
{
    for (int i = 0; i < table->column_count; i++) lki_free(table->columns[i]);
    for (int64_t i = 0; i < table->row_count; i++) lki_free(table->rows[i].cells);
    lki_free(table->columns);
    lki_free(table->rows);
    lki_free(table);
}

/* Puts a column before `at`; the rows so far have nothing in it. */
static lk_status insert_column(lki_csv_table *table, int at, const char *name, size_t length)
{
    size_t count = (size_t)table->column_count;
    char **columns = lki_realloc(table->columns, sizeof *columns * (count + 1), "a CSV file's columns");
    if (!columns) return LK_ERR_NOMEM;
    table->columns = columns;
    for (int64_t i = 0; i < table->row_count; i++) {
        cell *cells = lki_realloc(table->rows[i].cells, sizeof *cells * (count + 1), "a CSV file's row");
        if (!cells) return LK_ERR_NOMEM;
        table->rows[i].cells = cells;
    }
    char *copy = lki_strndup(name, length);
    if (!copy) return LK_ERR_NOMEM;
    memmove(columns + at + 1, columns + at, sizeof *columns * (count - (size_t)at));
    columns[at] = copy;
    table->column_count++;
    for (int64_t i = 0; i < table->row_count; i++) {
        cell *cells = table->rows[i].cells;
        memmove(cells + at + 1, cells + at, sizeof *cells * (count - (size_t)at));
        cells[at] = (cell){0};
    }
    return LK_OK;
}

static lk_status insert_row(lki_csv_table *table, int64_t step, row **out)
{
    if (table->row_count == table->row_capacity) {
        int64_t capacity = table->row_capacity ? table->row_capacity * 2 : 16;
        row *rows = lki_realloc(table->rows, sizeof *rows * (size_t)capacity, "a CSV file's rows");
        if (!rows) return LK_ERR_NOMEM;
        table->rows = rows;
        table->row_capacity = capacity;
    }
    cell *cells = LKI_NEW_ARRAY(cell, table->column_count);
    if (!cells) return LK_ERR_NOMEM;
    *out = &table->rows[table->row_count++];
    **out = (row){step, cells};
    return LK_OK;
}

/* A field, in quotes where it needs them; returns what follows its comma. *length is the field's own. */
static const char *read_field(const char *at, char *field, size_t *length)
{
    bool quoted = *at == '"';
    size_t used = 0;
    if (quoted) at++;
    for (; *at && *at != '\n'; at++) {
        if (quoted && *at == '"') {
            if (at[1] != '"') {
                quoted = false;
                continue;
            }
            at++;
        } else if (!quoted && (*at == ',' || *at == '\r')) {
            if (*at == ',') break;
            continue;
        }
        field[used++] = *at;
    }
    field[used] = '\0';
    *length = used;
    return *at == ',' ? at + 1 : at;
}

/* Where the next line begins, or the text ends. */
static const char *next_line(const char *line, const char *end)
{
    const char *newline = memchr(line, '\n', (size_t)(end - line));
    return newline ? newline + 1 : end;
}

/* Power that fails leaves zeros in a file. */
static bool has_zeros(const char *text, const char *end)
{
    return memchr(text, '\0', (size_t)(end - text)) != NULL;
}

static lk_status read_row(lki_csv_table *table, const char *line, const char *line_end, char *field,
                          int64_t keep_up_to, bool *dropped)
{
    size_t length;
    char *end;
    row *made;
    const char *at = read_field(line, field, &length);
    int64_t step = strtoll(field, &end, 10);
    /* A row without its newline was cut off by a crash: it goes as the later ones do. */
    bool is_whole = line_end[-1] == '\n' && !has_zeros(line, line_end);
    if (length == 0 || *end || step > keep_up_to || !is_whole) {
        *dropped = true;
        return LK_OK;
    }
    LKI_TRY(insert_row(table, step, &made));
    for (int i = 0; i < table->column_count && *at && *at != '\n'; i++) {
        at = read_field(at, field, &length);
        made->cells[i] = (cell){lki_strtod(field, NULL), length > 0};
    }
    return LK_OK;
}

/* Names that are damaged are none: the file starts afresh. Others must be those of such a file. */
static lk_status check_header(const char *path, const char *text, const char *end, bool *starts_afresh)
{
    static const char first[] = "step";
    const char *header_end = next_line(text, end);
    *starts_afresh = text == end || has_zeros(text, header_end);
    if (*starts_afresh) return LK_OK;
    if (*text == '"') text++;
    if (!strncmp(text, first, strlen(first)) && strchr("\",\r\n", text[strlen(first)])) return LK_OK;
    return lki_fail(LK_ERR_FORMAT, "%s: cannot be continued: the first column is not step", path);
}

static lk_status read_text(lki_csv_table *table, const char *text, const char *end, int64_t keep_up_to,
                           bool *dropped)
{
    size_t length;
    LKI_SCOPED char *field = lki_calloc((size_t)(end - text) + 1, "a CSV field");
    if (!field) return LK_ERR_NOMEM;
    const char *at = read_field(text, field, &length), *line = next_line(text, end);
    while (*at && *at != '\n') {
        at = read_field(at, field, &length);
        LKI_TRY(insert_column(table, table->column_count, field, length));
    }
    if (line[-1] != '\n') *dropped = true;
    for (const char *line_end; line < end; line = line_end) {
        line_end = next_line(line, end);
        LKI_TRY(read_row(table, line, line_end, field, keep_up_to, dropped));
    }
    return LK_OK;
}

static lk_status write_name(lki_atomic_file *file, const char *name)
{
    if (!strpbrk(name, ",\"\r\n")) return lki_atomic_file_printf(file, ",%s", name);
    LKI_TRY(lki_atomic_file_write(file, ",\"", 2));
    for (; *name; name++)
        LKI_TRY(lki_atomic_file_write(file, *name == '"' ? "\"\"" : name, *name == '"' ? 2 : 1));
    return lki_atomic_file_write(file, "\"", 1);
}

/* Nine digits do not tell one second since the epoch from the next. */
static const char *format_cell(char text[LKI_NUMBER_LENGTH], const char *column, double value)
{
    if (strcmp(column, time_column) != 0 || !(value >= 1e9)) return lki_format_exact(text, value);
    lki_snprintf(text, LKI_NUMBER_LENGTH, "%.3f", value);
    return text;
}

/* A row as a line; *out is freed with lki_free. */
static lk_status format_row(const lki_csv_table *table, const row *row, char **out)
{
    char *text = lki_calloc(32 + (size_t)table->column_count * (LKI_NUMBER_LENGTH + 1), "a CSV line");
    if (!text) return LK_ERR_NOMEM;
    char *at = text + sprintf(text, "%" PRId64, row->step);
    for (int i = 0; i < table->column_count; i++) {
        char number[LKI_NUMBER_LENGTH];
        at +=
            sprintf(at, ",%s",
                    row->cells[i].present ? format_cell(number, table->columns[i], row->cells[i].value) : "");
    }
    *at++ = '\n';
    *out = text;
    return LK_OK;
}

/* Writes header and rows anew, whole or not at all. */
static lk_status rewrite(lki_csv_table *table)
{
    lki_atomic_file *file;
    lk_status status;
    if (table->file.fd >= 0) close(table->file.fd); /* it was the old file */
    table->file.fd = -1;
    table->file.used = 0;
    table->on_disk = false; /* where this fails, the next row tries again */
    LKI_TRY(lki_atomic_file_open(&file, table->file.path));
    LKI_TRY_OUT(lki_atomic_file_write(file, "step", 4));
    for (int i = 0; i < table->column_count; i++) LKI_TRY_OUT(write_name(file, table->columns[i]));
    LKI_TRY_OUT(lki_atomic_file_write(file, "\n", 1));
    for (int64_t i = 0; i < table->row_count; i++) {
        char *line;
        LKI_TRY_OUT(format_row(table, &table->rows[i], &line));
        status = lki_atomic_file_write(file, line, strlen(line));
        lki_free(line);
        if (status != LK_OK) goto out;
    }
    status = lki_atomic_file_commit(file);
    file = NULL;
    table->on_disk = status == LK_OK;
out:
    lki_atomic_file_abort(file);
    return status;
}

static lk_status continue_file(lki_csv_table *table, int64_t keep_up_to)
{
    LKI_SCOPED char *text = NULL;
    size_t nbytes;
    bool dropped = false, starts_afresh;
    lk_status status = lki_read_file(&text, &nbytes, table->file.path);
    if (status == LK_ERR_NOT_FOUND) return LK_OK;
    LKI_TRY(status);
    LKI_TRY(check_header(table->file.path, text, text + nbytes, &starts_afresh));
    if (has_zeros(text, text + nbytes))
        lki_log(LKI_LOG_WARNING, "%s: damaged, it holds zeros: what can be read is kept", table->file.path);
    if (starts_afresh) return LK_OK;
    LKI_TRY(read_text(table, text, text + nbytes, keep_up_to, &dropped));
    table->on_disk = true;
    return dropped ? rewrite(table) : LK_OK;
}

lk_status lki_csv_table_check(const char *path)
{
    LKI_SCOPED char *text = NULL;
    size_t nbytes;
    bool starts_afresh;
    lk_status status = lki_read_file(&text, &nbytes, path);
    if (status == LK_ERR_NOT_FOUND) return LK_OK;
    LKI_TRY(status);
    return check_header(path, text, text + nbytes, &starts_afresh);
}

lk_status lki_csv_table_open(lki_csv_table **out, const char *path, int64_t keep_up_to)
{
    *out = NULL;
    lki_csv_table *table = LKI_NEW(lki_csv_table);
    if (!table) return LK_ERR_NOMEM;
    lk_status status = lki_append_file_init(&table->file, path);
    if (status == LK_OK && keep_up_to > 0) status = continue_file(table, keep_up_to);
    if (status != LK_OK) {
        table->file.used = 0;
        lki_csv_table_close(table);
        return status;
    }
    *out = table;
    return LK_OK;
}

/* Gives every value a column, in sorted order; *changed where one is new. */
static lk_status make_columns(lki_csv_table *table, lk_metric_values values, bool *changed)
{
    int at = 0;
    for (int v = 0; v < values.count; v++) {
        const char *name = values.items[v].name;
        while (at < table->column_count && strcmp(table->columns[at], name) < 0) at++;
        if (at < table->column_count && strcmp(table->columns[at], name) == 0) continue;
        LKI_TRY(insert_column(table, at, name, strlen(name)));
        *changed = true;
    }
    return LK_OK;
}

lk_status lki_csv_table_add(lki_csv_table *table, int64_t step, double time_s, lk_metric_values values)
{
    bool changed = false;
    row *made;
    char *line;
    const lk_metric_value now = {time_column, time_s};
    LKI_TRY(make_columns(table, values, &changed));
    LKI_TRY(make_columns(table, (lk_metric_values){&now, 1}, &changed));
    LKI_TRY(insert_row(table, step, &made));
    for (int at = 0; at < table->column_count; at++)
        if (strcmp(table->columns[at], time_column) == 0) made->cells[at] = (cell){time_s, true};
    for (int v = 0, at = 0; v < values.count; v++) {
        while (strcmp(table->columns[at], values.items[v].name) != 0) at++;
        made->cells[at] = (cell){values.items[v].value, true};
    }
    if (changed || !table->on_disk) return rewrite(table);
    LKI_TRY(format_row(table, made, &line));
    lk_status status = lki_append_file_write(&table->file, line, strlen(line));
    lki_free(line);
    return status == LK_OK ? lki_append_file_end_entry(&table->file) : status;
}

lk_status lki_csv_table_flush(lki_csv_table *table)
{
    return lki_append_file_flush(&table->file);
}

lk_status lki_csv_table_close(lki_csv_table *table)
{
    if (!table) return LK_OK;
    lk_status status = lki_append_file_fini(&table->file);
    free_table(table);
    return status;
}
