#include "run/loaders.h"

#include "base/memory.h"
#include "base/status.h"
#include "base/suggest.h"
#include "run/metrics.h"
#include "run/run.h"

#include <string.h>

int lki_run_find_loader(const lki_run_loaders *loaders, const char *key)
{
    for (int i = 0; i < loaders->count && key; i++)
        if (strcmp(loaders->items[i].key, key) == 0) return i;
    return -1;
}

lk_status lki_run_check_loader(const lki_run_loaders *loaders, const char *who, const char *key)
{
    char hint[160];
    lki_suggestion near = {.wanted = key};
    if (lki_run_find_loader(loaders, key) >= 0) return LK_OK;
    for (int i = 0; i < loaders->count; i++) lki_suggest_offer(&near, loaders->items[i].key);
    return lki_fail(LK_ERR_NOT_FOUND, "%s: there is no loader named \"%s\"%s", who, key,
                    lki_suggest_text(&near, hint, sizeof hint));
}

const char *lki_loader_key_fault(const char *key)
{
    if (!key || !*key) return "a loader needs a name";
    if (strchr(key, '/') || !strcmp(key, ".") || !strcmp(key, ".."))
        return "its name is that of files in the logdir: it can have no \"/\" in it, nor be \".\" or \"..\"";
    return lki_is_utf8(key) ? NULL : "its name is not UTF-8";
}

/* Where there is no loader, the error is that of the constructor that failed last, perhaps another loader's:
 * its sentence says what is missing, and the key has no place before it. */
lk_status lki_run_add_loader(lki_run_loaders *loaders, const char *key, lk_loader *loader)
{
    if (!loader)
        return lki_last_status() ? lki_last_status() : lki_fail(LK_ERR_INVALID, "loader \"%s\" is NULL", key);
    lk_status status = LK_OK;
    const char *fault = lki_loader_key_fault(key);
    if (fault)
        status = lki_fail(LK_ERR_INVALID, "loader \"%.100s\": %s", key ? key : "", fault);
    else if (loaders->count == LKI_MAX_LOADERS)
        status = lki_fail(LK_ERR_INVALID, "a run has at most %d loaders", LKI_MAX_LOADERS);
    else if (lki_run_find_loader(loaders, key) >= 0)
        status = lki_fail(LK_ERR_INVALID, "there are two loaders named \"%s\"", key);
    lki_run_loader *slot = &loaders->items[loaders->count];
    if (status == LK_OK) {
        *slot = (lki_run_loader){.key = lki_strdup(key), .metrics = lki_metrics_create()};
        if (!slot->key || !slot->metrics) status = LK_ERR_NOMEM;
    }
    if (status == LK_OK) status = lk_loader_set_name(loader, key);
    if (status) {
        lk_loader_free(loader);
        return status;
    }
    slot->loader = loader;
    loaders->count++;
    return LK_OK;
}

lk_status lki_run_add_datasets(lki_run_loaders *loaders, const lk_datasets_options *options)
{
    lk_named_dataset made[LKI_MAX_LOADERS];
    const lk_named_dataset *datasets = options->datasets.items;
    int count = options->datasets.count;
    if (options->get_datasets_fn) {
        count = options->get_datasets_fn(made, LKI_MAX_LOADERS, options->context);
        if (count < 0)
            return lki_last_status() ? lki_last_status() : lki_fail(LK_ERR_INVALID, "get_datasets_fn failed");
        datasets = made;
    }
    for (int i = 0; i < count; i++) {
        bool train = strncmp(datasets[i].key, "train", 5) == 0;
        lk_loader *loader =
            lk_loader(datasets[i].dataset, .batch_size = options->batch_size ? options->batch_size : 1,
                      .num_workers = options->num_workers, .drop_last = options->drop_last, .shuffle = train);
        lk_status status = lki_run_add_loader(loaders, datasets[i].key, loader);
        if (status == LK_OK) continue;
        for (int k = i + 1; k < count; k++) lk_dataset_free(datasets[k].dataset);
        return status;
    }
    return LK_OK;
}

void lki_run_free_loaders(lki_run_loaders *loaders)
{
    for (int i = 0; i < loaders->count; i++) {
        lk_loader_free(loaders->items[i].loader);
        lki_metrics_free(loaders->items[i].metrics);
        lki_free(loaders->items[i].first_pass);
        lki_free(loaders->items[i].cut);
        lki_free(loaders->items[i].key);
    }
    *loaders = (lki_run_loaders){0};
}

const lk_metrics *lk_runner_loader_metrics(const lk_runner *runner, const char *loader_key)
{
    const lki_run_loaders *loaders = &runner->run->loaders;
    int index = lki_run_find_loader(loaders, loader_key);
    return index >= 0 && loaders->items[index].has_metrics ? loaders->items[index].metrics : NULL;
}
