/* Modules made of modules, and modules made of a user's function. */
#include "nn/module.h"

#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"

#include <stdio.h>

/* What a container owns and has not adopted is freed where it fails. */
static void free_modules(lk_module *const *modules, int count)
{
    for (int i = 0; i < count; i++) {
        bool seen = false;
        for (int j = 0; j < i; j++) seen = seen || modules[j] == modules[i];
        if (modules[i] && !seen && !modules[i]->name) lk_module_free(modules[i]);
    }
}

static lk_module *numbered(const char *type, lk_module_function forward, lk_module *const *modules, int count)
{
    bool whole = true;
    if (count < 0 || (count && !modules))
        return lki_fail_null(LK_ERR_INVALID, "%s: expected a list of modules, found %d", type, count);
    for (int i = 0; i < count; i++) whole = whole && modules[i];
    lk_module *container = whole ? lki_module_create(type, forward, NULL, 0) : NULL;
    if (!container) {
        free_modules(modules, count);
        return NULL;
    }
    int added = 0;
    for (lk_status status = LK_OK; added < count && status == LK_OK; added++) {
        char name[16];
        snprintf(name, sizeof name, "%d", added);
        status = lk_module_add_child(container, name, modules[added]);
    }
    if (container->failed) free_modules(modules + added, count - added);
    return lki_module_checked(container);
}

static bool all_there(lk_named_module_list modules)
{
    for (int i = 0; i < modules.count; i++)
        if (!modules.items[i].module) return false;
    return true;
}

static void free_named(lk_named_module_list modules)
{
    for (int i = 0; i < modules.count; i++) {
        lk_module *module = modules.items[i].module;
        bool seen = false;
        for (int j = 0; j < i; j++) seen = seen || modules.items[j].module == module;
        if (module && !seen && !module->name) lk_module_free(module);
    }
}

static void adopt_named(lk_module *container, lk_named_module_list modules)
{
    for (int i = 0; i < modules.count; i++) {
        if (lk_module_add_child(container, modules.items[i].name, modules.items[i].module) == LK_OK) continue;
        free_named((lk_named_module_list){modules.items + i + 1, modules.count - i - 1});
        return;
    }
}

lk_module *lk_sequential_with(lk_module *const *modules_owned, int count)
{
    return numbered("Sequential", lki_module_chain, modules_owned, count);
}

lk_module *lk_named_sequential_with(lk_named_module_list modules_owned)
{
    return lk_custom_module(.type = "Sequential", .forward = lki_module_chain, .children = modules_owned);
}

static lk_value *residual_forward(lk_module *module, lk_value *x)
{
    return lk_op_add(x, lki_module_chain(module, x));
}

lk_module *lk_residual_with(lk_module *const *modules_owned, int count)
{
    return numbered("Residual", residual_forward, modules_owned, count);
}

lk_module *lk_module_list_with(lk_module *const *modules_owned, int count)
{
    return numbered("ModuleList", NULL, modules_owned, count);
}

typedef struct function_context {
    lk_value_function function;
    void *context;
} function_context;

static lk_value *function_forward(lk_module *module, lk_value *x)
{
    const function_context *own = module->context;
    return own->function(x, own->context);
}

lk_module *lk_function(lk_value_function function, void *context)
{
    if (!function) return lki_fail_null(LK_ERR_INVALID, "lk_function: the function is NULL");
    return lki_module_create("Function", function_forward, &(function_context){function, context},
                             sizeof(function_context));
}

lk_module *lk_custom_module_with(const lk_custom_module_options *given)
{
    lk_custom_module_options options;
    lk_status status = lki_take(&options, sizeof options, given, "lk_custom_module_options");
    lk_module *module = NULL;
    if (status == LK_OK && all_there(options.children))
        module = lki_module_create(options.type ? options.type : "Custom", options.forward, NULL, 0);
    if (!module) {
        free_named(options.children);
        if (options.free_context) options.free_context(options.context);
        return NULL;
    }
    module->context = options.context;
    module->free_context = options.free_context;
    adopt_named(module, options.children);
    return lki_module_checked(module);
}
