/* Modules made of modules, and modules made of a user's function. */
#include "nn/module.h"

#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"

#include <stdio.h>

/* What a container owns and has not adopted is freed where it fails: as often as it was handed over, but not
 * what a parent holds. */
static void free_handed_over(lk_module *module, int times)
{
    int free_holds = module->holder_count - module->place_count;
    for (int i = 0; i < times && i < free_holds; i++) lk_module_free(module);
}

void lki_free_modules(lk_module *const *modules, int count)
{
    for (int i = 0; i < count; i++) {
        int before = 0, times = 0;
        for (int j = 0; j < count; j++) {
            if (modules[j] != modules[i]) continue;
            before += j < i;
            times++;
        }
        if (modules[i] && !before) free_handed_over(modules[i], times);
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
        lki_free_modules(modules, count);
        return NULL;
    }
    int added = 0;
    for (lk_status status = LK_OK; added < count && status == LK_OK; added++) {
        char name[16];
        snprintf(name, sizeof name, "%d", added);
        status = lk_module_add_child(container, name, modules[added]);
    }
    if (container->failed) lki_free_modules(modules + added, count - added);
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
        int before = 0, times = 0;
        for (int j = 0; j < modules.count; j++) {
            if (modules.items[j].module != module) continue;
            before += j < i;
            times++;
        }
        if (module && !before) free_handed_over(module, times);
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

lk_module *lk_module_dict_with(lk_named_module_list modules_owned)
{
    return lk_custom_module(.type = "ModuleDict", .children = modules_owned);
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
    const char *type = status == LK_OK && options.type ? options.type : "Custom";
    if (status == LK_OK && options.forward && options.call)
        status = lki_fail(LK_ERR_INVALID, "%s: forward and call: give one of them", type);
    else if (status == LK_OK && (options.inputs < 0 || options.outputs < 0))
        status = lki_fail(LK_ERR_INVALID, "%s: inputs and outputs: expected counts, found %d and %d", type,
                          options.inputs, options.outputs);
    else if (status == LK_OK && !options.call && (options.inputs || options.outputs))
        status = lki_fail(LK_ERR_INVALID, "%s: inputs and outputs: they are those of call", type);
    if (status == LK_OK && all_there(options.children))
        module = lki_module_create(type, options.forward, NULL, 0);
    if (!module) {
        free_named(options.children);
        if (options.free_context) options.free_context(options.context);
        return NULL;
    }
    module->call = options.call;
    module->input_count = options.inputs;
    module->output_count = options.outputs;
    module->context = options.context;
    module->free_context = options.free_context;
    adopt_named(module, options.children);
    return lki_module_checked(module);
}
