/* Walking a tree of modules: its parameters by path. */
#include "nn/module.h"

#include "base/memory.h"
#include "base/status.h"
#include "graph/home.h"

#include <string.h>

static int count_tree(const lk_module *module)
{
    int count = module->param_count;
    for (int i = 0; i < module->child_count; i++) count += count_tree(module->children[i].module);
    return count;
}

static lk_status collect(const lk_module *module, const char *prefix, lk_param_list *list)
{
    for (int i = 0; i < module->param_count; i++) {
        char *path = lki_format("%s%s", prefix, module->params[i]->name);
        if (!path) return LK_ERR_NOMEM;
        list->items[list->count++] = (lk_named_param){path, module->params[i]};
    }
    for (int i = 0; i < module->child_count; i++) {
        LKI_SCOPED char *inner = lki_format("%s%s.", prefix, module->children[i].name);
        if (!inner) return LK_ERR_NOMEM;
        LKI_TRY(collect(module->children[i].module, inner, list));
    }
    return LK_OK;
}

lk_status lki_module_params(const lk_module *module, lk_param_list *out)
{
    *out = (lk_param_list){0};
    if (!module)
        return lki_last_status() ? lki_last_status() : lki_fail(LK_ERR_INVALID, "the module is NULL");
    out->items = LKI_NEW_ARRAY(lk_named_param, count_tree(module));
    if (!out->items) return LK_ERR_NOMEM;
    lk_status status = collect(module, "", out);
    if (status != LK_OK) lk_param_list_free(out);
    return status;
}

/* From here on the program may read it at any time. */
static lk_status show(lk_param *param)
{
    param->is_shown = true;
    return lki_param_pull(param);
}

lk_status lk_module_params(const lk_module *module, lk_param_list *out)
{
    LKI_TRY(lki_module_params(module, out));
    lk_status status = LK_OK;
    for (int i = 0; i < out->count && status == LK_OK; i++) status = show(out->items[i].param);
    if (status != LK_OK) lk_param_list_free(out);
    return status;
}

void lk_param_list_free(lk_param_list *list)
{
    for (int i = 0; i < list->count; i++) lki_free(list->items[i].path);
    lki_free(list->items);
    *list = (lk_param_list){0};
}

int64_t lk_module_param_count(const lk_module *module)
{
    if (!module) return 0;
    int64_t count = 0;
    for (int i = 0; i < module->param_count; i++)
        if (module->params[i]->trainable) count += lk_tensor_count(module->params[i]->value);
    for (int i = 0; i < module->child_count; i++) count += lk_module_param_count(module->children[i].module);
    return count;
}

void lk_module_set_trainable(lk_module *module, bool trainable)
{
    if (!module) return;
    for (int i = 0; i < module->param_count; i++)
        if (!module->params[i]->is_buffer) module->params[i]->trainable = trainable;
    for (int i = 0; i < module->child_count; i++)
        lk_module_set_trainable(module->children[i].module, trainable);
}

/* Counts the parameters that change, and refuses what cannot. */
static lk_status look_at_dtypes(const lk_module *module, lk_dtype dtype, int *count)
{
    for (int i = 0; i < module->param_count; i++) {
        const lk_param *param = module->params[i];
        if (!lk_dtype_is_float(param->value->dtype) || param->value->dtype == dtype) continue;
        if (param->home || param->grad)
            return lki_fail(
                LK_ERR_INVALID,
                "lk_module_to: parameter %s is trained already: change the dtype before a step is made",
                param->name);
        ++*count;
    }
    for (int i = 0; i < module->child_count; i++)
        LKI_TRY(look_at_dtypes(module->children[i].module, dtype, count));
    return LK_OK;
}

/* Casts to *casts, or puts what is there in place and leaves the old values there. */
static lk_status cast_params(lk_module *module, lk_dtype dtype, lk_tensor ***casts, bool puts)
{
    for (int i = 0; i < module->param_count; i++) {
        lk_param *param = module->params[i];
        lk_dtype old = param->value->dtype;
        if (!lk_dtype_is_float(old) || old == dtype) continue;
        lk_tensor **cast = (*casts)++;
        if (puts) {
            lk_tensor *value = param->value;
            param->value = *cast;
            *cast = value;
        } else if (!(*cast = lk_tensor_cast(param->value, dtype))) {
            return LK_ERR_NOMEM;
        }
    }
    for (int i = 0; i < module->child_count; i++)
        LKI_TRY(cast_params(module->children[i].module, dtype, casts, puts));
    return LK_OK;
}

lk_status lk_module_to(lk_module *module, lk_dtype dtype)
{
    int count = 0;
    if (!module)
        return lki_last_status() ? lki_last_status() : lki_fail(LK_ERR_INVALID, "the module is NULL");
    if (dtype != LK_F32 && dtype != LK_F64)
        return lki_fail(LK_ERR_DTYPE,
                        "lk_module_to: expected f32 or f64, found %s: 16 bits are a run's precision",
                        lk_dtype_name(dtype));
    LKI_TRY(look_at_dtypes(module, dtype, &count));
    lk_tensor **casts = LKI_NEW_ARRAY(lk_tensor *, count + 1), **next = casts;
    if (!casts) return LK_ERR_NOMEM;
    lk_status status = cast_params(module, dtype, &next, false);
    next = casts;
    if (status == LK_OK) cast_params(module, dtype, &next, true);
    for (int i = 0; i < count; i++) lk_tensor_free(casts[i]);
    lki_free(casts);
    return status;
}

static lk_module *direct_child(const lk_module *module, const char *name, size_t length)
{
    for (int i = 0; i < module->child_count; i++) {
        const char *candidate = module->children[i].name;
        if (strlen(candidate) == length && memcmp(candidate, name, length) == 0)
            return module->children[i].module;
    }
    return NULL;
}

/* Follows "a.b." down to the module that holds the last step of the path, which `rest` then points to. */
static const lk_module *follow(const lk_module *module, const char *path, const char **rest)
{
    for (const char *dot; module && (dot = strchr(path, '.')); path = dot + 1)
        module = direct_child(module, path, (size_t)(dot - path));
    *rest = path;
    return module;
}

lk_module *lk_module_child(const lk_module *module, const char *path)
{
    const char *name;
    const lk_module *holder = follow(module, path, &name);
    lk_module *child = holder ? direct_child(holder, name, strlen(name)) : NULL;
    return child ? child : lki_fail_null(LK_ERR_NOT_FOUND, "there is no module \"%s\"", path);
}

lk_param *lki_module_param(const lk_module *module, const char *path)
{
    const char *name;
    const lk_module *holder = follow(module, path, &name);
    for (int i = 0; holder && i < holder->param_count; i++)
        if (strcmp(holder->params[i]->name, name) == 0) return holder->params[i];
    return lki_fail_null(LK_ERR_NOT_FOUND, "there is no parameter \"%s\"", path);
}

lk_param *lk_module_param(const lk_module *module, const char *path)
{
    lk_param *param = lki_module_param(module, path);
    return param && show(param) == LK_OK ? param : NULL;
}
