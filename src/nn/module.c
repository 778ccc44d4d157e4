#include "nn/module.h"

#include "base/memory.h"
#include "base/status.h"
#include "graph/graph.h"
#include "graph/home.h"

#include <math.h>
#include <string.h>

lk_module *lki_module_create(const char *type, lk_module_function forward, const void *context,
                             size_t context_nbytes)
{
    lk_module *module = LKI_NEW(lk_module);
    if (!module) return NULL;
    module->type = lki_strdup(type);
    module->forward = forward;
    module->context_nbytes = context_nbytes;
    if (context_nbytes > 0) {
        module->context = lki_calloc(context_nbytes, type);
        module->free_context = lki_free;
    }
    if (!module->type || (context_nbytes > 0 && !module->context)) {
        lk_module_free(module);
        return NULL;
    }
    if (context_nbytes > 0) memcpy(module->context, context, context_nbytes);
    return module;
}

lk_module *lki_module_checked(lk_module *module)
{
    if (!module || !module->failed) return module;
    lk_module_free(module);
    return NULL;
}

void lk_module_free(lk_module *module)
{
    if (!module) return;
    for (int i = 0; i < module->child_count; i++) {
        lk_module_free(module->children[i].module);
        lki_free(module->children[i].name);
    }
    for (int i = 0; i < module->param_count; i++) lk_param_free(module->params[i]);
    if (module->free_context) module->free_context(module->context);
    lki_free(module->children);
    lki_free(module->params);
    lki_free(module->name);
    lki_free(module->type);
    lki_free(module);
}

const char *lk_module_type(const lk_module *module)
{
    return module->type;
}

void *lk_module_context(const lk_module *module)
{
    return module->context;
}

void lki_module_note(lk_module *module, lk_status status)
{
    if (module && status != LK_OK) module->failed = true;
}

/* ---- children and parameters ---- */

/* A name is one step of a path: no dots. */
static lk_status check_name(const lk_module *module, const char *name)
{
    if (!name || !*name)
        return lki_fail(LK_ERR_INVALID, "%s: a child or parameter needs a name", module->type);
    if (strchr(name, '.'))
        return lki_fail(LK_ERR_INVALID, "%s: the name \"%s\" must not contain a dot", module->type, name);
    for (int i = 0; i < module->child_count; i++)
        if (strcmp(module->children[i].name, name) == 0)
            return lki_fail(LK_ERR_INVALID, "%s: there is already a child \"%s\"", module->type, name);
    for (int i = 0; i < module->param_count; i++)
        if (strcmp(module->params[i]->name, name) == 0)
            return lki_fail(LK_ERR_INVALID, "%s: there is already a parameter \"%s\"", module->type, name);
    return LK_OK;
}

static lk_status check_child(const lk_module *module, const char *name, const lk_module *child)
{
    LKI_TRY(check_name(module, name));
    if (child == module)
        return lki_fail(LK_ERR_INVALID, "%s: \"%s\" cannot be its own child", module->type, name);
    if (child->name)
        return lki_fail(LK_ERR_INVALID, "%s: \"%s\" (%s) is already the child \"%s\" of a module",
                        module->type, name, child->type, child->name);
    return LK_OK;
}

static lk_status append_child(lk_module *module, const char *name, lk_module *child)
{
    LKI_TRY(check_child(module, name, child));
    lki_child *grown =
        lki_realloc(module->children, sizeof *grown * (size_t)(module->child_count + 1), "children");
    if (!grown) return LK_ERR_NOMEM;
    module->children = grown;
    char *own_name = lki_strdup(name), *child_name = lki_strdup(name);
    if (!own_name || !child_name) {
        lki_free(own_name);
        lki_free(child_name);
        return LK_ERR_NOMEM;
    }
    child->name = child_name;
    grown[module->child_count++] = (lki_child){own_name, child};
    return LK_OK;
}

lk_status lk_module_add_child(lk_module *module, const char *name, lk_module *child_owned)
{
    lk_status status = LK_OK;
    if (!module || !child_owned)
        status = lki_last_status() ? lki_last_status() : lki_fail(LK_ERR_INVALID, "a module to add is NULL");
    else
        status = append_child(module, name, child_owned);
    /* A child of another module is that one's to free. */
    if (status != LK_OK && child_owned && child_owned != module && !child_owned->name)
        lk_module_free(child_owned);
    lki_module_note(module, status);
    return status;
}

static lk_status append_param(lk_module *module, lk_param *param)
{
    LKI_TRY(check_name(module, param->name));
    lk_param **grown =
        lki_realloc(module->params, sizeof *grown * (size_t)(module->param_count + 1), "parameters");
    if (!grown) return LK_ERR_NOMEM;
    module->params = grown;
    int place = module->param_count++;
    if (!param->is_buffer)
        for (; place > 0 && grown[place - 1]->is_buffer; place--) grown[place] = grown[place - 1];
    grown[place] = param;
    return LK_OK;
}

lk_status lk_module_add_param(lk_module *module, lk_param *param_owned)
{
    lk_status status = LK_OK;
    if (!module || !param_owned)
        status =
            lki_last_status() ? lki_last_status() : lki_fail(LK_ERR_INVALID, "a parameter to add is NULL");
    else
        status = append_param(module, param_owned);
    if (status != LK_OK) lk_param_free(param_owned);
    lki_module_note(module, status);
    return status;
}

lk_status lk_module_add_buffer(lk_module *module, lk_param *buffer_owned)
{
    if (buffer_owned) {
        buffer_owned->is_buffer = true;
        buffer_owned->trainable = false;
    }
    return lk_module_add_param(module, buffer_owned);
}

static lk_param *new_tensor(lk_module *module, const char *name, lk_dtype dtype, lk_shape shape,
                            bool is_buffer)
{
    if (!module || module->failed) return NULL;
    lk_tensor *value = lk_tensor_create(dtype, shape);
    lk_param *param = value ? lk_param_create(name, value, !is_buffer) : NULL;
    if (param) param->is_shown = false;
    lk_status status = is_buffer ? lk_module_add_buffer(module, param) : lk_module_add_param(module, param);
    return status == LK_OK ? param : NULL;
}

lk_param *lki_module_new_param(lk_module *module, const char *name, lk_shape shape)
{
    return new_tensor(module, name, LK_F32, shape, false);
}

lk_param *lki_module_new_buffer(lk_module *module, const char *name, lk_dtype dtype, lk_shape shape)
{
    return new_tensor(module, name, dtype, shape, true);
}

/* ---- recording ---- */

void lki_module_enter(lk_module *module, lk_graph *graph)
{
    lk_graph_push_scope(graph, module->name ? module->name : "", module->type);
}

lk_value *lki_module_leave(lk_module *module, lk_graph *graph, lk_value *output)
{
    lk_graph_pop_scope(graph);
    module->was_recorded = output != NULL;
    if (output) module->output_shape = lk_value_shape(output);
    return output;
}

lk_value *lk_module_forward(lk_module *module, lk_value *x)
{
    if (!x) return NULL;
    lk_graph *graph = lk_value_graph(x);
    if (!module)
        return lki_graph_fail(graph, lki_last_status() ? lki_last_status() : LK_ERR_INVALID,
                              "the module is NULL: %s", lk_error());
    lki_module_enter(module, graph);
    lk_value *output = module->forward
                           ? module->forward(module, x)
                           : lki_graph_fail(graph, LK_ERR_INVALID, "the module has no forward function");
    return lki_module_leave(module, graph, output);
}

lk_value *lki_module_chain(lk_module *module, lk_value *x)
{
    for (int i = 0; i < module->child_count; i++) x = lk_module_forward(module->children[i].module, x);
    return x;
}

lk_value *lki_module_value(const lk_module *module, lk_value *x, const char *name)
{
    for (int i = 0; i < module->param_count; i++)
        if (strcmp(module->params[i]->name, name) == 0)
            return lk_graph_param(lk_value_graph(x), module->params[i]);
    return NULL;
}

/* ---- copying ---- */

static lk_status clone_params(lk_module *copy, const lk_module *module)
{
    for (int i = 0; i < module->param_count; i++) {
        const lk_param *param = module->params[i];
        LKI_TRY(lki_param_pull(param));
        lk_tensor *value = lk_tensor_clone(param->value);
        lk_param *fresh = value ? lk_param_create(param->name, value, param->trainable) : NULL;
        if (fresh) {
            fresh->is_buffer = param->is_buffer;
            fresh->is_shown = false;
        }
        LKI_TRY(lk_module_add_param(copy, fresh));
    }
    return LK_OK;
}

lk_module *lk_module_clone(const lk_module *module)
{
    if (!module) return NULL;
    if (module->free_context && module->context_nbytes == 0)
        return lki_fail_null(LK_ERR_UNSUPPORTED,
                             "%s: a module that owns a context of its own kind cannot be cloned",
                             module->type);
    lk_module *copy =
        lki_module_create(module->type, module->forward, module->context, module->context_nbytes);
    if (!copy) return NULL;
    if (module->context_nbytes == 0) copy->context = module->context;
    lk_status status = clone_params(copy, module);
    lki_module_note(copy, status);
    for (int i = 0; i < module->child_count && status == LK_OK; i++)
        status =
            lk_module_add_child(copy, module->children[i].name, lk_module_clone(module->children[i].module));
    return lki_module_checked(copy);
}
