#include "nn/init.h"

#include "base/memory.h"
#include "base/status.h"
#include "graph/graph.h"
#include "graph/home.h"
#include "tensor/buffer.h"

#include <math.h>
#include <string.h>

lk_module *lki_module_create(const char *type, lk_module_function forward, const void *context,
                             size_t context_nbytes)
{
    lk_module *module = LKI_NEW(lk_module);
    if (!module) return NULL;
    module->type = lki_strdup(type);
    module->holder_count = 1;
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
    if (!module || --module->holder_count > 0) return;
    for (int i = 0; i < module->child_count; i++) {
        module->children[i].module->place_count--;
        lk_module_free(module->children[i].module);
        lki_free(module->children[i].name);
    }
    for (int i = 0; i < module->param_count; i++) {
        lk_param_free(module->params[i].param);
        lki_free(module->params[i].name);
    }
    if (module->free_context) module->free_context(module->context);
    lki_free(module->children);
    lki_free(module->params);
    lki_free(module->hooks);
    lki_free(module->name);
    lki_free(module->type);
    lki_free(module);
}

lk_module *lk_module_share(lk_module *module)
{
    if (module) module->holder_count++;
    return module;
}

lk_module *lk_module_checkpoint(lk_module *module)
{
    if (module) module->is_checkpointed = true;
    return module;
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
        if (strcmp(module->params[i].name, name) == 0)
            return lki_fail(LK_ERR_INVALID, "%s: there is already a parameter \"%s\"", module->type, name);
    return LK_OK;
}

static bool contains(const lk_module *module, const lk_module *part)
{
    if (module == part) return true;
    for (int i = 0; i < module->child_count; i++)
        if (contains(module->children[i].module, part)) return true;
    return false;
}

static lk_status check_child(const lk_module *module, const char *name, const lk_module *child)
{
    LKI_TRY(check_name(module, name));
    if (child == module)
        return lki_fail(LK_ERR_INVALID, "%s: \"%s\" cannot be its own child", module->type, name);
    if (child->place_count >= child->holder_count)
        return lki_fail(LK_ERR_INVALID,
                        "%s: \"%s\" (%s) is already the child \"%s\" of a module: hand over "
                        "lk_module_share(module) to use it twice",
                        module->type, name, child->type, child->name);
    if (contains(child, module))
        return lki_fail(LK_ERR_INVALID, "%s: \"%s\" (%s) contains this module: modules cannot form a circle",
                        module->type, name, child->type);
    return LK_OK;
}

static lk_status append_child(lk_module *module, const char *name, lk_module *child)
{
    LKI_TRY(check_child(module, name, child));
    lki_child *grown =
        lki_realloc(module->children, sizeof *grown * (size_t)(module->child_count + 1), "children");
    if (!grown) return LK_ERR_NOMEM;
    module->children = grown;
    char *own_name = lki_strdup(name);
    if (own_name && !child->name) child->name = lki_strdup(name);
    if (!own_name || !child->name) {
        lki_free(own_name);
        return LK_ERR_NOMEM;
    }
    child->place_count++;
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
    if (status != LK_OK && child_owned && child_owned != module &&
        child_owned->place_count < child_owned->holder_count)
        lk_module_free(child_owned);
    lki_module_note(module, status);
    return status;
}

static lk_status append_param(lk_module *module, lk_param *param)
{
    LKI_TRY(check_name(module, param->name));
    lki_own_param *grown =
        lki_realloc(module->params, sizeof *grown * (size_t)(module->param_count + 1), "parameters");
    if (!grown) return LK_ERR_NOMEM;
    module->params = grown;
    char *name = lki_strdup(param->name);
    if (!name) return LK_ERR_NOMEM;
    int place = module->param_count++;
    if (!param->is_buffer)
        for (; place > 0 && grown[place - 1].param->is_buffer; place--) grown[place] = grown[place - 1];
    grown[place] = (lki_own_param){name, param};
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

/* As lk_tensor_create, but pages that nobody writes to take no memory. */
static lk_tensor *unwritten_tensor(lk_dtype dtype, lk_shape shape)
{
    if (lki_shape_check(dtype, shape)) return NULL;
    size_t nbytes = (size_t)lk_shape_count(shape) * lk_dtype_nbytes(dtype);
    if (nbytes < 1 << 20) return lk_tensor_create(dtype, shape);
    void *data = lki_alloc_aligned(nbytes, "a parameter");
    lk_buffer *buffer = data ? lki_buffer_adopt(data, nbytes, NULL, NULL) : NULL;
    if (!buffer) {
        lki_free(data);
        return NULL;
    }
    lk_tensor *tensor = lki_tensor_over(buffer, 0, dtype, shape);
    lki_buffer_release(buffer);
    return tensor;
}

static lk_param *new_tensor(lk_module *module, const char *name, lk_dtype dtype, lk_shape shape,
                            bool is_buffer)
{
    if (!module || module->failed) return NULL;
    lk_tensor *value = lki_init_skipped() ? unwritten_tensor(dtype, shape) : lk_tensor_create(dtype, shape);
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
