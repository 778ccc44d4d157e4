#define _GNU_SOURCE /* fopencookie */
#include "config/write_outputs.h"

#include "base/atomic_file.h"
#include "base/memory.h"
#include "base/number_text.h"
#include "base/status.h"
#include "tensor/npy.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* ---- Endings ---- */

static bool ends_in(const char *path, const char *ending)
{
    size_t length = strlen(path), tail = strlen(ending);
    return length > tail && strcmp(path + length - tail, ending) == 0;
}

lk_status lki_check_predictions_path(const char *path)
{
    if (ends_in(path, ".npy") || ends_in(path, ".csv") || ends_in(path, ".json") || ends_in(path, ".jsonl") ||
        lki_is_pipe_or_device(path))
        return LK_OK;
    return lki_fail(LK_ERR_CONFIG,
                    "%s: predictions are written as .npy, .csv, .json or .jsonl: end the name so", path);
}

lk_status lki_check_metrics_path(const char *path)
{
    if (ends_in(path, ".csv") || ends_in(path, ".json")) return LK_OK;
    return lki_fail(LK_ERR_CONFIG, "%s: metrics are written as .csv or .json: end the name so", path);
}

/* ---- Numbers ---- */

static void put_number(FILE *out, const lk_tensor *tensor, int64_t index, bool json)
{
    double value = lk_tensor_get(tensor, index);
    if (tensor->dtype == LK_I64)
        fprintf(out, "%" PRId64, ((const int64_t *)tensor->data)[index]);
    else if (!lk_dtype_is_float(tensor->dtype))
        fprintf(out, "%.0f", value);
    else if (json && !isfinite(value))
        fputs("null", out);
    else if (isnan(value)) /* printf may give it a sign */
        fputs("nan", out);
    else
        lki_fprintf(out, tensor->dtype == LK_F64 ? "%.17g" : "%.9g", value);
}

/* Lists in lists, from `axis` on; *index is the next element. */
static void put_list(FILE *out, const lk_tensor *tensor, int axis, int64_t *index)
{
    if (axis == tensor->shape.rank) {
        put_number(out, tensor, (*index)++, true);
        return;
    }
    fputc('[', out);
    for (int64_t i = 0; i < tensor->shape.dim[axis]; i++) {
        if (i) fputs(axis ? ", " : ",\n ", out);
        put_list(out, tensor, axis + 1, index);
    }
    fputc(']', out);
}

void lki_print_predictions_json(FILE *stream, const lk_tensor *outputs)
{
    int64_t index = 0;
    put_list(stream, outputs, 0, &index);
    fputc('\n', stream);
}

static void put_json_lines(FILE *out, const lk_tensor *outputs)
{
    int64_t index = 0;
    for (int64_t i = 0; i < outputs->shape.dim[0]; i++) {
        put_list(out, outputs, 1, &index);
        fputc('\n', out);
    }
}

/* "logits_1_3" for element (1, 3) of a sample. */
static void put_column(FILE *out, const lk_shape *shape, int64_t element, const char *name)
{
    int64_t below = 1;
    fprintf(out, ",%s", name);
    for (int axis = 1; axis < shape->rank; axis++) below *= shape->dim[axis];
    for (int axis = 1; axis < shape->rank; axis++) {
        below /= shape->dim[axis];
        fprintf(out, "_%" PRId64, element / below);
        element %= below;
    }
}

static void put_csv(FILE *out, const lk_tensor *outputs, const char *name)
{
    int64_t samples = outputs->shape.dim[0], width = samples ? lk_tensor_count(outputs) / samples : 0;
    fputs("sample", out);
    for (int64_t c = 0; c < width; c++) put_column(out, &outputs->shape, c, name);
    fputc('\n', out);
    for (int64_t i = 0; i < samples; i++) {
        fprintf(out, "%" PRId64, i);
        for (int64_t c = 0; c < width; c++) {
            fputc(',', out);
            put_number(out, outputs, i * width + c, false);
        }
        fputc('\n', out);
    }
}

/* ---- Metrics ---- */

enum { CLASS_TAIL_LENGTH = 7 }; /* of "/class_", with digits behind it */

/* The number behind "/class_" at the end of the name; -1 if it is not a metric of a class. */
static int64_t class_of(const char *name)
{
    const char *at = strstr(name, "/class_");
    char *end;
    if (!at || !at[CLASS_TAIL_LENGTH]) return -1;
    int64_t number = strtoll(at + CLASS_TAIL_LENGTH, &end, 10);
    return *end ? -1 : number;
}

static int stem_length(const char *name)
{
    return (int)(strstr(name, "/class_") - name);
}

static bool same_stem(const char *a, const char *b)
{
    return stem_length(a) == stem_length(b) && strncmp(a, b, (size_t)stem_length(a)) == 0;
}

/* Whether no earlier metric of a class has this one's stem. */
static bool begins_column(const lk_metrics *metrics, int index)
{
    const char *name = lk_metrics_name(metrics, index);
    for (int i = 0; i < index; i++)
        if (class_of(lk_metrics_name(metrics, i)) >= 0 && same_stem(lk_metrics_name(metrics, i), name))
            return false;
    return class_of(name) >= 0;
}

static double value_of(const lk_metrics *metrics, const char *column, int64_t class)
{
    for (int i = 0; i < lk_metrics_count(metrics); i++) {
        const char *name = lk_metrics_name(metrics, i);
        if (class_of(name) == class && same_stem(name, column)) return lk_metrics_value(metrics, i);
    }
    return NAN;
}

static int64_t class_count(const lk_metrics *metrics)
{
    int64_t most = -1;
    for (int i = 0; i < lk_metrics_count(metrics); i++) {
        int64_t class = class_of(lk_metrics_name(metrics, i));
        if (class > most) most = class;
    }
    return most + 1;
}

static int column_width(const char *name)
{
    return stem_length(name) > 9 ? stem_length(name) : 9;
}

/* Counts, such as a class's support, are whole numbers. */
static void put_cell(FILE *stream, int width, double value)
{
    if (value == floor(value) && fabs(value) >= 2 && fabs(value) < 1e15)
        fprintf(stream, "  %*.0f", width, value);
    else
        lki_fprintf(stream, "  %*.4f", width, value);
}

static void print_classes(FILE *stream, const lk_metrics *metrics)
{
    int64_t classes = class_count(metrics);
    int count = lk_metrics_count(metrics);
    if (!classes) return;
    fputs("\nclass", stream);
    for (int i = 0; i < count; i++) {
        const char *name = lk_metrics_name(metrics, i);
        if (begins_column(metrics, i))
            fprintf(stream, "  %*.*s", column_width(name), stem_length(name), name);
    }
    fputc('\n', stream);
    for (int64_t c = 0; c < classes; c++) {
        fprintf(stream, "%5" PRId64, c);
        for (int i = 0; i < count; i++) {
            const char *name = lk_metrics_name(metrics, i);
            if (begins_column(metrics, i)) put_cell(stream, column_width(name), value_of(metrics, name, c));
        }
        fputc('\n', stream);
    }
}

void lki_print_metrics(FILE *stream, const lk_metrics *metrics)
{
    for (int i = 0; i < lk_metrics_count(metrics); i++)
        if (class_of(lk_metrics_name(metrics, i)) < 0)
            lki_fprintf(stream, "%s: %.9g\n", lk_metrics_name(metrics, i), lk_metrics_value(metrics, i));
    print_classes(stream, metrics);
}

/* Quoted, with what both JSON and CSV need. */
static void put_text(FILE *out, const char *text, bool json)
{
    fputc('"', out);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (json && (c == '"' || c == '\\'))
            fputc('\\', out);
        else if (c == '"')
            fputc('"', out);
        if (json && c < 32)
            fprintf(out, "\\u%04x", c);
        else
            fputc(c, out);
    }
    fputc('"', out);
}

void lki_print_metrics_json(FILE *stream, const lk_metrics *metrics)
{
    fputc('{', stream);
    for (int i = 0; i < lk_metrics_count(metrics); i++) {
        double value = lk_metrics_value(metrics, i);
        fputs(i ? ",\n " : "", stream);
        put_text(stream, lk_metrics_name(metrics, i), true);
        if (isfinite(value))
            lki_fprintf(stream, ": %.9g", value);
        else
            fputs(": null", stream);
    }
    fputs("}\n", stream);
}

static void put_metrics_csv(FILE *out, const lk_metrics *metrics)
{
    fputs("metric,value\n", out);
    for (int i = 0; i < lk_metrics_count(metrics); i++) {
        const char *name = lk_metrics_name(metrics, i);
        double value = lk_metrics_value(metrics, i);
        if (strpbrk(name, ",\"\n"))
            put_text(out, name, false);
        else
            fputs(name, out);
        if (isnan(value))
            fputs(",nan\n", out);
        else
            lki_fprintf(out, ",%.9g\n", value);
    }
}

/* ---- Files ---- */

/* Through a buffer of the C library's, into a file that appears whole. */
static ssize_t write_piece(void *file, const char *data, size_t nbytes)
{
    return lki_atomic_file_write(file, data, nbytes) == LK_OK ? (ssize_t)nbytes : 0;
}

static lk_status open_stream(const char *path, lki_atomic_file **file, FILE **out)
{
    LKI_TRY(lki_atomic_file_open(file, path));
    *out = fopencookie(*file, "w", (cookie_io_functions_t){.write = write_piece});
    if (*out) return LK_OK;
    lki_atomic_file_abort(*file);
    return lki_fail(LK_ERR_NOMEM, "%s: out of memory", path);
}

/* What writing has said stays the sentence. */
static lk_status close_stream(lki_atomic_file *file, FILE *out)
{
    bool failed = ferror(out);
    failed = fclose(out) != 0 || failed;
    if (!failed) return lki_atomic_file_commit(file);
    lki_atomic_file_abort(file);
    return lki_last_status();
}

lk_status lki_write_predictions(const char *path, const lk_tensor *outputs, const char *name)
{
    lki_atomic_file *file;
    FILE *out;
    LKI_TRY(lki_check_predictions_path(path));
    bool csv = ends_in(path, ".csv"), json = ends_in(path, ".json"), lines = ends_in(path, ".jsonl");
    if (!csv && !json && !lines) return lki_npy_write(path, outputs);
    LKI_TRY(open_stream(path, &file, &out));
    if (csv) put_csv(out, outputs, name);
    if (json) lki_print_predictions_json(out, outputs);
    if (lines) put_json_lines(out, outputs);
    return close_stream(file, out);
}

lk_status lki_write_metrics(const char *path, const lk_metrics *metrics)
{
    lki_atomic_file *file;
    FILE *out;
    LKI_TRY(lki_check_metrics_path(path));
    LKI_TRY(open_stream(path, &file, &out));
    if (ends_in(path, ".csv"))
        put_metrics_csv(out, metrics);
    else
        lki_print_metrics_json(out, metrics);
    return close_stream(file, out);
}
