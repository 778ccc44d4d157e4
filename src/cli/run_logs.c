#include "cli/run_logs.h"

#include "base/memory.h"
#include "base/number_text.h"
#include "base/status.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- A file ---- */

static void free_log(lki_log *log)
{
    for (int i = 0; i < log->column_count; i++) {
        lki_free(log->columns[i].name);
        lki_free(log->columns[i].values);
    }
    lki_free(log->key);
    lki_free(log->epochs);
    lki_free(log->columns);
    *log = (lki_log){0};
}

/* The whole file up to its last newline, with a zero behind it. NULL after an error. */
static char *read_lines(const char *path)
{
    FILE *file = fopen(path, "r");
    struct stat info;
    if (!file || fstat(fileno(file), &info) != 0 || !S_ISREG(info.st_mode)) {
        int why = errno;
        if (file) fclose(file);
        return lki_fail_null(LK_ERR_IO, "%s: could not read: %s", path, file ? "not a file" : strerror(why));
    }
    char *text = lki_calloc((size_t)info.st_size + 1, "a log");
    size_t count = text ? fread(text, 1, (size_t)info.st_size, file) : 0;
    fclose(file);
    while (count > 0 && text[count - 1] != '\n') text[--count] = '\0';
    return text;
}

/* Takes a cell out of a line, in place: quotes are removed. *line moves behind its comma; NULL at the end. */
static char *take_cell(char **line)
{
    char *from = *line, *to = *line, *cell = *line;
    bool is_quoted = *from == '"';
    if (is_quoted) from++;
    for (; *from; from++) {
        if (is_quoted && *from == '"' && from[1] != '"') {
            is_quoted = false;
            continue;
        }
        if (is_quoted && *from == '"') from++;
        if (!is_quoted && *from == ',') break;
        if (*from != '\r') *to++ = *from;
    }
    *line = *from == ',' ? from + 1 : NULL;
    *to = '\0';
    return cell;
}

static lk_status read_header(lki_log *log, char *line, const char *path)
{
    if (strcmp(take_cell(&line), "step") != 0)
        return lki_fail(LK_ERR_FORMAT, "%s: the first column is not \"step\": it is no log of a run", path);
    while (line) {
        lki_log_column *columns = lki_realloc(log->columns, sizeof *columns * (size_t)(log->column_count + 1),
                                              "the columns of a log");
        if (!columns) return LK_ERR_NOMEM;
        log->columns = columns;
        columns[log->column_count] = (lki_log_column){.name = lki_strdup(take_cell(&line))};
        if (!columns[log->column_count++].name) return LK_ERR_NOMEM;
    }
    return LK_OK;
}

static lk_status make_room(lki_log *log)
{
    if (log->row_count < log->row_capacity) return LK_OK;
    int64_t capacity = log->row_capacity ? 2 * log->row_capacity : 64;
    size_t nbytes = sizeof(double) * (size_t)capacity;
    double *epochs = lki_realloc(log->epochs, nbytes, "the rows of a log");
    if (!epochs) return LK_ERR_NOMEM;
    log->epochs = epochs;
    for (int i = 0; i < log->column_count; i++) {
        double *values = lki_realloc(log->columns[i].values, nbytes, "the rows of a log");
        if (!values) return LK_ERR_NOMEM;
        log->columns[i].values = values;
    }
    log->row_capacity = capacity;
    return LK_OK;
}

static double number_in(const char *cell)
{
    char *end;
    double value = lki_strtod(cell, &end);
    return *cell && !*end ? value : NAN;
}

/* A line that does not begin with a later step than the one before is damaged, and left out. */
static lk_status read_row(lki_log *log, char *line)
{
    double epoch = number_in(take_cell(&line));
    if (!isfinite(epoch) || (log->row_count > 0 && epoch <= log->epochs[log->row_count - 1])) return LK_OK;
    LKI_TRY(make_room(log));
    log->epochs[log->row_count] = epoch;
    for (int i = 0; i < log->column_count; i++)
        log->columns[i].values[log->row_count] = line ? number_in(take_cell(&line)) : NAN;
    log->row_count++;
    return LK_OK;
}

static lk_status read_log(lki_log *log, const char *path)
{
    LKI_SCOPED char *text = read_lines(path);
    if (!text) return lki_last_status();
    char *rest = NULL, *line = strtok_r(text, "\n", &rest);
    if (!line) return LK_OK; /* it has just been made */
    LKI_TRY(read_header(log, line, path));
    while ((line = strtok_r(NULL, "\n", &rest))) LKI_TRY(read_row(log, line));
    return LK_OK;
}

const double *lki_log_values(const lki_log *log, const char *name)
{
    for (int i = 0; i < log->column_count; i++)
        if (!strcmp(log->columns[i].name, name)) return log->columns[i].values;
    return NULL;
}

/* ---- A folder ---- */

static int rank_of(const char *key)
{
    return !strcmp(key, "_epoch_") ? 2 : strncmp(key, "train", 5) != 0;
}

static int compare_logs(const void *a, const void *b)
{
    const lki_log *first = a, *second = b;
    int difference = rank_of(first->key) - rank_of(second->key);
    return difference ? difference : strcmp(first->key, second->key);
}

static lk_status add_log(lki_run_logs *out, const char *folder, const char *name)
{
    const char *dot = strrchr(name, '.');
    if (!dot || dot == name || strcmp(dot, ".csv") != 0 || out->count == LKI_MAX_LOGS) return LK_OK;
    LKI_SCOPED char *path = lki_format("%s/%s", folder, name);
    lki_log *log = &out->logs[out->count++];
    log->key = lki_strndup(name, (size_t)(dot - name));
    if (!path || !log->key) return LK_ERR_NOMEM;
    LKI_TRY(read_log(log, path));
    if (log->row_count > 0 && log->epochs[log->row_count - 1] > (double)out->epochs_done)
        out->epochs_done = (int64_t)log->epochs[log->row_count - 1];
    return LK_OK;
}

static lk_status read_folder(lki_run_logs *out, const char *folder)
{
    DIR *listing = opendir(folder);
    lk_status status = LK_OK;
    if (!listing) return LK_OK;
    for (struct dirent *entry; !status && (entry = readdir(listing));)
        status = add_log(out, folder, entry->d_name);
    closedir(listing);
    if (!status) qsort(out->logs, (size_t)out->count, sizeof *out->logs, compare_logs);
    return status;
}

/* What is not in it, or cannot be read, is not known. */
static void read_hparams(lki_run_logs *out, const char *path)
{
    json_t *object = json_load_file(path, 0, NULL);
    if (!object) return;
    out->valid_loader = lki_strdup(json_string_value(json_object_get(object, "valid_loader")));
    out->valid_metric = lki_strdup(json_string_value(json_object_get(object, "valid_metric")));
    out->num_epochs = json_integer_value(json_object_get(object, "num_epochs"));
    json_decref(object);
}

/* LOGDIR/.lock names the process that writes. The lock itself is left alone: to try it could keep a run from
 * taking it. Of another host's process nothing more is known than that it has not removed the file. */
static bool is_running(const char *path)
{
    long process = 0;
    char there[256] = "", here[256] = "";
    FILE *file = fopen(path, "r");
    if (!file) return false;
    int found = fscanf(file, "process %ld on %255s", &process, there);
    fclose(file);
    gethostname(here, sizeof here - 1);
    if (found != 2 || process <= 0) return false;
    return strcmp(here, there) != 0 || kill((pid_t)process, 0) == 0 || errno == EPERM;
}

lk_status lki_run_logs_read(lki_run_logs *out, const char *logdir)
{
    struct stat info;
    *out = (lki_run_logs){0};
    LKI_SCOPED char *folder = lki_format("%s/csv_logger", logdir);
    LKI_SCOPED char *hparams = lki_format("%s/hparams.json", logdir);
    LKI_SCOPED char *lock = lki_format("%s/.lock", logdir);
    if (!folder || !hparams || !lock) return LK_ERR_NOMEM;
    if (stat(logdir, &info) != 0)
        return lki_fail(LK_ERR_IO, "%s: could not open the logdir: %s", logdir, strerror(errno));
    out->is_running = is_running(lock);
    read_hparams(out, hparams);
    lk_status status = read_folder(out, folder);
    if (!status && out->count == 0 && !out->is_running)
        status = lki_fail(LK_ERR_NOT_FOUND, "%s: no run has logged an epoch there: there is no %s/train.csv",
                          logdir, folder);
    if (status) lki_run_logs_fini(out);
    return status;
}

void lki_run_logs_fini(lki_run_logs *logs)
{
    for (int i = 0; i < logs->count; i++) free_log(&logs->logs[i]);
    lki_free(logs->valid_loader);
    lki_free(logs->valid_metric);
    *logs = (lki_run_logs){0};
}
