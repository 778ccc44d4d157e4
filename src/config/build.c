#include "config/build.h"

#include "base/memory.h"
#include "config/registry.h"
#include "base/suggest.h"

#include <lockstep/nn.h>

#include <stdio.h>
#include <string.h>

static lk_status visit(lki_plan *plan, lki_node *node, const lk_parameter *parameter);

lki_object *lki_node_object(const lki_node *node)
{
    return node ? node->object : NULL;
}

static lk_status fail_unknown(lki_place place, const char *key, const char *name)
{
    char where[LKI_PLACE_CAPACITY];
    lki_fail_unknown_component(name);
    return lki_fail_prefix(LK_ERR_CONFIG, "%s: %s", lki_place_text(place, where, sizeof where), key);
}

static lk_status find_component(const char *key, const lki_node *name, const lk_component **out)
{
    const char *text;
    LKI_TRY(lki_node_string(name, key, &text));
    const lk_component *component = lk_component_find(text);
    bool is_call = component && component->kind == LK_KIND_CALL;
    if (!component || is_call != !strcmp(key, "_call_")) return fail_unknown(name->place, key, text);
    *out = component;
    return LK_OK;
}

static lk_status check_mode(const lki_node *node, const lk_component *component)
{
    const lki_node *mode = lki_node_get(node, "_mode_");
    const char *text;
    if (lki_node_is_null(mode)) return LK_OK;
    LKI_TRY(lki_node_string(mode, "_mode_", &text));
    if (!strcmp(text, "auto") || !strcmp(text, "call")) return LK_OK;
    if (strcmp(text, "partial"))
        return lki_fail_at(mode->place, "_mode_: expected auto, call or partial, found \"%.60s\"", text);
    if (component->kind == LK_KIND_FUNCTION) return LK_OK;
    return lki_fail_at(mode->place, "_mode_: partial is for functions; %s is %s", component->name,
                       lki_kind_phrase(component->kind));
}

static lk_status new_object(lki_plan *plan, lki_node *node, const lk_component *component, const char *called,
                            lki_object **out)
{
    lki_object *object = LKI_ARENA_NEW(&plan->tree->arena, lki_object);
    if (!object) return LK_ERR_NOMEM;
    object->component = component;
    object->node = node;
    object->called = called;
    *out = object;
    return LK_OK;
}

void lki_plan_append(lki_plan *plan, lki_object *object)
{
    if (plan->last)
        plan->last->next = object;
    else
        plan->first = object;
    plan->last = object;
    object->node->object = object;
}

/* A list, or a map that stands for no object itself. */
static bool is_group(const lki_node *node)
{
    return node->kind != LKI_NODE_SCALAR && !lki_node_get(node, "_target_") && !lki_node_get(node, "_var_");
}

/* The parameter that a value of the component's map is for; NULL for `_target_` and its kin. *is_item: the
 * value is one of several for the same parameter. */
static const lk_parameter *parameter_of_value(const lki_object *object, const lki_node *value, bool *is_item)
{
    *is_item = false;
    const lk_parameter *parameters = object->component->parameters;
    for (int i = 0; parameters && parameters[i].name; i++) {
        const lki_node *mine = object->values[i];
        if (mine == value) return &parameters[i];
        if (!mine || mine->kind != LKI_NODE_LIST) continue;
        for (int k = 0; k < mine->count; k++)
            if (mine->entries[k].value == value) return *is_item = true, &parameters[i];
    }
    return NULL;
}

/* The children of a component in file order. Positional and keyword arguments stand one level deeper. */
static lk_status visit_children(lki_plan *plan, lki_object *object, lki_node *node)
{
    for (int i = 0; i < node->count; i++) {
        lki_node *value = node->entries[i].value;
        bool is_item;
        const lk_parameter *parameter = parameter_of_value(object, value, &is_item);
        if (!parameter && value->kind != LKI_NODE_SCALAR)
            LKI_TRY(visit_children(plan, object, value));
        else if (parameter && parameter->type != LK_PARAMETER_ANY)
            LKI_TRY(visit(plan, value, is_item && is_group(value) ? NULL : parameter));
    }
    return LK_OK;
}

static lk_status visit_component(lki_plan *plan, lki_node *node, const lk_component *component,
                                 const char *called)
{
    const lki_node *var = lki_node_get(node, "_var_");
    lki_object *object = NULL;
    LKI_TRY(check_mode(node, component));
    LKI_TRY(new_object(plan, node, component, called, &object));
    if (!lki_node_is_null(var)) LKI_TRY(lki_node_string(var, "_var_", &object->var));
    LKI_TRY(lki_object_bind(plan, object));
    LKI_TRY(visit_children(plan, object, node));
    LKI_TRY(lki_object_check(object));
    lki_plan_append(plan, object);
    return LK_OK;
}

static lk_status visit_target(lki_plan *plan, lki_node *node, const char *key)
{
    const lki_node *name = lki_node_get(node, key);
    const lk_component *component = NULL;
    LKI_TRY(find_component(key, name, &component));
    return visit_component(plan, node, component, name->text);
}

/* `{_var_: name}` or `{_var_: name.attribute}`. The latest object of that name is meant, as in a script. */
static lk_status visit_reference(lki_plan *plan, lki_node *node)
{
    const char *text;
    lki_suggestion near = {0};
    char hint[160];
    node->attribute = NULL;
    LKI_TRY(lki_node_string(lki_node_get(node, "_var_"), "_var_", &text));
    if (!strncmp(text, "trial.suggest_", 14))
        return lki_fail_at(node->place, "_var_: %s is for `lockstep tune`", text);
    if (node->count > 1) {
        const lki_entry *other = &node->entries[!strcmp(node->entries[0].key, "_var_")];
        return lki_fail_at(other->place,
                           "_var_: a reference takes no \"%s\"; add _target_ to build an object", other->key);
    }
    size_t length = strcspn(text, ".");
    near.wanted = lki_arena_format(&plan->tree->arena, "%.*s", (int)length, text);
    if (!near.wanted) return LK_ERR_NOMEM;
    for (lki_object *object = plan->first; object; object = object->next) {
        if (!object->var) continue;
        if (!strcmp(object->var, near.wanted)) node->object = object;
        lki_suggest_offer(&near, object->var);
    }
    if (!node->object)
        return lki_fail_at(node->entries[0].place, "_var_: nothing before this is named \"%s\"%s",
                           near.wanted, lki_suggest_text(&near, hint, sizeof hint));
    if (text[length] == '.') node->attribute = text + length + 1;
    return LK_OK;
}

static bool takes_objects(const lk_parameter *parameter)
{
    return parameter && (parameter->type == LK_PARAMETER_OBJECT || parameter->type == LK_PARAMETER_OBJECTS);
}

/* `criterion: MSELoss`: the name of a component where an object is asked for. */
static lk_status visit_name(lki_plan *plan, lki_node *node, const lk_parameter *parameter)
{
    lki_object *object;
    if (!takes_objects(parameter) || lki_node_is_null(node)) return LK_OK;
    const lk_component *component = lk_component_find(node->text);
    if (!component || component->kind == LK_KIND_CALL) {
        if (parameter->takes_paths) return LK_OK;
        return fail_unknown(node->place, parameter->name, node->text);
    }
    LKI_TRY(new_object(plan, node, component, node->text, &object));
    LKI_TRY(lki_object_bind(plan, object));
    lki_plan_append(plan, object);
    return LK_OK;
}

static lk_status visit(lki_plan *plan, lki_node *node, const lk_parameter *parameter);

/* An item of a map with keys of its own may be the map that a component is implied by. */
static lk_status visit_item(lki_plan *plan, lki_node *item, const lk_parameter *parameter)
{
    bool is_named = lki_node_get(item, "_target_") || lki_node_get(item, "_var_");
    if (item->kind != LKI_NODE_MAP || is_named || !parameter || !parameter->takes_keys || !parameter->implied)
        return visit(plan, item, parameter);
    item->object = NULL;
    return visit_component(plan, item, lk_component_find(parameter->implied), parameter->implied);
}

static lk_status visit(lki_plan *plan, lki_node *node, const lk_parameter *parameter)
{
    node->object = NULL; /* of an earlier plan */
    if (node->kind == LKI_NODE_SCALAR) return visit_name(plan, node, parameter);
    if (lki_node_get(node, "_target_")) return visit_target(plan, node, "_target_");
    if (lki_node_get(node, "_var_")) return visit_reference(plan, node);
    if (node->kind == LKI_NODE_MAP && parameter && parameter->implied && !parameter->takes_keys)
        return visit_component(plan, node, lk_component_find(parameter->implied), parameter->implied);
    /* The items of a list of objects may be names; what lies deeper may not. */
    const lk_parameter *inner = parameter && parameter->type == LK_PARAMETER_OBJECTS ? parameter : NULL;
    for (int i = 0; i < node->count; i++) {
        lki_node *item = node->entries[i].value;
        bool is_deeper = is_group(item) && !(inner && inner->implied);
        LKI_TRY(visit_item(plan, item, is_deeper ? NULL : inner));
    }
    return LK_OK;
}

static lk_status visit_calls(lki_plan *plan, lki_node *run)
{
    char found[LKI_DESCRIBE_CAPACITY];
    if (run->kind != LKI_NODE_LIST)
        return lki_fail_at(run->place, "run: expected a list of calls, found %s",
                           lki_node_describe(run, found, sizeof found));
    for (int i = 0; i < run->count; i++) {
        lki_node *call = run->entries[i].value;
        if (call->kind != LKI_NODE_MAP || !lki_node_get(call, "_call_"))
            return lki_fail_at(
                call->place,
                "run: each item is a call of the runner and needs _call_, as in `_call_: train`");
        LKI_TRY(visit_target(plan, call, "_call_"));
    }
    return LK_OK;
}

lk_status lki_plan_make(lki_plan *plan)
{
    lki_node *root = plan->tree->root;
    if (!root) return lki_fail(LK_ERR_CONFIG, "the config is empty");
    for (int i = 0; i < root->count; i++) {
        lki_entry *entry = &root->entries[i];
        if (!strcmp(entry->key, "run"))
            LKI_TRY(visit_calls(plan, entry->value));
        else
            LKI_TRY(visit(plan, entry->value, NULL));
    }
    return LK_OK;
}

lk_status lki_object_build(lki_plan *plan, lki_object *object)
{
    lk_args args = {.plan = plan, .object = object};
    void *pointer = NULL;
    lki_place_text(object->node->place, args.place, sizeof args.place);
    lk_status status = object->component->build(object->component, &args, &pointer);
    if (args.status) {
        /* A reader failed and has said where; what the builder made of it all the same is not what the config
         * says. */
        lki_component_dispose(object->component, pointer);
        return args.status;
    }
    if (status == LK_ERR_STOPPED) return status; /* nothing is wrong with the config */
    if (status) return lki_fail_prefix(status, "%s: %s", args.place, object->called);
    if (object->checkpoint) lk_module_checkpoint(pointer);
    object->pointer = pointer;
    object->built = true;
    object->taken = false;
    return LK_OK;
}

lk_status lki_plan_keep(lki_plan *plan, const char *key, void *object, void (*free)(void *object))
{
    lki_kept *kept = LKI_ARENA_NEW(&plan->tree->arena, lki_kept);
    if (!kept) {
        free(object);
        return LK_ERR_NOMEM;
    }
    *kept = (lki_kept){.next = plan->kept, .key = key, .object = object, .free = free};
    plan->kept = kept;
    return LK_OK;
}

void *lki_plan_kept(const lki_plan *plan, const char *key)
{
    for (const lki_kept *kept = plan->kept; kept; kept = kept->next)
        if (!strcmp(kept->key, key)) return kept->object;
    return NULL;
}

lk_status lki_plan_build(lki_plan *plan)
{
    lk_status status = LK_OK;
    for (lki_object *object = plan->first; object && !status; object = object->next)
        if (object->component->kind != LK_KIND_CALL && !object->is_given)
            status = lki_object_build(plan, object);
    for (lki_kept *kept = plan->kept; kept; kept = kept->next) kept->free(kept->object);
    plan->kept = NULL;
    return status;
}

void lki_plan_fini(lki_plan *plan)
{
    /* Parents come after children: what a parent holds has been taken and is freed with it. */
    for (lki_object *object = plan->first; object; object = object->next)
        if (object->built && !object->taken && !object->is_given)
            lki_component_dispose(object->component, object->pointer);
    plan->first = plan->last = NULL;
}
