/* The list of checkpoints, made again from the checkpoints themselves. */
#include "checkpoint/storage.h"

#include "base/memory.h"
#include "base/number_text.h"
#include "base/status.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The score in a file: strings, which are no part of its hash ---- */

lk_status lki_storage_put_score(lk_state_dict *state, const lki_storage *storage, double metric)
{
    char text[64];
    lki_snprintf(text, sizeof text, "%.17g", metric);
    LKI_TRY(lk_state_dict_put_string(state, "score", text));
    LKI_TRY(lk_state_dict_put_string(state, "score.loader", storage->loader_key ? storage->loader_key : ""));
    LKI_TRY(lk_state_dict_put_string(state, "score.metric", storage->metric_key ? storage->metric_key : ""));
    return lk_state_dict_put_string(state, "score.minimize", storage->minimize ? "true" : "false");
}

static const char *string_or_null(const lk_state_dict *state, const char *name)
{
    for (int64_t i = 0; i < lk_state_dict_string_count(state); i++)
        if (strcmp(lk_state_dict_string_name(state, i), name) == 0)
            return lk_state_dict_get_string(state, name);
    return NULL;
}

static bool is_text(const lk_state_dict *state, const char *name, const char *expected)
{
    const char *text = string_or_null(state, name);
    return text && strcmp(text, expected ? expected : "") == 0;
}

/* A checkpoint that was judged by another metric, or that cannot be read, is none of the list's: *is_ours. */
static lk_status read_score(const lki_storage *storage, const char *path, double *metric, bool *is_ours)
{
    char *end;
    lk_state_dict *state = lk_load_safetensors(path);
    *is_ours = false;
    *metric = 0;
    if (!state) return LK_OK;
    const char *text = string_or_null(state, "score");
    lk_status status = LK_OK;
    *is_ours = is_text(state, "score.loader", storage->loader_key) &&
               is_text(state, "score.metric", storage->metric_key) &&
               is_text(state, "score.minimize", storage->minimize ? "true" : "false");
    *metric = text ? lki_strtod(text, &end) : 0;
    if (!text || *end || end == text)
        status = lki_fail(LK_ERR_FORMAT, "%s does not say what it scored", path);
    lk_state_dict_free(state);
    return status;
}

/* ---- The files of a folder ---- */

typedef struct epochs {
    int64_t *items;
    int count;
} epochs;

static int by_number(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

/* N of "model.N.safetensors"; -1 for other names. */
static int64_t epoch_of(const char *name, const char *kind)
{
    size_t length = strlen(kind);
    char *end;
    if (strncmp(name, kind, length) != 0 || name[length] != '.') return -1;
    if (name[length + 1] < '0' || name[length + 1] > '9') return -1;
    int64_t epoch = strtoll(name + length + 1, &end, 10);
    return strcmp(end, ".safetensors") == 0 ? epoch : -1;
}

static lk_status find_epochs(epochs *out, const char *folder, const char *kind)
{
    DIR *directory = opendir(folder);
    if (!directory) return lki_fail(LK_ERR_IO, "%s: %s", folder, strerror(errno));
    lk_status status = LK_OK;
    for (struct dirent *entry; status == LK_OK && (entry = readdir(directory));) {
        int64_t epoch = epoch_of(entry->d_name, kind);
        if (epoch < 0) continue;
        int64_t *items =
            lki_realloc(out->items, sizeof *items * ((size_t)out->count + 1), "a list of epochs");
        if (items) {
            items[out->count++] = epoch;
            out->items = items;
        } else {
            status = LK_ERR_NOMEM;
        }
    }
    closedir(directory);
    if (out->count) qsort(out->items, (size_t)out->count, sizeof *out->items, by_number);
    return status;
}

static lk_status add_file(lki_storage *storage, const char *folder, const char *kind, int64_t epoch)
{
    double metric = 0;
    bool is_ours = false;
    char *dropped = NULL;
    LKI_SCOPED char *path = lki_format("%s/%s.%04lld.safetensors", folder, kind, (long long)epoch);
    if (!path) return LK_ERR_NOMEM;
    LKI_TRY(read_score(storage, path, &metric, &is_ours));
    return is_ours ? lki_storage_add(storage, path, metric, &dropped) : LK_OK;
}

/* Nothing falls out while the list is made, whatever topk says: a file that is there is one to keep. */
lk_status lki_storage_rebuild(lki_storage *storage, const char *folder, const char *kind)
{
    epochs found = {0};
    int topk = storage->topk;
    storage->topk = 0;
    lk_status status = find_epochs(&found, folder, kind);
    for (int i = 0; i < found.count && status == LK_OK; i++)
        status = add_file(storage, folder, kind, found.items[i]);
    storage->topk = topk;
    lki_free(found.items);
    return status;
}
