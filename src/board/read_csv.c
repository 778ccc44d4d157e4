/* CSV as the CSV logger writes it: a header, then a row per epoch. A column "time" has seconds since the
 * epoch. */
#include "base/memory.h"
#include "base/number_text.h"
#include "board/read_log.h"

#include <math.h>
#include <string.h>

enum { MAX_COLUMNS = 4096 };

/* Which series each column belongs to. The first column is the step. */
typedef struct columns {
    int series[MAX_COLUMNS]; /* -1: none */
    int count, time;         /* -1: no column of times */
} columns;

/* Copies a field to `out`, which has room for the line, and returns what follows its comma; NULL after the
 * last one. */
static const char *take_field(const char *at, const char *end, char *out)
{
    bool quoted = at < end && *at == '"';
    if (quoted) at++;
    for (; at < end; at++) {
        if (quoted && *at == '"') {
            if (at + 1 < end && at[1] == '"') {
                at++;
            } else {
                quoted = false;
                continue;
            }
        } else if (!quoted && *at == ',') {
            *out = 0;
            return at + 1;
        }
        *out++ = *at;
    }
    *out = 0;
    return NULL;
}

static lk_status match_columns(const lki_board_reading *reading, columns *to)
{
    const char *header = reading->file->header, *end = header + strlen(header);
    LKI_SCOPED char *name = lki_calloc((size_t)(end - header) + 1, "a column's name");
    if (!name) return LK_ERR_NOMEM;
    to->count = 0;
    to->time = -1;
    for (const char *at = header; at && to->count < MAX_COLUMNS; to->count++) {
        at = take_field(at, end, name);
        to->series[to->count] = -1;
        if (to->count == 0) continue;
        if (!strcmp(name, "time")) {
            to->time = to->count;
            continue;
        }
        const lki_board_series *series = lki_board_series_claim(reading->series, LKI_BOARD_CSV,
                                                                LKI_BOARD_EPOCH, reading->file->loader, name);
        if (!series) return LK_ERR_NOMEM;
        to->series[to->count] = (int)(series - reading->series->items);
    }
    return LK_OK;
}

/* A line is a copy of its own, zero-terminated: numbers are read in place. */
static lk_status add_row(const lki_board_reading *reading, const columns *columns, char *line)
{
    double values[MAX_COLUMNS], time = NAN;
    bool present[MAX_COLUMNS] = {false};
    int count = 0;
    const char *rest = "";
    for (char *at = line; count < columns->count; at = (char *)rest + 1) {
        char *end;
        values[count] = lki_strtod(at, &end);
        present[count++] = end != at;
        rest = end;
        if (*rest != ',') break;
    }
    if (*rest || count != columns->count || !present[0] || !isfinite(values[0])) {
        lki_board_note_bad(reading->file, "damaged rows");
        return LK_OK;
    }
    if (columns->time > 0 && present[columns->time]) time = values[columns->time];
    for (int i = 1; i < count; i++)
        if (columns->series[i] >= 0 && present[i])
            LKI_TRY(lki_board_series_add(&reading->series->items[columns->series[i]], values[0], time,
                                         values[i]));
    return LK_OK;
}

size_t lki_board_read_csv(void *context, const char *bytes, size_t nbytes)
{
    lki_board_reading *reading = context;
    const char *at = bytes, *end = bytes + nbytes;
    LKI_SCOPED columns *columns = LKI_NEW(struct columns);
    LKI_SCOPED char *line = lki_calloc(nbytes + 1, "lines of a CSV file");
    reading->status = columns && line ? LK_OK : LK_ERR_NOMEM;
    if (!reading->status && reading->file->header) reading->status = match_columns(reading, columns);
    while (!reading->status && at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        if (!newline) break;
        size_t length = (size_t)(newline - at);
        while (length && at[length - 1] == '\r') length--;
        memcpy(line, at, length);
        line[length] = 0;
        at = newline + 1;
        if (!reading->file->header) {
            reading->file->header = lki_strdup(line);
            reading->status = reading->file->header ? match_columns(reading, columns) : LK_ERR_NOMEM;
        } else if (strlen(line) != length) {
            lki_board_note_bad(reading->file, "damaged rows"); /* zeros, from power that failed */
        } else {
            reading->status = add_row(reading, columns, line);
        }
    }
    return (size_t)(at - bytes);
}
