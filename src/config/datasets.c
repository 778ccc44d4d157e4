/* `datasets:` of a call of train, as Catalyst takes them: datasets by key and the numbers of all their
 * loaders. It becomes the `loaders:` that it stands for, which every call knows. */
#include "config/build.h"

#include <string.h>

/* Keys that are for the loaders. */
static const char *const numbers[] = {"batch_size", "num_workers", "drop_last"};
enum { NUMBER_COUNT = sizeof numbers / sizeof *numbers };

/* Catalyst's per_gpu_scaling multiplies batch_size by the GPUs of a process, of which there is one here. */
static const char per_gpu_scaling[] = "per_gpu_scaling";

static lk_status check_scaling(const lki_node *datasets)
{
    const lki_node *node = lki_node_get(datasets, per_gpu_scaling);
    bool scales = false;
    if (lki_node_is_null(node)) return LK_OK;
    LKI_TRY(lki_node_bool(node, per_gpu_scaling, &scales));
    if (!scales) return LK_OK;
    return lki_fail_at(node->place, "datasets: per_gpu_scaling cannot be set but to false: leave it out, as "
                                    "batch_size is that of each rank");
}

static bool is_number(const char *key)
{
    for (int i = 0; i < NUMBER_COUNT; i++)
        if (!strcmp(key, numbers[i])) return true;
    return false;
}

static lk_status add_word(lki_tree *tree, lki_node *map, const char *key, const char *text)
{
    lki_node *node = lki_node_create(tree, LKI_NODE_SCALAR, map->place);
    if (!node) return lki_last_status();
    node->text = text;
    return lki_node_add(tree, map, key, map->place, node);
}

/* {_target_: DataLoader, dataset: ..., batch_size: ...}; what is trained on comes in a new order each epoch.
 */
static lk_status make_loader(lki_tree *tree, const lki_node *datasets, const lki_entry *dataset,
                             lki_node **out)
{
    lki_node *loader = lki_node_create(tree, LKI_NODE_MAP, dataset->place);
    if (!loader) return lki_last_status();
    LKI_TRY(add_word(tree, loader, "_target_", "DataLoader"));
    LKI_TRY(lki_node_add(tree, loader, "dataset", dataset->place, dataset->value));
    for (int i = 0; i < NUMBER_COUNT; i++) {
        const lki_entry *number = lki_node_entry(datasets, numbers[i]);
        if (number) LKI_TRY(lki_node_add(tree, loader, number->key, number->place, number->value));
    }
    if (!strncmp(dataset->key, "train", 5)) LKI_TRY(add_word(tree, loader, "shuffle", "true"));
    *out = loader;
    return LK_OK;
}

static lk_status add_loaders(lki_tree *tree, const lki_node *datasets, lki_node *loaders)
{
    for (int i = 0; i < datasets->count; i++) {
        const lki_entry *entry = &datasets->entries[i];
        lki_node *loader = NULL;
        if (is_number(entry->key) || !strcmp(entry->key, per_gpu_scaling)) continue;
        if (lki_node_entry(loaders, entry->key))
            return lki_fail_at(entry->place, "datasets: \"%.60s\" is a key of loaders, too", entry->key);
        LKI_TRY(make_loader(tree, datasets, entry, &loader));
        LKI_TRY(lki_node_add(tree, loaders, entry->key, entry->place, loader));
    }
    return LK_OK;
}

static void remove_entry(lki_node *map, const lki_entry *entry)
{
    int after = map->count - 1 - (int)(entry - map->entries);
    memmove((lki_entry *)entry, entry + 1, sizeof *entry * (size_t)after);
    map->count--;
}

/* The call's `loaders:`, *out, to which those of the datasets are added; NULL where there are none. */
static lk_status find_loaders(lki_node *call, lki_node **out)
{
    const lki_entry *loaders = lki_node_entry(call, "loaders");
    *out = loaders ? loaders->value : NULL;
    if (!loaders || loaders->value->kind == LKI_NODE_MAP) return LK_OK;
    if (!lki_node_is_null(loaders->value))
        return lki_fail_at(loaders->place, "loaders: expected a map of loaders, as in train: {...}");
    remove_entry(call, loaders);
    *out = NULL;
    return LK_OK;
}

static lk_status rewrite_call(lki_tree *tree, lki_node *call)
{
    lki_node *loaders;
    if (lki_node_is_null(lki_node_get(call, "datasets"))) return LK_OK;
    LKI_TRY(find_loaders(call, &loaders));
    lki_entry *datasets = (lki_entry *)lki_node_entry(call, "datasets");
    if (datasets->value->kind != LKI_NODE_MAP || lki_node_get(datasets->value, "_target_"))
        return lki_fail_at(datasets->place, "datasets: expected a map of datasets, as in train: {...}");
    LKI_TRY(check_scaling(datasets->value));
    if (loaders) {
        LKI_TRY(add_loaders(tree, datasets->value, loaders));
        remove_entry(call, datasets);
        return LK_OK;
    }
    loaders = lki_node_create(tree, LKI_NODE_MAP, datasets->value->place);
    if (!loaders) return lki_last_status();
    LKI_TRY(add_loaders(tree, datasets->value, loaders));
    datasets->key = "loaders";
    datasets->value = loaders;
    return LK_OK;
}

lk_status lki_datasets_to_loaders(lki_tree *tree)
{
    const lki_node *run = lki_node_get(tree->root, "run");
    for (int i = 0; run && run->kind == LKI_NODE_LIST && i < run->count; i++) {
        const lki_node *name = lki_node_get(run->entries[i].value, "_call_");
        if (name && name->kind == LKI_NODE_SCALAR && !strcmp(name->text, "train"))
            LKI_TRY(rewrite_call(tree, run->entries[i].value));
    }
    return LK_OK;
}
