/* Weights of published checkpoints, whose names are not always the model's. */
#include "models/models.h"

#include "base/memory.h"
#include "base/status.h"
#include "graph/home.h"

#include <lockstep/checkpoint.h>

#include <string.h>

/* The dict's tensor under `prefix`name, with a LayerNorm's old names too; NULL without an error. */
static lk_tensor *find_with(const lk_state_dict *dict, const char *prefix, const char *name)
{
    LKI_SCOPED char *full = lki_format("%s%s", prefix, name);
    if (!full) return NULL;
    if (lk_state_dict_has(dict, full)) return lk_state_dict_get(dict, full);
    char *dot = strrchr(full, '.');
    if (!dot || !strstr(full, "LayerNorm.")) return NULL;
    const char *old = !strcmp(dot, ".weight") ? "gamma" : !strcmp(dot, ".bias") ? "beta" : NULL;
    if (!old) return NULL;
    *dot = 0;
    LKI_SCOPED char *older = lki_format("%s.%s", full, old);
    return older && lk_state_dict_has(dict, older) ? lk_state_dict_get(dict, older) : NULL;
}

/* The tensor for a parameter of the model: by its name, or with a prefix more or less. */
static lk_tensor *find_tensor(const lk_state_dict *dict, const char *name)
{
    static const char *const prefixes[] = {"transformer.", "bert.", "model."};
    lk_tensor *found = find_with(dict, "", name);
    for (int i = 0; i < 3 && !found; i++) {
        size_t length = strlen(prefixes[i]);
        found = find_with(dict, prefixes[i], name);
        if (!found && !strncmp(name, prefixes[i], length)) found = find_with(dict, "", name + length);
    }
    return found;
}

static lk_status check_param(const char *path, const lk_named_param *named, const lk_tensor *found)
{
    char wanted[128], has[128];
    const lk_tensor *value = named->param->value;
    if (!found)
        return lki_fail(LK_ERR_NOT_FOUND, "%s: the file has no \"%s\", which the model needs", path,
                        named->path);
    if (lk_shape_equal(found->shape, value->shape)) return LK_OK;
    return lki_fail(LK_ERR_SHAPE, "%s: \"%s\" has the shape %s, but the model's has %s", path, named->path,
                    lk_shape_format(has, sizeof has, found->shape),
                    lk_shape_format(wanted, sizeof wanted, value->shape));
}

/* Older files do not count the batches of their norms. */
static bool may_be_missing(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot && !strcmp(dot, ".num_batches_tracked");
}

static lk_status copy_into(lk_param *param, const lk_tensor *from)
{
    LKI_TRY(lki_param_pull(param));
    LKI_TRY(lk_tensor_copy(param->value, from));
    lk_param_changed(param);
    return LK_OK;
}

static lk_status load(const lk_param_list *list, const lk_state_dict *dict, const char *path)
{
    for (int i = 0; i < list->count; i++) {
        lk_tensor *found = find_tensor(dict, list->items[i].path);
        if (found || !may_be_missing(list->items[i].path)) LKI_TRY(check_param(path, &list->items[i], found));
    }
    for (int i = 0; i < list->count; i++) {
        lk_tensor *found = find_tensor(dict, list->items[i].path);
        if (found) LKI_TRY(copy_into(list->items[i].param, found));
    }
    return LK_OK;
}

lk_status lk_load_pretrained(lk_module *model, const char *path)
{
    lk_param_list list;
    if (!model || !path) return lki_fail(LK_ERR_INVALID, "lk_load_pretrained: expected a model and a path");
    lk_state_dict *dict = lk_load_checkpoint(path);
    if (!dict) return lki_last_status();
    lk_status status = lki_module_params(model, &list);
    if (!status) {
        status = load(&list, dict, path);
        lk_param_list_free(&list);
    }
    lk_state_dict_free(dict);
    return status;
}
