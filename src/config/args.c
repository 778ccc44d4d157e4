/* What a build function reads. The values were checked by bind.c; only a table that lies about itself can
 * fail here. */
#include "config/build.h"

#include "config/registry.h"

#include <stdio.h>
#include <string.h>

static lki_node *value_of(lk_args *args, const char *name, int *index)
{
    *index = lki_component_parameter_index(args->object->component, name);
    if (*index >= 0) return args->object->values[*index];
    if (!args->status)
        args->status =
            lki_fail(LK_ERR_INVALID, "component %s reads \"%s\", which is not among its parameters",
                     args->object->component->name, name);
    return NULL;
}

/* The i-th of a list or map; a single value is the first of one. */
static lki_node *item_of(lk_args *args, const char *name, int index)
{
    int parameter;
    lki_node *value = value_of(args, name, &parameter);
    if (!value) return NULL;
    if (value->kind == LKI_NODE_SCALAR || value->object) return index == 0 ? value : NULL;
    return index >= 0 && index < value->count ? value->entries[index].value : NULL;
}

bool lk_arg_given(lk_args *args, const char *name)
{
    int index;
    value_of(args, name, &index);
    return index >= 0 && args->object->given[index];
}

int lk_arg_count(lk_args *args, const char *name)
{
    int index;
    const lki_node *value = value_of(args, name, &index);
    if (!value) return 0;
    return value->kind == LKI_NODE_SCALAR || value->object ? 1 : value->count;
}

bool lk_arg_is_list(lk_args *args, const char *name)
{
    int index;
    const lki_node *value = value_of(args, name, &index);
    return value && value->kind == LKI_NODE_LIST;
}

int64_t lk_arg_int64(lk_args *args, const char *name)
{
    const lki_node *item = item_of(args, name, 0);
    int64_t value = 0;
    if (item) lki_node_int(item, name, &value);
    return value;
}

int lk_arg_int_at(lk_args *args, const char *name, int index)
{
    const lki_node *item = item_of(args, name, index);
    int64_t value = 0;
    if (item) lki_node_int(item, name, &value);
    return (int)value;
}

int lk_arg_int(lk_args *args, const char *name)
{
    return lk_arg_int_at(args, name, 0);
}

double lk_arg_float_at(lk_args *args, const char *name, int index)
{
    const lki_node *item = item_of(args, name, index);
    double value = 0;
    if (item) lki_node_float(item, name, &value);
    return value;
}

double lk_arg_float(lk_args *args, const char *name)
{
    return lk_arg_float_at(args, name, 0);
}

bool lk_arg_is_null_at(lk_args *args, const char *name, int index)
{
    const lki_node *item = item_of(args, name, index);
    return item && lki_node_is_null(item);
}

bool lk_arg_bool(lk_args *args, const char *name)
{
    const lki_node *item = item_of(args, name, 0);
    bool value = false;
    if (item) lki_node_bool(item, name, &value);
    return value;
}

const char *lk_arg_string_at(lk_args *args, const char *name, int index)
{
    const lki_node *item = item_of(args, name, index);
    return item && item->kind == LKI_NODE_SCALAR ? item->text : NULL;
}

const char *lk_arg_string(lk_args *args, const char *name)
{
    return lk_arg_string_at(args, name, 0);
}

static lki_object *object_at(lk_args *args, const char *name, int index)
{
    return lki_node_object(item_of(args, name, index));
}

/* Modules and their kin have an identity: two of them are not the same as one used twice. */
static bool can_be_built_again(lk_component_kind kind)
{
    return kind != LK_KIND_MODULE && kind != LK_KIND_OPTIMIZER && kind != LK_KIND_SCHEDULER &&
           kind != LK_KIND_RUNNER;
}

/* An object that is used a second time: another one of the same making. */
static void *take_again(lk_args *args, lki_object *object)
{
    if (can_be_built_again(object->component->kind) && !object->is_given)
        args->status = lki_object_build(args->plan, object);
    else
        args->status = lki_fail_at(object->node->place, "%s: this %s is used in two places", object->called,
                                   lk_component_kind_name(object->component->kind));
    object->taken = true;
    return args->status ? NULL : object->pointer;
}

void *lk_arg_take_at(lk_args *args, const char *name, int index)
{
    lki_object *object = object_at(args, name, index);
    if (!object || args->status) return NULL;
    void *shared = lki_component_share(object->component, object->pointer);
    if (shared) return shared;
    if (object->taken) return take_again(args, object);
    object->taken = true;
    return object->pointer;
}

void *lk_arg_take(lk_args *args, const char *name)
{
    return lk_arg_take_at(args, name, 0);
}

void *lk_arg_peek_at(lk_args *args, const char *name, int index)
{
    lki_object *object = object_at(args, name, index);
    return object ? object->pointer : NULL;
}

void *lk_arg_peek(lk_args *args, const char *name)
{
    return lk_arg_peek_at(args, name, 0);
}

const char *lk_arg_key_at(lk_args *args, const char *name, int index)
{
    int parameter;
    const lki_node *value = value_of(args, name, &parameter);
    if (!value || value->kind != LKI_NODE_MAP || value->object || index < 0 || index >= value->count)
        return NULL;
    return value->entries[index].key;
}

const char *lk_arg_component_at(lk_args *args, const char *name, int index)
{
    const lki_object *object = object_at(args, name, index);
    return object ? object->component->name : NULL;
}

const char *lk_arg_path_at(lk_args *args, const char *name, int index)
{
    const lki_node *item = item_of(args, name, index);
    return item && item->kind == LKI_NODE_SCALAR && !item->object ? item->text : NULL;
}

const char *lk_args_place(lk_args *args)
{
    return args->place;
}

struct lk_runner *lk_args_runner(lk_args *args)
{
    return args->plan->runner ? args->plan->runner->pointer : NULL;
}

lki_object *lki_object_argument(const lki_object *object, const char *name, int index)
{
    int parameter = lki_component_parameter_index(object->component, name);
    const lki_node *value = parameter >= 0 ? object->values[parameter] : NULL;
    if (!value || value->kind == LKI_NODE_SCALAR || value->object)
        return index == 0 ? lki_node_object(value) : NULL;
    return index < value->count ? lki_node_object(value->entries[index].value) : NULL;
}

const char *lki_object_key(const lki_object *object, const char *name, int index)
{
    int parameter = lki_component_parameter_index(object->component, name);
    const lki_node *value = parameter >= 0 ? object->values[parameter] : NULL;
    if (!value || value->kind != LKI_NODE_MAP || value->object || index >= value->count) return NULL;
    return value->entries[index].key;
}
