/* Copies of modules. What is shared in the original is shared in the copy. */
#include "nn/module.h"

#include "base/memory.h"
#include "base/status.h"
#include "graph/home.h"

#include <string.h>

/* Copies of what has several holders, so that the next place gets the same one. */
typedef struct copies {
    struct {
        const void *original;
        void *copy;
    } * items;
    int count;
} copies;

static void *find_copy(const copies *known, const void *original)
{
    for (int i = 0; i < known->count; i++)
        if (known->items[i].original == original) return known->items[i].copy;
    return NULL;
}

static lk_status remember(copies *known, const void *original, void *copy)
{
    void *grown = lki_realloc(known->items, sizeof *known->items * (size_t)(known->count + 1), "copies");
    if (!grown) return LK_ERR_NOMEM;
    known->items = grown;
    known->items[known->count].original = original;
    known->items[known->count++].copy = copy;
    return LK_OK;
}

static lk_param *clone_param(const lk_param *param, copies *known)
{
    if (lki_param_pull(param) != LK_OK) return NULL;
    lk_tensor *value = lk_tensor_clone(param->value);
    lk_param *fresh = value ? lk_param_create(param->name, value, param->trainable) : NULL;
    if (!fresh) return NULL;
    fresh->is_buffer = param->is_buffer;
    fresh->steers = param->steers;
    fresh->is_computed = param->is_computed;
    fresh->is_shown = false;
    if (param->holder_count > 1 && remember(known, param, fresh) != LK_OK) {
        lk_param_free(fresh);
        return NULL;
    }
    return fresh;
}

static lk_status clone_params(lk_module *copy, const lk_module *module, copies *known)
{
    copy->params = LKI_NEW_ARRAY(lki_own_param, module->param_count + 1);
    if (!copy->params) return LK_ERR_NOMEM;
    for (int i = 0; i < module->param_count; i++) {
        lki_own_param *own = &copy->params[i];
        lk_param *shared = find_copy(known, module->params[i].param);
        own->param = shared ? lk_param_share(shared) : clone_param(module->params[i].param, known);
        copy->param_count = i + 1;
        own->name = lki_strdup(module->params[i].name);
        if (!own->param || !own->name) return lki_last_status() ? lki_last_status() : LK_ERR_NOMEM;
    }
    return LK_OK;
}

static lk_status clone_hooks(lk_module *copy, const lk_module *module)
{
    if (!module->hook_count) return LK_OK;
    copy->hooks = LKI_NEW_ARRAY(lki_hook, module->hook_count);
    if (!copy->hooks) return LK_ERR_NOMEM;
    memcpy(copy->hooks, module->hooks, sizeof *copy->hooks * (size_t)module->hook_count);
    copy->hook_count = module->hook_count;
    return LK_OK;
}

static lk_module *clone(const lk_module *module, copies *known)
{
    lk_module *shared = find_copy(known, module);
    if (shared) return lk_module_share(shared);
    if (module->free_context && module->context_nbytes == 0)
        return lki_fail_null(LK_ERR_UNSUPPORTED,
                             "%s: a module that owns a context of its own kind cannot be cloned",
                             module->type);
    lk_module *copy =
        lki_module_create(module->type, module->forward, module->context, module->context_nbytes);
    if (!copy) return NULL;
    copy->call = module->call;
    copy->input_count = module->input_count;
    copy->output_count = module->output_count;
    copy->required_inputs = module->required_inputs;
    copy->input_names = module->input_names;
    copy->is_checkpointed = module->is_checkpointed;
    if (module->context_nbytes == 0) copy->context = module->context;
    lk_status status = clone_params(copy, module, known);
    if (status == LK_OK) status = clone_hooks(copy, module);
    for (int i = 0; i < module->child_count && status == LK_OK; i++)
        status =
            lk_module_add_child(copy, module->children[i].name, clone(module->children[i].module, known));
    if (status == LK_OK && module->holder_count > 1) status = remember(known, module, copy);
    lki_module_note(copy, status);
    return lki_module_checked(copy);
}

lk_module *lk_module_clone(const lk_module *module)
{
    copies known = {0};
    lk_module *copy = module ? clone(module, &known) : NULL;
    lki_free(known.items);
    return copy;
}
