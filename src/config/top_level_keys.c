/* Keys at the top of a config that are neither `runner` nor `run`: they hold anchors and named objects. One
 * that nothing refers to is read by nobody. */
#include "config/build.h"

#include "base/log.h"
#include "base/suggest.h"
#include "config/registry.h"

#include <string.h>

static bool contains(const lki_node *part, const lki_node *node)
{
    if (part == node) return true;
    for (int i = 0; part->kind != LKI_NODE_ALIAS && i < part->count; i++)
        if (contains(part->entries[i].value, node)) return true;
    return false;
}

/* Whether an alias or a merge key below `node` stands for something in `part`; `part` itself is not looked
 * at. */
static bool has_alias_of(const lki_node *node, const lki_node *part)
{
    if (!node || node == part) return false;
    if (node->kind == LKI_NODE_ALIAS) return contains(part, node->target);
    if (has_alias_of(node->inherits, part)) return true;
    for (int i = 0; i < node->count; i++)
        if (has_alias_of(node->entries[i].value, part)) return true;
    return false;
}

/* Whether a `_var_` below `node` refers to an object that stands in `part`. */
static bool has_reference_to(const lki_node *node, const lki_node *part)
{
    if (node == part) return false;
    if (node->object && node->object->node != node) return contains(part, node->object->node);
    for (int i = 0; i < node->count; i++)
        if (has_reference_to(node->entries[i].value, part)) return true;
    return false;
}

static bool is_idle(const lki_tree *tree, const lki_entry *entry)
{
    const lki_entry *source = lki_node_entry(tree->source, entry->key);
    if (!strcmp(entry->key, "runner") || !strcmp(entry->key, "run")) return false;
    return !has_reference_to(tree->root, entry->value) &&
           !(source && has_alias_of(tree->source, source->value));
}

static bool takes(const lki_object *object, const char *key)
{
    return object && lki_component_parameter_index(object->component, key) >= 0;
}

lk_status lki_plan_check_top(const lki_plan *plan)
{
    const lki_node *root = plan->tree->root, *run = lki_node_get(root, "run");
    for (int i = 0; i < root->count; i++) {
        const lki_entry *entry = &root->entries[i];
        if (!is_idle(plan->tree, entry)) continue;
        if (takes(plan->runner, entry->key))
            return lki_fail_at(entry->place, "\"%s\" is read by nothing here: write it under runner",
                               entry->key);
        for (int k = 0; run && k < run->count; k++)
            if (takes(lki_node_object(run->entries[k].value), entry->key))
                return lki_fail_at(entry->place,
                                   "\"%s\" is read by nothing here: write it under run, in the call of %s",
                                   entry->key, lki_node_object(run->entries[k].value)->component->name);
    }
    return LK_OK;
}

void lki_plan_note_top(const lki_plan *plan)
{
    const lki_node *root = plan->tree->root;
    char place[LKI_PLACE_CAPACITY], hint[160];
    for (int i = 0; i < root->count; i++) {
        const lki_entry *entry = &root->entries[i];
        lki_suggestion near = {.wanted = entry->key};
        if (!is_idle(plan->tree, entry)) continue;
        if (!strcmp(entry->key, "tune")) {
            lki_log(LKI_LOG_WARNING, "%s: \"tune\" has no effect here: it is for `lockstep tune`",
                    lki_place_text(entry->place, place, sizeof place));
            continue;
        }
        lki_suggest_offer(&near, "runner");
        lki_suggest_offer(&near, "run");
        lki_log(LKI_LOG_WARNING, "%s: \"%s\" has no effect: nothing refers to it%s",
                lki_place_text(entry->place, place, sizeof place), entry->key,
                lki_suggest_text(&near, hint, sizeof hint));
    }
}
