#include "logger/tracking.h"

#include "base/atomic_file.h"
#include "base/memory.h"
#include "base/number_text.h"
#include "base/status.h"
#include "tensor/png.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/time.h>
#include <unistd.h>

enum { RUN_ID_LENGTH = 32 };

struct lki_tracking {
    char *folder; /* of the run */
    char *experiment_id, *run_name;
    char run_id[RUN_ID_LENGTH + 1];
    int64_t start_ms;
};

static int64_t now_ms(void)
{
    struct timeval now;
    gettimeofday(&now, NULL);
    return (int64_t)now.tv_sec * 1000 + now.tv_usec / 1000;
}

static lk_status write_text(const char *folder, const char *name, const char *text)
{
    LKI_SCOPED char *path = lki_format("%s/%s", folder, name);
    return path && text ? lki_write_file_atomic(path, text, strlen(text)) : LK_ERR_NOMEM;
}

/* ---- Experiments ---- */

/* 'name' as YAML writes a text that may hold anything. */
static char *quoted(const char *text)
{
    char *out = lki_calloc(2 * strlen(text) + 3, "a text"), *end = out;
    if (!out) return NULL;
    *end++ = '\'';
    for (; *text; text++) {
        if (*text == '\'') *end++ = '\'';
        *end++ = *text;
    }
    *end = '\'';
    return out;
}

/* Whether a folder's meta.yaml has the line "name: NAME", with or without quotes. */
static bool is_named(const char *folder, const char *name)
{
    char *text = NULL;
    size_t nbytes;
    LKI_SCOPED char *path = lki_format("%s/meta.yaml", folder);
    LKI_SCOPED char *in_quotes = quoted(name);
    LKI_SCOPED char *plain = lki_format("\nname: %s\n", name);
    LKI_SCOPED char *strict = in_quotes ? lki_format("\nname: %s\n", in_quotes) : NULL;
    if (!path || !plain || !strict || access(path, R_OK) || lki_read_file(&text, &nbytes, path)) return false;
    bool found = strstr(text, plain) || strstr(text, strict);
    lki_free(text);
    return found;
}

/* The id of an experiment by its name, the caller's; NULL where there is none. */
static char *find_experiment(const char *folder, const char *name)
{
    char *id = NULL;
    DIR *entries = opendir(folder);
    for (struct dirent *entry; entries && !id && (entry = readdir(entries));) {
        if (*entry->d_name == '.') continue;
        LKI_SCOPED char *path = lki_format("%s/%s", folder, entry->d_name);
        if (path && is_named(path, name)) id = lki_strdup(entry->d_name);
    }
    if (entries) closedir(entries);
    return id;
}

static lk_status make_experiment(const char *folder, const char *name, char **id)
{
    char where[PATH_MAX];
    *id = strcmp(name, "Default") == 0 ? lki_strdup("0")
                                       : lki_format("%lld", (long long)now_ms() * 1000 + getpid() % 1000);
    LKI_SCOPED char *path = *id ? lki_format("%s/%s", folder, *id) : NULL;
    LKI_SCOPED char *in_quotes = quoted(name);
    if (!path || !in_quotes) return LK_ERR_NOMEM;
    LKI_TRY(lki_make_folders(path));
    LKI_SCOPED char *meta = lki_format(
        "artifact_location: file://%s\ncreation_time: %lld\nexperiment_id: '%s'\n"
        "last_update_time: %lld\nlifecycle_stage: active\nname: %s\n",
        realpath(path, where) ? where : path, (long long)now_ms(), *id, (long long)now_ms(), in_quotes);
    return write_text(path, "meta.yaml", meta);
}

/* ---- A run ---- */

static void draw_run_id(char id[RUN_ID_LENGTH + 1])
{
    unsigned char bytes[RUN_ID_LENGTH / 2];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) {
        uint64_t mixed[2] = {(uint64_t)now_ms(), (uint64_t)getpid()};
        memcpy(bytes, mixed, sizeof bytes);
    }
    for (size_t i = 0; i < sizeof bytes; i++) sprintf(id + 2 * i, "%02x", bytes[i]);
}

lk_status lki_tracking_state(lki_tracking *tracking, lki_run_state state)
{
    char where[PATH_MAX], end[32] = "null";
    const char *user = getenv("USER");
    LKI_SCOPED char *name = quoted(tracking->run_name);
    if (!name) return LK_ERR_NOMEM;
    if (state != LKI_RUN_RUNNING) snprintf(end, sizeof end, "%lld", (long long)now_ms());
    LKI_SCOPED char *meta = lki_format(
        "artifact_uri: file://%s/artifacts\nend_time: %s\nentry_point_name: ''\nexperiment_id: '%s'\n"
        "lifecycle_stage: active\nrun_id: %s\nrun_name: %s\nrun_uuid: %s\nsource_name: ''\nsource_type: 4\n"
        "source_version: ''\nstart_time: %lld\nstatus: %d\ntags: []\nuser_id: %s\n",
        realpath(tracking->folder, where) ? where : tracking->folder, end, tracking->experiment_id,
        tracking->run_id, name, tracking->run_id, (long long)tracking->start_ms, (int)state,
        user && *user ? user : "unknown");
    return write_text(tracking->folder, "meta.yaml", meta);
}

static lk_status make_run(lki_tracking *tracking)
{
    static const char *const folders[] = {"params", "metrics", "tags", "artifacts"};
    for (int i = 0; i < 4; i++) {
        LKI_SCOPED char *path = lki_format("%s/%s", tracking->folder, folders[i]);
        if (!path) return LK_ERR_NOMEM;
        LKI_TRY(lki_make_folders(path));
    }
    LKI_TRY(lki_tracking_state(tracking, LKI_RUN_RUNNING));
    return write_text(tracking->folder, "tags/mlflow.runName", tracking->run_name);
}

lk_status lki_tracking_begin(lki_tracking **out, const char *folder, const char *experiment,
                             const char *run_name)
{
    lki_tracking *tracking = LKI_NEW(lki_tracking);
    if (!tracking) return LK_ERR_NOMEM;
    lk_status status = LK_OK;
    tracking->start_ms = now_ms();
    tracking->run_name = lki_strdup(run_name);
    draw_run_id(tracking->run_id);
    tracking->experiment_id = find_experiment(folder, experiment);
    if (!tracking->experiment_id) status = make_experiment(folder, experiment, &tracking->experiment_id);
    if (!status) tracking->folder = lki_format("%s/%s/%s", folder, tracking->experiment_id, tracking->run_id);
    if (!status && (!tracking->folder || !tracking->run_name)) status = LK_ERR_NOMEM;
    if (!status) status = make_run(tracking);
    if (status) {
        lki_tracking_free(tracking);
        return lki_fail_prefix(status, "tracking");
    }
    *out = tracking;
    return LK_OK;
}

void lki_tracking_free(lki_tracking *tracking)
{
    if (!tracking) return;
    lki_free(tracking->folder);
    lki_free(tracking->experiment_id);
    lki_free(tracking->run_name);
    lki_free(tracking);
}

/* FOLDER/KIND/NAME with ENDING, where names are as the layout wants them, and the folders that lead there. */
static lk_status make_path(const lki_tracking *tracking, const char *kind, const char *name,
                           const char *ending, char **out)
{
    static const char known[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-. :/";
    *out = lki_format("%s/%s/%s%s", tracking->folder, kind, name, ending);
    if (!*out) return LK_ERR_NOMEM;
    char *at = *out + strlen(tracking->folder) + strlen(kind) + 2, *slash = NULL;
    for (char *c = at; *c; c++) {
        bool climbs = *c == '.' && (c == at || c[-1] == '/' || c[-1] == '.'); /* no way out of the folder */
        if (!strchr(known, *c) || climbs) *c = '_';
        if (*c == '/') slash = c;
    }
    if (!slash) return LK_OK;
    *slash = '\0';
    lk_status status = lki_make_folders(*out);
    *slash = '/';
    return status;
}

lk_status lki_tracking_param(lki_tracking *tracking, const char *name, const char *value)
{
    LKI_SCOPED char *path = NULL;
    LKI_TRY(make_path(tracking, "params", name, "", &path));
    return lki_write_file_atomic(path, value, strlen(value));
}

/* A line "time value step" more. */
lk_status lki_tracking_metric(lki_tracking *tracking, const char *name, double value, int64_t step)
{
    LKI_SCOPED char *path = NULL;
    LKI_TRY(make_path(tracking, "metrics", name, "", &path));
    FILE *file = fopen(path, "a");
    if (!file) return lki_fail(LK_ERR_IO, "tracking: %s: %s", path, strerror(errno));
    if (isnan(value)) /* printf may give it a sign */
        fprintf(file, "%lld nan %lld\n", (long long)now_ms(), (long long)step);
    else
        lki_fprintf(file, "%lld %.17g %lld\n", (long long)now_ms(), value, (long long)step);
    bool failed = ferror(file);
    if (fclose(file) || failed) return lki_fail(LK_ERR_IO, "tracking: %s: %s", path, strerror(errno));
    return LK_OK;
}

lk_status lki_tracking_artifact(lki_tracking *tracking, const char *path)
{
    char *data = NULL;
    size_t nbytes;
    const char *slash = strrchr(path, '/');
    if (access(path, R_OK)) return LK_OK;
    LKI_SCOPED char *to = lki_format("%s/artifacts/%s", tracking->folder, slash ? slash + 1 : path);
    if (!to) return LK_ERR_NOMEM;
    LKI_TRY(lki_read_file(&data, &nbytes, path));
    lk_status status = lki_write_file_atomic(to, data, nbytes);
    lki_free(data);
    return status;
}

lk_status lki_tracking_image(lki_tracking *tracking, const char *name, const lk_tensor *pixels)
{
    LKI_SCOPED char *path = NULL;
    LKI_TRY(make_path(tracking, "artifacts", name, ".png", &path));
    return lki_png_write(path, pixels);
}
