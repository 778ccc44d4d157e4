/* Recording a module: scopes, hooks, and modules of several values. */
#include "nn/module.h"

#include "base/memory.h"
#include "base/status.h"
#include "graph/graph.h"

#include <string.h>

/* ---- hooks ---- */

static lk_status add_hook(lk_module *module, lki_hook hook)
{
    if (!module)
        return lki_last_status() ? lki_last_status() : lki_fail(LK_ERR_INVALID, "the module is NULL");
    if (!hook.before && !hook.after) return lki_fail(LK_ERR_INVALID, "%s: the hook is NULL", module->type);
    lki_hook *grown = lki_realloc(module->hooks, sizeof *grown * (size_t)(module->hook_count + 1), "hooks");
    if (!grown) return LK_ERR_NOMEM;
    module->hooks = grown;
    grown[module->hook_count++] = hook;
    return LK_OK;
}

static void remove_hook(lk_module *module, lki_hook hook)
{
    int kept = 0;
    for (int i = 0; module && i < module->hook_count; i++) {
        const lki_hook *own = &module->hooks[i];
        bool is_it = own->before == hook.before && own->after == hook.after && own->context == hook.context;
        if (!is_it) module->hooks[kept++] = *own;
    }
    if (module) module->hook_count = kept;
}

lk_status lk_module_register_forward_hook(lk_module *module, lk_module_hook hook, void *context)
{
    return add_hook(module, (lki_hook){.after = hook, .context = context});
}

lk_status lk_module_register_forward_pre_hook(lk_module *module, lk_module_pre_hook hook, void *context)
{
    return add_hook(module, (lki_hook){.before = hook, .context = context});
}

void lk_module_remove_forward_hook(lk_module *module, lk_module_hook hook, void *context)
{
    remove_hook(module, (lki_hook){.after = hook, .context = context});
}

void lk_module_remove_forward_pre_hook(lk_module *module, lk_module_pre_hook hook, void *context)
{
    remove_hook(module, (lki_hook){.before = hook, .context = context});
}

/* ---- around a module's own function ---- */

/* The graph keeps the first failure, so that whoever compiles it hears of a hook's. */
static lk_status note_failure(lk_graph *graph, lk_status status)
{
    if (status != LK_OK && graph->status == LK_OK) lki_graph_fail(graph, status, "%s", lk_error());
    return status;
}

static lk_status all_there(lk_graph *graph, lk_value *const *values, int count, const char *type)
{
    for (int i = 0; i < count; i++) {
        if (values[i]) continue;
        if (graph->status == LK_OK)
            lki_graph_fail(graph, LK_ERR_INVALID, "%s: value %d of %d is missing", type, i + 1, count);
        return graph->status;
    }
    return LK_OK;
}

/* How many of the values must be there. */
static int required_of(const lk_module *module, int count)
{
    return module->required_inputs && module->required_inputs < count ? module->required_inputs : count;
}

lk_status lki_module_begin(lk_module *module, const char *name, lk_value **inputs, int count)
{
    lk_graph *graph = lk_value_graph(inputs[0]);
    lk_status status = LK_OK;
    if (!name) name = module->name ? module->name : "";
    lk_graph_push_scope(graph, name, module->type);
    if (module->is_checkpointed) lki_graph_begin_region(graph);
    for (int i = 0; i < module->hook_count && status == LK_OK; i++) {
        const lki_hook *hook = &module->hooks[i];
        if (!hook->before) continue;
        status = hook->before(module, inputs, count, hook->context);
        if (status == LK_OK)
            status = all_there(graph, inputs, required_of(module, count), "a forward pre-hook");
    }
    note_failure(graph, status);
    if (status != LK_OK) lk_graph_pop_scope(graph);
    return status;
}

lk_status lki_module_end(lk_module *module, lk_value *const *inputs, int input_count, lk_value **outputs,
                         int output_count, lk_status status)
{
    lk_graph *graph = lk_value_graph(inputs[0]);
    if (status == LK_OK) status = all_there(graph, outputs, output_count, module->type);
    for (int i = 0; i < module->hook_count && status == LK_OK; i++) {
        const lki_hook *hook = &module->hooks[i];
        if (!hook->after) continue;
        status = hook->after(module, inputs, input_count, outputs, output_count, hook->context);
        if (status == LK_OK) status = all_there(graph, outputs, output_count, "a forward hook");
    }
    note_failure(graph, status);
    lk_graph_pop_scope(graph);
    module->was_recorded = status == LK_OK;
    if (status == LK_OK) module->output_shape = lk_value_shape(outputs[0]);
    return status;
}

void lki_module_enter(lk_module *module, lk_graph *graph)
{
    lk_graph_push_scope(graph, module->name ? module->name : "", module->type);
    if (module->is_checkpointed) lki_graph_begin_region(graph);
    for (int i = 0; i < module->hook_count; i++)
        lki_graph_fail(graph, LK_ERR_UNSUPPORTED,
                       "%s: hooks run where lk_module_forward or lk_module_call does", module->type);
}

lk_value *lki_module_leave(lk_module *module, lk_graph *graph, lk_value *output)
{
    lk_graph_pop_scope(graph);
    module->was_recorded = output != NULL;
    if (output) module->output_shape = lk_value_shape(output);
    return output;
}

/* ---- calling ---- */

static lk_status check_counts(lk_module *module, lk_graph *graph, int input_count, int output_count)
{
    int takes = module->call ? module->input_count : 1, gives = module->call ? module->output_count : 1;
    bool may_lack = module->required_inputs > 0 && input_count >= module->required_inputs;
    if (!module->call && !module->forward)
        lki_graph_fail(graph, LK_ERR_INVALID, "%s: the module has no forward function", module->type);
    else if (takes && takes != input_count && !(may_lack && input_count < takes))
        lki_graph_fail(graph, LK_ERR_INVALID, "%s takes %d value%s, found %d", module->type, takes,
                       takes == 1 ? "" : "s", input_count);
    else if (gives && gives != output_count)
        lki_graph_fail(graph, LK_ERR_INVALID, "%s gives %d value%s, but %d are asked for", module->type,
                       gives, gives == 1 ? "" : "s", output_count);
    return graph->status;
}

static lk_status run_body(lk_module *module, lk_value *const *inputs, int input_count, lk_value **outputs,
                          int output_count)
{
    lk_graph *graph = lk_value_graph(inputs[0]);
    LKI_TRY(check_counts(module, graph, input_count, output_count));
    if (module->call) return module->call(module, inputs, input_count, outputs, output_count);
    outputs[0] = module->forward(module, inputs[0]);
    return outputs[0] ? LK_OK : graph->status ? graph->status : LK_ERR_INVALID;
}

static lk_status call_as(lk_module *module, const char *name, lk_value *const *inputs, int input_count,
                         lk_value **outputs, int output_count)
{
    lk_value *given[LKI_MAX_MODULE_VALUES];
    lk_graph *graph = lk_value_graph(inputs[0]);
    if (!module) {
        lki_graph_fail(graph, lki_last_status() ? lki_last_status() : LK_ERR_INVALID,
                       "the module is NULL: %s", lk_error());
        return graph->status;
    }
    memcpy(given, inputs, sizeof *given * (size_t)input_count);
    LKI_TRY(lki_module_begin(module, name, given, input_count));
    lk_status status = note_failure(graph, run_body(module, given, input_count, outputs, output_count));
    return lki_module_end(module, given, input_count, outputs, output_count, status);
}

lk_status lk_module_call(lk_module *module, lk_value *const *inputs, int input_count, lk_value **outputs,
                         int output_count)
{
    for (int i = 0; outputs && i < output_count; i++) outputs[i] = NULL;
    if (!inputs || !outputs || input_count < 1 || output_count < 1 || input_count > LKI_MAX_MODULE_VALUES)
        return lki_fail(LK_ERR_INVALID, "%s: expected 1 to %d inputs and at least 1 output",
                        module ? module->type : "lk_module_call", LKI_MAX_MODULE_VALUES);
    for (int i = 0; i < (module ? required_of(module, input_count) : input_count); i++)
        if (!inputs[i]) return lki_last_status() ? lki_last_status() : LK_ERR_INVALID;
    lk_status status = call_as(module, NULL, inputs, input_count, outputs, output_count);
    for (int i = 0; status != LK_OK && i < output_count; i++) outputs[i] = NULL;
    return status;
}

lk_value *lk_module_forward(lk_module *module, lk_value *x)
{
    lk_value *output = NULL;
    return x && call_as(module, NULL, &x, 1, &output, 1) == LK_OK ? output : NULL;
}

lk_value *lki_module_chain(lk_module *module, lk_value *x)
{
    for (int i = 0; x && i < module->child_count; i++) {
        lk_value *output = NULL;
        const lki_child *child = &module->children[i];
        x = call_as(child->module, child->name, &x, 1, &output, 1) == LK_OK ? output : NULL;
    }
    return x;
}

lk_param *lki_module_own_param(const lk_module *module, const char *name)
{
    for (int i = 0; i < module->param_count; i++)
        if (strcmp(module->params[i].name, name) == 0) return module->params[i].param;
    return NULL;
}

lk_value *lki_module_value(const lk_module *module, lk_value *x, const char *name)
{
    lk_param *param = lki_module_own_param(module, name);
    return param ? lk_graph_param(lk_value_graph(x), param) : NULL;
}
