#include "checkpoint/storage.h"

#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/json_file.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

lk_status lki_storage_init(lki_storage *storage, const char *logdir, const char *loader_key,
                           const char *metric_key, bool minimize, int topk)
{
    *storage = (lki_storage){.topk = topk, .minimize = minimize};
    storage->logdir = lki_strdup(logdir);
    storage->loader_key = lki_strdup(loader_key);
    storage->metric_key = lki_strdup(metric_key);
    if ((logdir && !storage->logdir) || (loader_key && !storage->loader_key) ||
        (metric_key && !storage->metric_key)) {
        lki_storage_fini(storage);
        return LK_ERR_NOMEM;
    }
    return LK_OK;
}

void lki_storage_fini(lki_storage *storage)
{
    for (int i = 0; i < storage->entry_count; i++) lki_free(storage->entries[i].logpath);
    lki_free(storage->entries);
    lki_free(storage->logdir);
    lki_free(storage->loader_key);
    lki_free(storage->metric_key);
    *storage = (lki_storage){0};
}

static bool better(const lki_storage *storage, double a, double b)
{
    if (isnan(a) || isnan(b)) return !isnan(a) && isnan(b);
    return storage->minimize ? a < b : a > b;
}

static void remove_entry(lki_storage *storage, int index)
{
    lki_free(storage->entries[index].logpath);
    storage->entry_count--;
    memmove(&storage->entries[index], &storage->entries[index + 1],
            sizeof *storage->entries * (size_t)(storage->entry_count - index));
}

/* A resumed run writes an epoch's file anew. */
static void forget(lki_storage *storage, const char *logpath)
{
    for (int i = 0; i < storage->entry_count; i++) {
        if (strcmp(storage->entries[i].logpath, logpath) != 0) continue;
        remove_entry(storage, i);
        return;
    }
}

lk_status lki_storage_add(lki_storage *storage, const char *logpath, double metric, char **dropped)
{
    *dropped = NULL;
    forget(storage, logpath);
    size_t nbytes = sizeof *storage->entries * ((size_t)storage->entry_count + 1);
    lki_storage_entry *entries = lki_realloc(storage->entries, nbytes, "the list of checkpoints");
    if (!entries) return LK_ERR_NOMEM;
    storage->entries = entries;
    char *path = lki_strdup(logpath);
    if (!path) return LK_ERR_NOMEM;
    int at = storage->entry_count++;
    for (; at > 0 && better(storage, metric, entries[at - 1].metric); at--) entries[at] = entries[at - 1];
    entries[at] = (lki_storage_entry){path, metric};
    if (storage->topk > 0 && storage->entry_count > storage->topk)
        *dropped = entries[--storage->entry_count].logpath;
    return LK_OK;
}

static json_t *text_or_null(const char *text)
{
    return text ? json_string(text) : json_null();
}

lk_status lki_storage_save(const lki_storage *storage, const char *path)
{
    json_t *entries = json_array();
    for (int i = 0; i < storage->entry_count; i++) {
        double metric = storage->entries[i].metric;
        json_t *number =
            isfinite(metric) ? json_real(metric) : json_null(); /* JSON has no NaN and no infinity */
        json_array_append_new(
            entries,
            json_pack("{s:o, s:o}", "logpath", text_or_null(storage->entries[i].logpath), "metric", number));
    }
    return lki_json_save(path,
                         json_pack("{s:o, s:i, s:o, s:o, s:b, s:o}", "logdir", text_or_null(storage->logdir),
                                   "topk", storage->topk, "loader_key", text_or_null(storage->loader_key),
                                   "metric_key", text_or_null(storage->metric_key), "minimize",
                                   storage->minimize, "storage", entries));
}

static lk_status read_entries(lki_storage *storage, const json_t *entries, const char *path)
{
    int count = (int)json_array_size(entries);
    storage->entries = LKI_NEW_ARRAY(lki_storage_entry, count);
    if (!storage->entries) return LK_ERR_NOMEM;
    for (int i = 0; i < count; i++) {
        const json_t *item = json_array_get(entries, (size_t)i), *metric = json_object_get(item, "metric");
        const char *logpath = json_string_value(json_object_get(item, "logpath"));
        if (!logpath || !(json_is_number(metric) || json_is_null(metric)))
            return lki_fail(LK_ERR_FORMAT, "%s: entry %d of storage has no logpath or no metric", path, i);
        char *copy = lki_strdup(logpath);
        if (!copy) return LK_ERR_NOMEM;
        storage->entries[storage->entry_count++] =
            (lki_storage_entry){copy, json_is_null(metric) ? NAN : json_number_value(metric)};
    }
    return LK_OK;
}

lk_status lki_storage_load(lki_storage *storage, const char *path)
{
    json_t *document;
    *storage = (lki_storage){0};
    LKI_TRY(lki_json_load(&document, path));
    const json_t *entries = json_object_get(document, "storage");
    lk_status status =
        json_is_array(entries) ? LK_OK : lki_fail(LK_ERR_FORMAT, "%s: no list named storage", path);
    if (status == LK_OK)
        status = lki_storage_init(storage, json_string_value(json_object_get(document, "logdir")),
                                  json_string_value(json_object_get(document, "loader_key")),
                                  json_string_value(json_object_get(document, "metric_key")),
                                  json_is_true(json_object_get(document, "minimize")),
                                  (int)json_integer_value(json_object_get(document, "topk")));
    if (status == LK_OK) status = read_entries(storage, entries, path);
    json_decref(document);
    if (status != LK_OK) lki_storage_fini(storage);
    return status;
}

bool lki_storage_is_of(const lki_storage *storage, const char *loader_key, const char *metric_key,
                       bool minimize)
{
    return lki_same_text(storage->loader_key, loader_key) && lki_same_text(storage->metric_key, metric_key) &&
           storage->minimize == minimize;
}

static char *path_in(const char *folder, const char *logpath)
{
    const char *slash = strrchr(logpath, '/');
    return lki_format("%s/%s", folder, slash ? slash + 1 : logpath);
}

lk_status lki_storage_relocate(lki_storage *storage, const char *logdir, const char *folder)
{
    char *copy = lki_strdup(logdir);
    if (logdir && !copy) return LK_ERR_NOMEM;
    lki_free(storage->logdir);
    storage->logdir = copy;
    for (int i = storage->entry_count - 1; i >= 0; i--) {
        char *path = path_in(folder, storage->entries[i].logpath);
        if (!path) return LK_ERR_NOMEM;
        lki_free(storage->entries[i].logpath);
        storage->entries[i].logpath = path;
        if (access(path, F_OK) != 0) remove_entry(storage, i);
    }
    return LK_OK;
}
