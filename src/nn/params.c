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

static bool is_listed(const lk_param_list *list, const lk_param *param)
{
    for (int i = 0; i < list->count; i++)
        if (list->items[i].param == param) return true;
    return false;
}

static lk_status collect(const lk_module *module, const char *prefix, bool once, lk_param_list *list)
{
    for (int i = 0; i < module->param_count; i++) {
        const lki_own_param *own = &module->params[i];
        if (once && is_listed(list, own->param)) continue;
        char *path = lki_format("%s%s", prefix, own->name);
        if (!path) return LK_ERR_NOMEM;
        list->items[list->count++] = (lk_named_param){path, own->param};
    }
    for (int i = 0; i < module->child_count; i++) {
        LKI_SCOPED char *inner = lki_format("%s%s.", prefix, module->children[i].name);
        if (!inner) return LK_ERR_NOMEM;
        LKI_TRY(collect(module->children[i].module, inner, once, list));
    }
    return LK_OK;
}

static lk_status list_params(const lk_module *module, bool once, lk_param_list *out)
{
    *out = (lk_param_list){0};
    if (!module)
        return lki_last_status() ? lki_last_status() : lki_fail(LK_ERR_INVALID, "the module is NULL");
    out->items = LKI_NEW_ARRAY(lk_named_param, count_tree(module));
    if (!out->items) return LK_ERR_NOMEM;
    lk_status status = collect(module, "", once, out);
    if (status != LK_OK) lk_param_list_free(out);
    return status;
}

lk_status lki_module_params(const lk_module *module, lk_param_list *out)
{
    return list_params(module, true, out);
}

lk_status lki_module_names(const lk_module *module, lk_param_list *out)
{
    return list_params(module, false, out);
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
    lk_param_list params;
    int64_t count = 0;
    if (!module || lki_module_params(module, &params) != LK_OK) return 0;
    for (int i = 0; i < params.count; i++)
        if (params.items[i].param->trainable) count += lk_tensor_count(params.items[i].param->value);
    lk_param_list_free(&params);
    return count;
}

void lk_module_set_trainable(lk_module *module, bool trainable)
{
    if (!module) return;
    for (int i = 0; i < module->param_count; i++)
        if (!module->params[i].param->is_buffer) module->params[i].param->trainable = trainable;
    for (int i = 0; i < module->child_count; i++)
        lk_module_set_trainable(module->children[i].module, trainable);
}

/* ---- another dtype ---- */

static bool needs_cast(const lk_param *param, lk_dtype dtype)
{
    return lk_dtype_is_float(param->value->dtype) && param->value->dtype != dtype;
}

/* Refuses parameters that are trained, and casts the others. */
static lk_status cast_params(const lk_param_list *params, lk_dtype dtype, lk_tensor **casts)
{
    for (int i = 0; i < params->count; i++) {
        const lk_param *param = params->items[i].param;
        if (!needs_cast(param, dtype)) continue;
        if (param->home || param->grad)
            return lki_fail(
                LK_ERR_INVALID,
                "lk_module_to: parameter %s is trained already: change the dtype before a step is made",
                param->name);
        casts[i] = lk_tensor_cast(param->value, dtype);
        if (!casts[i]) return LK_ERR_NOMEM;
    }
    return LK_OK;
}

lk_status lk_module_to(lk_module *module, lk_dtype dtype)
{
    lk_param_list params = {0};
    lk_status status;
    if (!module)
        return lki_last_status() ? lki_last_status() : lki_fail(LK_ERR_INVALID, "the module is NULL");
    if (dtype != LK_F32 && dtype != LK_F64)
        return lki_fail(LK_ERR_DTYPE,
                        "lk_module_to: expected f32 or f64, found %s: 16 bits are a run's precision",
                        lk_dtype_name(dtype));
    LKI_TRY(lki_module_params(module, &params));
    lk_tensor **casts = LKI_NEW_ARRAY(lk_tensor *, params.count + 1);
    status = casts ? cast_params(&params, dtype, casts) : LK_ERR_NOMEM;
    for (int i = 0; casts && i < params.count; i++) {
        lk_param *param = params.items[i].param;
        lk_tensor *old = param->value;
        if (status == LK_OK && casts[i]) {
            param->value = casts[i];
            casts[i] = old;
        }
        lk_tensor_free(casts[i]);
    }
    lki_free(casts);
    lk_param_list_free(&params);
    return status;
}

/* ---- parts by path ---- */

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

static lki_own_param *own_param(const lk_module *module, const char *path)
{
    const char *name;
    const lk_module *holder = follow(module, path, &name);
    for (int i = 0; holder && i < holder->param_count; i++)
        if (strcmp(holder->params[i].name, name) == 0) return &holder->params[i];
    return lki_fail_null(LK_ERR_NOT_FOUND, "there is no parameter \"%s\"", path);
}

lk_param *lki_module_param(const lk_module *module, const char *path)
{
    const lki_own_param *own = own_param(module, path);
    return own ? own->param : NULL;
}

static lk_status check_replacement(const lk_param *old, const char *path, const lk_param *param)
{
    char was[160], is[160];
    if (old->home || old->grad)
        return lki_fail(LK_ERR_INVALID,
                        "lk_module_set_param: parameter %s is trained already: share before a step is made",
                        path);
    if (!lk_shape_equal(old->value->shape, param->value->shape))
        return lki_fail(LK_ERR_SHAPE, "lk_module_set_param: %s is %s and cannot be replaced by %s", path,
                        lk_shape_format(was, sizeof was, old->value->shape),
                        lk_shape_format(is, sizeof is, param->value->shape));
    if (old->is_buffer != param->is_buffer)
        return lki_fail(LK_ERR_INVALID, "lk_module_set_param: %s: a parameter and a buffer cannot be one",
                        path);
    return LK_OK;
}

lk_status lk_module_set_param(lk_module *module, const char *path, lk_param *param_owned)
{
    lk_status status = LK_OK;
    lki_own_param *own = NULL;
    if (!module || !param_owned)
        status =
            lki_last_status() ? lki_last_status() : lki_fail(LK_ERR_INVALID, "a parameter to set is NULL");
    else if (!(own = own_param(module, path)))
        status = lki_last_status();
    else
        status = check_replacement(own->param, path, param_owned);
    if (status == LK_OK) {
        lk_param_free(own->param);
        own->param = param_owned;
    } else {
        lk_param_free(param_owned);
    }
    return status;
}

lk_param *lk_module_param(const lk_module *module, const char *path)
{
    lk_param *param = lki_module_param(module, path);
    return param && show(param) == LK_OK ? param : NULL;
}
