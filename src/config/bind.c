/* A component's arguments against its table of parameters. */
#include "config/build.h"

#include "base/suggest.h"
#include "config/components/components.h"
#include "config/registry.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* Keys that are about the object, not for it. */
static bool is_reserved(const char *key)
{
    return !strcmp(key, "_target_") || !strcmp(key, "_call_") || !strcmp(key, "_var_") ||
           !strcmp(key, "_mode_");
}

/* `checkpoint`, which every module takes beside the keys of its own. */
static bool is_checkpoint(const lki_object *object, const char *key)
{
    return object->component->kind == LK_KIND_MODULE && !strcmp(key, "checkpoint") &&
           lki_component_parameter_index(object->component, key) < 0;
}

static lk_status fail_unknown_key(const lki_object *object, const lki_entry *entry)
{
    const lk_parameter *parameters = object->component->parameters;
    lki_suggestion near = {.wanted = entry->key};
    char hint[160];
    for (int i = 0; parameters && parameters[i].name; i++) lki_suggest_offer(&near, parameters[i].name);
    return lki_fail_at(entry->place, "%s: unknown key \"%.100s\"%s", object->called, entry->key,
                       lki_suggest_text(&near, hint, sizeof hint));
}

static lk_status set_value(lki_object *object, bool *given, int index, lki_place place, lki_node *value)
{
    if (given[index])
        return lki_fail_at(place, "%s: \"%s\" is given twice", object->called,
                           object->component->parameters[index].name);
    /* null is "left out" where there is no default; elsewhere it would be a value of the wrong type. */
    const lk_parameter *parameter = &object->component->parameters[index];
    bool has_default = parameter->default_value && *parameter->default_value;
    if (lki_node_is_null(value) && !has_default && !parameter->takes_null) return LK_OK;
    object->values[index] = value;
    given[index] = true;
    return LK_OK;
}

/* `args:` in positional order; what is left over goes to the parameter that takes the rest. */
static lk_status bind_positional(lki_plan *plan, lki_object *object, bool *given, const lki_entry *entry)
{
    const lk_component *component = object->component;
    lki_node *list = entry->value, *remaining = NULL;
    int rest = component->rest ? lki_component_parameter_index(component, component->rest) : -1;
    int positional = rest >= 0 ? rest : lki_component_parameter_count(component);
    if (list->kind == LKI_NODE_MAP && rest >= 0) return set_value(object, given, rest, entry->place, list);
    if (list->kind != LKI_NODE_LIST)
        return lki_fail_at(entry->place, "args: expected a list of positional arguments");
    for (int i = 0; i < list->count; i++) {
        const lki_entry *item = &list->entries[i];
        if (i < positional) {
            LKI_TRY(set_value(object, given, i, item->place, item->value));
            continue;
        }
        if (rest < 0)
            return lki_fail_at(item->place, "%s: takes at most %d positional arguments", object->called,
                               positional);
        if (!remaining) {
            remaining = lki_node_create(plan->tree, LKI_NODE_LIST, list->place);
            if (!remaining) return lki_last_status();
            LKI_TRY(set_value(object, given, rest, list->place, remaining));
        }
        LKI_TRY(lki_node_add(plan->tree, remaining, NULL, item->place, item->value));
    }
    return LK_OK;
}

/* A key that is not in the table, for a component that takes any. */
static lk_status bind_extra(lki_plan *plan, lki_object *object, bool *given, const lki_entry *entry)
{
    int index = lki_component_parameter_index(object->component, object->component->extra);
    if (!object->values[index]) {
        lki_node *map = lki_node_create(plan->tree, LKI_NODE_MAP, entry->place);
        if (!map) return lki_last_status();
        LKI_TRY(set_value(object, given, index, entry->place, map));
    }
    return lki_node_add(plan->tree, object->values[index], entry->key, entry->place, entry->value);
}

static lk_status bind_keywords(lki_plan *plan, lki_object *object, bool *given, const lki_node *map,
                               bool is_outer)
{
    for (int i = 0; i < map->count; i++) {
        const lki_entry *entry = &map->entries[i];
        if (is_outer && is_reserved(entry->key)) continue;
        if (is_outer && !strcmp(entry->key, "args")) {
            LKI_TRY(bind_positional(plan, object, given, entry));
            continue;
        }
        if (is_outer && is_checkpoint(object, entry->key)) {
            LKI_TRY(lki_node_bool(entry->value, "checkpoint", &object->checkpoint));
            continue;
        }
        int index = lki_component_parameter_index(object->component, entry->key);
        if (index >= 0) {
            LKI_TRY(set_value(object, given, index, entry->place, entry->value));
            continue;
        }
        if (!is_outer || strcmp(entry->key, "kwargs")) {
            if (!object->component->extra) return fail_unknown_key(object, entry);
            LKI_TRY(bind_extra(plan, object, given, entry));
            continue;
        }
        if (entry->value->kind != LKI_NODE_MAP) return lki_fail_at(entry->place, "kwargs: expected a map");
        LKI_TRY(bind_keywords(plan, object, given, entry->value, false));
    }
    return LK_OK;
}

static lk_status fill_default(lki_plan *plan, lki_object *object, int index)
{
    const lk_parameter *parameter = &object->component->parameters[index];
    if (!parameter->default_value)
        return lki_fail_at(object->node->place, "%s: \"%s\" is missing", object->called, parameter->name);
    if (!*parameter->default_value) return LK_OK;
    if (*parameter->default_value == '[')
        return lki_tree_read_value(plan->tree, "default", parameter->default_value, &object->values[index]);
    lki_node *node = lki_node_create(plan->tree, LKI_NODE_SCALAR, (lki_place){.file = "default"});
    if (!node) return lki_last_status();
    node->text = parameter->default_value;
    object->values[index] = node;
    return LK_OK;
}

lk_status lki_object_bind(lki_plan *plan, lki_object *object)
{
    int count = lki_component_parameter_count(object->component);
    object->values = LKI_ARENA_NEW_ARRAY(&plan->tree->arena, lki_node *, count + 1);
    bool *given = LKI_ARENA_NEW_ARRAY(&plan->tree->arena, bool, count + 1);
    if (!object->values || !given) return LK_ERR_NOMEM;
    object->given = given;
    if (object->node->kind == LKI_NODE_MAP) LKI_TRY(bind_keywords(plan, object, given, object->node, true));
    for (int i = 0; i < count; i++)
        if (!given[i]) LKI_TRY(fill_default(plan, object, i));
    return LK_OK;
}

static lk_status check_numbers(const lk_parameter *parameter, const lki_node *list)
{
    double number;
    for (int i = 0; i < list->count; i++)
        LKI_TRY(lki_node_float(list->entries[i].value, parameter->name, &number));
    return LK_OK;
}

/* What a node gives: the kind of its object, or of the object's attribute that it names. */
static lk_status effective_kind(const lk_parameter *parameter, const lki_node *node, lk_component_kind *out)
{
    const lki_object *object = lki_node_object(node);
    *out = object->component->kind;
    if (!node->attribute) return LK_OK;
    if (*out == LK_KIND_MODULE && !strcmp(node->attribute, "parameters"))
        return *out = LK_KIND_PARAMETERS, LK_OK;
    bool is_labels = !strcmp(node->attribute, "get_labels") || !strcmp(node->attribute, "targets");
    if (*out == LK_KIND_DATASET && is_labels) return *out = LK_KIND_TENSOR, LK_OK;
    return lki_fail_at(node->place, "%s: %s has no \"%.60s\" that a config can use", parameter->name,
                       object->called, node->attribute);
}

static lk_status check_object(const lk_parameter *parameter, const lki_node *node)
{
    char found[LKI_DESCRIBE_CAPACITY];
    const char *wanted = lki_kind_phrase(parameter->kind);
    const lki_object *object = lki_node_object(node);
    lk_component_kind kind;
    if (lki_node_is_null(node)) return LK_OK;
    if (!object) {
        if (parameter->takes_paths && node->kind == LKI_NODE_SCALAR) return LK_OK;
        if (parameter->takes_numbers && node->kind == LKI_NODE_LIST) return check_numbers(parameter, node);
        return lki_fail_at(node->place, "%s: expected %s, found %s", parameter->name, wanted,
                           lki_node_describe(node, found, sizeof found));
    }
    LKI_TRY(effective_kind(parameter, node, &kind));
    if (kind == parameter->kind) return LK_OK;
    if (node->attribute)
        return lki_fail_at(node->place, "%s: expected %s, found the %s of %s", parameter->name, wanted,
                           node->attribute, object->called);
    return lki_fail_at(node->place, "%s: expected %s, found %s, %s", parameter->name, wanted, object->called,
                       lki_kind_phrase(kind));
}

static lk_status check_string(const lk_parameter *parameter, const lki_node *node)
{
    const char *text;
    LKI_TRY(lki_node_string(node, parameter->name, &text));
    if (!parameter->choices || lki_choice_index(parameter->choices, text) >= 0) return LK_OK;
    return lki_fail_at(node->place, "%s: expected one of %s, found \"%.60s\"", parameter->name,
                       parameter->choices, text);
}

static lk_status check_int(const lk_parameter *parameter, const lki_node *node)
{
    int64_t value;
    bool is_word = parameter->choices && node->kind == LKI_NODE_SCALAR;
    if (is_word && lki_choice_index(parameter->choices, node->text) >= 0) return LK_OK;
    LKI_TRY(lki_node_int(node, parameter->name, &value));
    if (parameter->type == LK_PARAMETER_INT64 || (value >= INT_MIN && value <= INT_MAX)) return LK_OK;
    return lki_fail_at(node->place, "%s: %lld is out of range", parameter->name, (long long)value);
}

/* Whether a value is one of those that say what happens anyhow; booleans may be spelled in any way. */
bool lki_parameter_is_same(const lk_parameter *parameter, const lki_node *node)
{
    bool flag, wanted;
    if (!parameter->choices || node->kind != LKI_NODE_SCALAR) return false;
    if (lki_choice_index(parameter->choices, node->text) >= 0) return true;
    return lki_parse_bool(node->text, &flag) && lki_parse_bool(parameter->choices, &wanted) && flag == wanted;
}

static lk_status check_refused(const lki_object *object, const lk_parameter *parameter, const lki_node *node)
{
    if (!parameter->refused || lki_parameter_is_same(parameter, node)) return LK_OK;
    return lki_fail_at(node->place, "%s: %s cannot be set%s%s: %s", object->called, parameter->name,
                       parameter->choices ? " but to " : "", parameter->choices ? parameter->choices : "",
                       parameter->help);
}

static lk_status check_one(const lk_parameter *parameter, const lki_node *node)
{
    double number;
    bool flag;
    if (parameter->takes_null && lki_node_is_null(node)) return LK_OK;
    switch (parameter->type) {
    case LK_PARAMETER_INT:
    case LK_PARAMETER_INT64:
    case LK_PARAMETER_INTS: return check_int(parameter, node);
    case LK_PARAMETER_FLOAT:
    case LK_PARAMETER_FLOATS: return lki_node_float(node, parameter->name, &number);
    case LK_PARAMETER_BOOL: return lki_node_bool(node, parameter->name, &flag);
    case LK_PARAMETER_STRING:
    case LK_PARAMETER_STRINGS: return check_string(parameter, node);
    case LK_PARAMETER_OBJECT:
    case LK_PARAMETER_OBJECTS: return check_object(parameter, node);
    case LK_PARAMETER_ANY: break;
    }
    return LK_OK;
}

static bool is_many(const lk_parameter *parameter, const lki_node *node)
{
    switch (parameter->type) {
    case LK_PARAMETER_INTS:
    case LK_PARAMETER_FLOATS:
    case LK_PARAMETER_STRINGS:
        return node->kind != LKI_NODE_SCALAR && (node->kind == LKI_NODE_LIST || parameter->takes_keys);
    case LK_PARAMETER_OBJECTS: return node->kind != LKI_NODE_SCALAR && !node->object;
    default: return false;
    }
}

lk_status lki_object_check(const lki_object *object)
{
    const lk_parameter *parameters = object->component->parameters;
    for (int i = 0; parameters && parameters[i].name; i++) {
        const lki_node *value = object->values[i];
        if (!value || !object->given[i]) continue;
        LKI_TRY(check_refused(object, &parameters[i], value));
        if (!is_many(&parameters[i], value)) {
            LKI_TRY(check_one(&parameters[i], value));
            continue;
        }
        for (int k = 0; k < value->count; k++) LKI_TRY(check_one(&parameters[i], value->entries[k].value));
    }
    return LK_OK;
}
