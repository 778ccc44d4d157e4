/* Modules with several inputs, and those that give one input to several modules. */
#include "nn/nodes.h"

#include "base/memory.h"
#include "base/status.h"
#include "graph/graph.h"

#include <stdio.h>
#include <string.h>

bool lki_module_takes_several(const lk_module *module)
{
    return module->call && module->input_count != 1;
}

lk_module *lki_module_of_several(const char *type, lk_module_call_function call, int input_count,
                                 const void *context, size_t nbytes)
{
    lk_module *module = lki_module_create(type, NULL, context, nbytes);
    if (!module) return NULL;
    module->call = call;
    module->input_count = input_count;
    module->output_count = 1;
    return module;
}

lk_module *lki_module_of_named(const char *type, lk_module_call_function call, const char *names,
                               int required, const void *context, size_t nbytes)
{
    int count = 1;
    for (const char *at = names; (at = strchr(at, ' ')); at++) count++;
    lk_module *module = lki_module_of_several(type, call, count, context, nbytes);
    if (!module) return NULL;
    module->required_inputs = required;
    module->input_names = names;
    return module;
}

/* ---- arithmetic ---- */

typedef struct arithmetic {
    lk_value *(*op)(lk_value *a, lk_value *b);
} arithmetic;

static lk_status arithmetic_call(lk_module *module, lk_value *const *inputs, int count, lk_value **outputs,
                                 int output_count)
{
    const arithmetic *own = module->context;
    (void)output_count;
    outputs[0] = inputs[0];
    for (int i = 1; i < count; i++) outputs[0] = own->op(outputs[0], inputs[i]);
    return LK_OK;
}

static lk_module *make_arithmetic(const char *type, lk_value *(*op)(lk_value *a, lk_value *b),
                                  int input_count)
{
    return lki_module_of_several(type, arithmetic_call, input_count, &(arithmetic){op}, sizeof(arithmetic));
}

lk_module *lk_add(void)
{
    return make_arithmetic("Add", lk_op_add, 0);
}

lk_module *lk_sub(void)
{
    return make_arithmetic("Sub", lk_op_sub, 2);
}

lk_module *lk_mul(void)
{
    return make_arithmetic("Mul", lk_op_mul, 0);
}

lk_module *lk_div(void)
{
    return make_arithmetic("Div", lk_op_div, 2);
}

lk_module *lk_matmul(void)
{
    return make_arithmetic("Matmul", lk_op_matmul, 2);
}

typedef struct join {
    lk_value *(*op)(lk_value *const *values, int count, int axis);
    int dim;
} join;

static lk_status join_call(lk_module *module, lk_value *const *inputs, int count, lk_value **outputs,
                           int output_count)
{
    const join *own = module->context;
    (void)output_count;
    outputs[0] = own->op(inputs, count, own->dim);
    return LK_OK;
}

lk_module *lk_cat(int dim)
{
    return lki_module_of_several("Concat", join_call, 0, &(join){lk_op_concat, dim}, sizeof(join));
}

lk_module *lk_stack(int dim)
{
    return lki_module_of_several("Stack", join_call, 0, &(join){lk_op_stack, dim}, sizeof(join));
}

/* ---- one input for several modules ---- */

/* The last child joins what the others give. */
static lk_value *parallel_forward(lk_module *module, lk_value *x)
{
    int count = module->child_count - 1;
    lk_value **values = LKI_NEW_ARRAY(lk_value *, count);
    if (!values) return NULL;
    for (int i = 0; i < count; i++) values[i] = lk_module_forward(module->children[i].module, x);
    lk_value *output = NULL;
    lk_status status = lk_module_call(module->children[count].module, values, count, &output, 1);
    lki_free(values);
    return status ? NULL : output;
}

/* shortcut(x) + f(x); the shortcut is the last child. */
static lk_value *shortcut_forward(lk_module *module, lk_value *x)
{
    lk_value *y = x;
    int count = module->child_count - 1;
    for (int i = 0; i < count; i++) y = lk_module_forward(module->children[i].module, y);
    return lk_op_add(lk_module_forward(module->children[count].module, x), y);
}

static void free_all(lk_module *last, lk_module *const *modules, int count)
{
    lki_free_modules(&last, 1);
    lki_free_modules(modules, count);
}

/* Modules "0", "1", ..., then one more under a name. */
static lk_module *numbered_and(const char *type, lk_module_function forward, const char *last_name,
                               lk_module *last, lk_module *const *modules, int count)
{
    bool whole = last != NULL;
    for (int i = 0; i < count; i++) whole = whole && modules[i];
    lk_module *module = NULL;
    if (whole && count < 1)
        lki_fail(LK_ERR_INVALID, "%s: expected at least one module", type);
    else if (whole)
        module = lki_module_create(type, forward, NULL, 0);
    else if (!lki_last_status())
        lki_fail(LK_ERR_INVALID, "%s: a module is NULL", type);
    if (!module) {
        free_all(last, modules, count);
        return NULL;
    }
    int added = 0;
    for (lk_status status = LK_OK; added < count && !status; added++) {
        char name[16];
        snprintf(name, sizeof name, "%d", added);
        status = lk_module_add_child(module, name, modules[added]);
    }
    if (module->failed)
        free_all(last, modules + added, count - added);
    else
        lk_module_add_child(module, last_name, last);
    return lki_module_checked(module);
}

lk_module *lk_parallel_with(lk_module *join, lk_module *const *modules, int count)
{
    if (join && !lki_module_takes_several(join)) {
        lki_fail(LK_ERR_INVALID, "Parallel: %s does not take several inputs; join with Concat or Add",
                 join->type);
        free_all(join, modules, count);
        return NULL;
    }
    return numbered_and("Parallel", parallel_forward, "join", join, modules, count);
}

lk_module *lk_shortcut_with(lk_module *shortcut, lk_module *const *modules, int count)
{
    return numbered_and("Residual", shortcut_forward, "shortcut", shortcut, modules, count);
}
