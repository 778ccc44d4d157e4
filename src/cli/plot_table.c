#include "cli/plot_table.h"

#include "base/atomic_file.h"
#include "base/memory.h"
#include "base/number_text.h"
#include "base/status.h"

#include <math.h>
#include <string.h>

/* Cuts a cell off at its end, takes its quotes away, and returns what follows the comma; NULL at the end of
 * the line. */
static char *cut_cell(char *at, char **cell)
{
    char *to = at;
    *cell = at;
    if (*at != '"') {
        at += strcspn(at, ",");
        to = at;
    } else {
        for (at++; *at && !(*at == '"' && at[1] != '"'); at++) {
            at += *at == '"';
            *to++ = *at;
        }
        at += strcspn(at, ",");
    }
    char *next = *at ? at + 1 : NULL;
    *to = '\0';
    return next;
}

static int count_columns(const char *line)
{
    int count = 1;
    for (bool quoted = false; *line && (quoted || *line != '\n'); line++) {
        quoted ^= *line == '"';
        count += *line == ',' && !quoted;
    }
    return count;
}

static void cut_line(lki_plot_table *table, int64_t row, char *line)
{
    static char nothing[] = "";
    char **cells = table->cells + row * table->columns;
    size_t length = strlen(line);
    if (length && line[length - 1] == '\r') line[length - 1] = '\0';
    for (int c = 0; c < table->columns; c++) {
        cells[c] = nothing;
        if (line) line = cut_cell(line, &cells[c]);
    }
}

lk_status lki_plot_table_read(lki_plot_table *out, const char *path)
{
    size_t nbytes;
    int64_t lines = 0;
    *out = (lki_plot_table){0};
    LKI_TRY(lki_read_file(&out->text, &nbytes, path));
    for (size_t i = 0; i < nbytes; i++) lines += out->text[i] == '\n';
    if (lines == 0 || memchr(out->text, 0, nbytes)) {
        lki_plot_table_fini(out);
        return lki_fail(LK_ERR_FORMAT, "%s: not a table: it has %s", path, lines ? "zeros" : "no header");
    }
    out->columns = count_columns(out->text);
    out->rows = lines - 1;
    out->cells = LKI_NEW_ARRAY(char *, lines * out->columns);
    if (!out->cells) {
        lki_plot_table_fini(out);
        return LK_ERR_NOMEM;
    }
    char *line = out->text;
    for (int64_t row = 0; row < lines; row++) {
        char *end = strchr(line, '\n');
        *end = '\0';
        cut_line(out, row, line);
        line = end + 1;
    }
    return LK_OK;
}

void lki_plot_table_fini(lki_plot_table *table)
{
    lki_free(table->cells);
    lki_free(table->text);
    *table = (lki_plot_table){0};
}

const char *lki_plot_cell(const lki_plot_table *table, int64_t row, int column)
{
    return table->cells[(row + 1) * table->columns + column];
}

int lki_plot_column(const lki_plot_table *table, const char *name)
{
    for (int c = 0; c < table->columns; c++)
        if (strcmp(lki_plot_cell(table, -1, c), name) == 0) return c;
    return -1;
}

double *lki_plot_numbers(const lki_plot_table *table, int column)
{
    double *numbers = LKI_NEW_ARRAY(double, table->rows + 1);
    for (int64_t r = 0; numbers && r < table->rows; r++) {
        char *end;
        const char *text = lki_plot_cell(table, r, column);
        numbers[r] = lki_strtod(text, &end);
        if (end == text || *end) numbers[r] = NAN;
    }
    return numbers;
}
