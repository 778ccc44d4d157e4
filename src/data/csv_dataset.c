/* Tables of numbers, and of names of classes, in text. */
#include <lockstep/data.h>

#include "base/memory.h"
#include "base/number_text.h"
#include "base/status.h"
#include "base/take.h"
#include "data/class_names.h"
#include "data/file.h"
#include "data/memory_dataset.h"
#include "tensor/buffer.h"

#include <math.h>
#include <string.h>

enum { MAX_CELL = 128, MAX_COLUMNS = 65536 };
enum { FEATURE = 1, TARGET = 2 }; /* what a column is for */

typedef struct cell {
    const char *text;
    int length;
    bool quoted; /* a quote in the text is written twice */
} cell;

typedef struct table {
    const char *path;
    lk_csv_dataset_options options;
    const char *cursor, *end;
    int64_t line;     /* of the row that was read last, from 1 */
    cell *row;        /* the cells of that row */
    int column_count; /* of the first row; 0 before it */
    char **names;     /* (column_count) */
    char *roles;      /* (column_count): FEATURE, TARGET, or 0 for a column that is left out */
    int feature_count, target_count;
    bool has_names; /* the classes are names */
    lki_class_names classes;
    double *values; /* (row_count, column_count) */
    int64_t row_count, row_capacity;
} table;

/* ---- Reading rows ---- */

/* The quote that is no half of a pair; the line's end or the file's where there is none. */
static const char *closing_quote(const char *at, const char *end)
{
    for (; at < end && *at != '\n'; at++) {
        if (*at != '"') continue;
        if (at + 1 == end || at[1] != '"') break;
        at++;
    }
    return at;
}

/* One cell, quoted or not; the cursor is left on the delimiter, the line's end or the file's. */
static lk_status read_cell(table *self, cell *out)
{
    char delimiter = self->options.delimiter;
    if (self->cursor < self->end && *self->cursor == '"') {
        const char *begin = ++self->cursor;
        self->cursor = closing_quote(begin, self->end);
        if (self->cursor == self->end || *self->cursor != '"')
            return lki_fail(LK_ERR_FORMAT, "%s:%lld: a quote is not closed", self->path,
                            (long long)self->line);
        *out = (cell){begin, (int)(self->cursor++ - begin), true};
    } else {
        const char *begin = self->cursor;
        while (self->cursor < self->end && *self->cursor != delimiter && *self->cursor != '\n')
            self->cursor++;
        *out = (cell){begin, (int)(self->cursor - begin), false};
    }
    while (out->length > 0 && (*out->text == ' ' || *out->text == '\t')) out->text++, out->length--;
    while (out->length > 0 && strchr(" \t\r", out->text[out->length - 1])) out->length--;
    while (self->cursor < self->end && (*self->cursor == ' ' || *self->cursor == '\r') && delimiter != ' ')
        self->cursor++;
    if (self->cursor < self->end && *self->cursor != delimiter && *self->cursor != '\n')
        return lki_fail(LK_ERR_FORMAT, "%s:%lld: text after a closing quote", self->path,
                        (long long)self->line);
    return LK_OK;
}

static bool skip_blank_lines(table *self)
{
    for (const char *look = self->cursor; look < self->end; look++) {
        if (*look == '\n') {
            self->line++;
            self->cursor = look + 1;
        } else if (*look != '\r' && *look != ' ' && *look != '\t') {
            return true;
        }
    }
    return false;
}

/* The next row's cells; *count is 0 at the end of the file. */
static lk_status read_row(table *self, int *count)
{
    *count = 0;
    if (!skip_blank_lines(self)) return LK_OK;
    self->line++;
    for (;;) {
        if (*count == MAX_COLUMNS || (self->column_count && *count == self->column_count))
            return lki_fail(LK_ERR_FORMAT, "%s:%lld: more than %d cells", self->path, (long long)self->line,
                            *count);
        LKI_TRY(read_cell(self, &self->row[(*count)++]));
        if (self->cursor == self->end) return LK_OK;
        if (*self->cursor++ == '\n') return LK_OK;
    }
}

/* ---- Numbers ---- */

static bool is_number(const cell *one, double *out)
{
    char text[MAX_CELL], *end = text;
    if (one->length <= 0 || one->length >= MAX_CELL) return false;
    memcpy(text, one->text, (size_t)one->length);
    text[one->length] = 0;
    *out = lki_strtod(text, &end);
    return *end == 0 && end != text && isfinite(*out);
}

static lk_status refuse_cell(const table *self, int column, const char *expected, const char *hint)
{
    const cell *one = &self->row[column];
    return lki_fail(LK_ERR_FORMAT, "%s:%lld: column \"%s\": expected %s, found \"%.*s\"%s", self->path,
                    (long long)self->line, self->names[column], expected, one->length < 40 ? one->length : 40,
                    one->text, hint);
}

static lk_status refuse_text(const table *self, int column)
{
    bool is_target = self->roles[column] == TARGET;
    return refuse_cell(self, column, "a number",
                       !self->row[column].length                   ? ""
                       : is_target && !self->options.class_targets ? "; class_targets takes names of classes"
                       : is_target                                 ? ""
                                                                   : "; feature_columns chooses columns");
}

/* A copy of a cell's text, with one quote for each pair. */
static char *copy_text(const cell *from)
{
    char *text = lki_strndup(from->text, (size_t)from->length), *to = text;
    if (!text || !from->quoted) return text;
    for (const char *at = text; *at; at++) {
        if (at[0] == '"' && at[1] == '"') at++;
        *to++ = *at;
    }
    *to = 0;
    return text;
}

static lk_status parse_class(table *self, int column, double *out)
{
    LKI_SCOPED char *text = copy_text(&self->row[column]);
    int number = 0;
    if (!text) return LK_ERR_NOMEM;
    if (!*text) return refuse_cell(self, column, "a class", "");
    lk_status status = lki_class_names_add(&self->classes, text, &number);
    if (status == LK_ERR_NOT_FOUND) return refuse_cell(self, column, "one of the classes", "");
    *out = number;
    return status;
}

/* The first row tells whether classes are numbers or names. */
static lk_status parse_cell(table *self, int column, double *out)
{
    if (!self->roles[column]) return LK_OK;
    if (self->roles[column] == TARGET && self->options.class_targets) {
        if (self->row_count == 0 && !self->has_names) self->has_names = !is_number(&self->row[column], out);
        if (self->has_names) return parse_class(self, column, out);
    }
    return is_number(&self->row[column], out) ? LK_OK : refuse_text(self, column);
}

static lk_status add_row(table *self, int count)
{
    if (count != self->column_count)
        return lki_fail(LK_ERR_FORMAT, "%s:%lld: %d cells, expected %d", self->path, (long long)self->line,
                        count, self->column_count);
    if (self->row_count == self->row_capacity) {
        int64_t capacity = self->row_capacity ? 2 * self->row_capacity : 256;
        double *values = lki_realloc(self->values, (size_t)(capacity * self->column_count) * sizeof *values,
                                     "a table of numbers");
        if (!values) return LK_ERR_NOMEM;
        self->values = values;
        self->row_capacity = capacity;
    }
    double *row = self->values + self->row_count * self->column_count;
    for (int c = 0; c < count; c++) LKI_TRY(parse_cell(self, c, &row[c]));
    self->row_count++;
    return LK_OK;
}

/* ---- Columns ---- */

static lk_status name_columns(table *self, int count)
{
    self->column_count = count;
    self->names = LKI_NEW_ARRAY(char *, count);
    self->roles = LKI_NEW_ARRAY(char, count);
    if (!self->names || !self->roles) return LK_ERR_NOMEM;
    for (int c = 0; c < count; c++) {
        self->names[c] = self->options.no_header ? lki_format("%d", c) : copy_text(&self->row[c]);
        if (!self->names[c]) return LK_ERR_NOMEM;
    }
    return LK_OK;
}

static lk_status mark_column(table *self, const char *name, size_t length, char role, int *count)
{
    for (int c = 0; c < self->column_count; c++) {
        if (strlen(self->names[c]) != length || strncmp(self->names[c], name, length) != 0) continue;
        if (self->roles[c] && self->roles[c] != role)
            return lki_fail(LK_ERR_INVALID, "%s: column \"%s\" cannot be both a feature and a target",
                            self->path, self->names[c]);
        *count += !self->roles[c];
        self->roles[c] = role;
        return LK_OK;
    }
    return lki_fail(LK_ERR_NOT_FOUND, "%s: no column \"%.*s\"", self->path, (int)length, name);
}

static lk_status mark_columns(table *self, const char *names, char role, int *count)
{
    for (const char *name = names; name && *name;) {
        size_t length = strcspn(name, ",");
        LKI_TRY(mark_column(self, name, length, role, count));
        name += length + (name[length] == ',');
    }
    return LK_OK;
}

static lk_status choose_columns(table *self)
{
    if (!self->options.target_columns) {
        self->roles[self->column_count - 1] = TARGET;
        self->target_count = 1;
    }
    LKI_TRY(mark_columns(self, self->options.target_columns, TARGET, &self->target_count));
    LKI_TRY(mark_columns(self, self->options.feature_columns, FEATURE, &self->feature_count));
    for (int c = 0; !self->options.feature_columns && c < self->column_count; c++)
        if (!self->roles[c]) self->roles[c] = FEATURE, self->feature_count++;
    if (self->options.class_targets && self->target_count != 1)
        return lki_fail(LK_ERR_INVALID, "%s: class_targets needs one target column, not %d", self->path,
                        self->target_count);
    if (self->feature_count == 0)
        return lki_fail(LK_ERR_FORMAT, "%s: no column is left for the features", self->path);
    return LK_OK;
}

static lk_status take_classes(table *self)
{
    if (!self->options.classes || !*self->options.classes) return LK_OK;
    if (!self->options.class_targets)
        return lki_fail(LK_ERR_INVALID, "%s: classes needs class_targets", self->path);
    self->has_names = true;
    return lki_class_names_take(&self->classes, self->options.classes);
}

static lk_status read_table(table *self)
{
    int count = 0;
    LKI_TRY(read_row(self, &count));
    if (count == 0) return lki_fail(LK_ERR_FORMAT, "%s: no line to read", self->path);
    LKI_TRY(name_columns(self, count));
    LKI_TRY(choose_columns(self));
    LKI_TRY(take_classes(self));
    if (self->options.no_header) LKI_TRY(add_row(self, count));
    for (;;) {
        LKI_TRY(read_row(self, &count));
        if (count == 0) return LK_OK;
        LKI_TRY(add_row(self, count));
    }
}

/* ---- The dataset ---- */

static lk_tensor *take_columns(const table *self, char role, lk_dtype dtype)
{
    int width = role == TARGET ? self->target_count : self->feature_count;
    lk_shape shape =
        role == TARGET && width == 1 ? LK_SHAPE(self->row_count) : LK_SHAPE(self->row_count, width);
    lk_tensor *tensor = lk_tensor_create(dtype, shape);
    if (!tensor) return NULL;
    int64_t out = 0;
    for (int64_t r = 0; r < self->row_count; r++)
        for (int c = 0; c < self->column_count; c++)
            if (self->roles[c] == role)
                lk_tensor_set(tensor, out++, self->values[r * self->column_count + c]);
    return tensor;
}

/* Numbers of names become their places. */
static lk_status place_classes(table *self)
{
    LKI_SCOPED int *places = lki_class_names_places(&self->classes);
    if (!places) return LK_ERR_NOMEM;
    for (int c = 0; c < self->column_count; c++)
        for (int64_t r = 0; self->roles[c] == TARGET && r < self->row_count; r++) {
            double *value = &self->values[r * self->column_count + c];
            *value = places[(int)*value];
        }
    return LK_OK;
}

static lk_status check_classes(table *self)
{
    if (self->has_names) return place_classes(self);
    for (int c = 0; c < self->column_count; c++)
        for (int64_t r = 0; self->roles[c] == TARGET && r < self->row_count; r++) {
            double value = self->values[r * self->column_count + c];
            if (value != floor(value) || value < 0 || value > 1e9)
                return lki_fail(LK_ERR_FORMAT,
                                "%s: row %lld: column \"%s\": expected a class number, found %g", self->path,
                                (long long)r + 1, self->names[c], value);
        }
    return LK_OK;
}

/* The classes' names, for runs whose loaders have different ones. */
static lk_status name_classes(const table *self, lk_dataset *dataset)
{
    int count = self->classes.count;
    LKI_SCOPED int *places = lki_class_names_places(&self->classes);
    LKI_SCOPED const char **names = LKI_NEW_ARRAY(const char *, count + 1);
    if (!places || !names) return LK_ERR_NOMEM;
    for (int i = 0; i < count; i++)
        names[places[self->classes.items[i].number]] = self->classes.items[i].text;
    return lk_dataset_set_classes(dataset, "targets", names, count);
}

static lk_dataset *make_dataset(table *self)
{
    if (self->options.class_targets && check_classes(self) != LK_OK) return NULL;
    lki_memory_field fields[] = {
        lki_memory_field_of("features", take_columns(self, FEATURE, LK_F32)),
        lki_memory_field_of("targets",
                            take_columns(self, TARGET, self->options.class_targets ? LK_I64 : LK_F32)),
    };
    lk_dataset *dataset = lki_memory_dataset_create(fields, 2);
    if (!dataset || !self->has_names || name_classes(self, dataset) == LK_OK) return dataset;
    lk_dataset_free(dataset);
    return NULL;
}

static void free_table(table *self)
{
    for (int c = 0; self->names && c < self->column_count; c++) lki_free(self->names[c]);
    lki_free(self->names);
    lki_free(self->roles);
    lki_class_names_free(&self->classes);
    lki_free(self->values);
    lki_free(self->row);
}

lk_dataset *lk_csv_dataset_with(const char *path, const lk_csv_dataset_options *given)
{
    LKI_TAKE(lk_csv_dataset_options, options, given, NULL);
    lk_buffer *text = NULL;
    if (options.delimiter == 0) options.delimiter = ',';
    if (lki_file_read(&text, path) != LK_OK) return NULL;
    const char *begin = lki_buffer_data(text), *end = begin + lki_buffer_nbytes(text);
    if (end - begin >= 3 && memcmp(begin, "\xef\xbb\xbf", 3) == 0) begin += 3; /* a byte order mark */
    table self = {.path = path, .options = options, .cursor = begin, .end = end};
    self.row = LKI_NEW_ARRAY(cell, MAX_COLUMNS);
    lk_dataset *dataset = self.row && read_table(&self) == LK_OK ? make_dataset(&self) : NULL;
    free_table(&self);
    lki_buffer_release(text);
    return dataset;
}
