/* One component or one call at a time, with objects that exist already: for bindings of other languages,
 * whose programs build things in the order in which they are written. */
#include "config/config.h"

#include "base/status.h"
#include "config/model_of_config.h"
#include "config/registry.h"

#include <string.h>

/* What a given object is to the plan: an object of its kind that no text describes. */
#define X(symbol, name_, phrase) {.name = "a given " name_, .kind = LK_KIND_##symbol},
static const lk_component given_components[] = {LK_COMPONENT_KIND_LIST(X)};
#undef X

static const char OBJECT_KEY[] = "object", CALLS_KEY[] = "run";

/* What a tree holds becomes its one entry: below `run` if it is a call, otherwise below `object`. */
static lk_status wrap(lki_tree *tree, bool *is_call)
{
    lki_node *wanted = tree->root;
    if (!wanted || wanted->kind != LKI_NODE_MAP)
        return lki_fail(LK_ERR_CONFIG, "arguments: expected a map with _target_ or _call_");
    *is_call = lki_node_get(wanted, "_call_") != NULL;
    lki_node *root = lki_node_create(tree, LKI_NODE_MAP, wanted->place);
    lki_node *calls = lki_node_create(tree, LKI_NODE_LIST, wanted->place);
    if (!root || !calls) return lki_last_status();
    LKI_TRY(lki_node_add(tree, calls, NULL, wanted->place, wanted));
    LKI_TRY(lki_node_add(tree, root, *is_call ? CALLS_KEY : OBJECT_KEY, wanted->place,
                         *is_call ? calls : wanted));
    tree->root = root;
    return LK_OK;
}

static lk_status add_given(lki_plan *plan, const lk_given_object *given, lki_object **out)
{
    if (given->kind < 0 || given->kind >= LK_KIND_COUNT || !given->name || !given->object)
        return lki_fail(LK_ERR_INVALID, "a given object needs a name, a kind and an address");
    lki_object *object = LKI_ARENA_NEW(&plan->tree->arena, lki_object);
    lki_node *node = lki_node_create(plan->tree, LKI_NODE_SCALAR, plan->tree->root->place);
    if (!object || !node) return lki_last_status();
    *object = (lki_object){.component = &given_components[given->kind],
                           .node = node,
                           .called = given->name,
                           .var = given->name,
                           .pointer = given->object,
                           .built = true,
                           .is_given = true};
    node->text = given->name;
    lki_plan_append(plan, object);
    *out = object;
    return LK_OK;
}

static lk_status add_all_given(lki_plan *plan, const lk_given_object *given, int count, lki_object **objects)
{
    for (int i = 0; i < count; i++) {
        LKI_TRY(add_given(plan, &given[i], &objects[i]));
        if (given[i].kind == LK_KIND_RUNNER) plan->runner = objects[i];
    }
    return LK_OK;
}

static lk_status make_call(lki_plan *plan)
{
    lki_node *calls = lki_node_get(plan->tree->root, CALLS_KEY);
    lki_object *call = lki_node_object(calls->entries[0].value);
    if (!plan->runner && !lki_component_is_added(call->component))
        return lki_fail(LK_ERR_INVALID, "%s: it needs a runner among the given objects", call->called);
    return lki_object_build(plan, call);
}

/* Hands the object that the text describes to the caller. */
static lk_status take_object(const lki_plan *plan, lk_component_kind kind, void **out)
{
    lki_object *object = lki_node_object(lki_node_get(plan->tree->root, OBJECT_KEY));
    if (!object || object->is_given)
        return lki_fail(LK_ERR_CONFIG, "arguments: expected a map with _target_ or _call_");
    if (object->component->kind != kind)
        return lki_fail(LK_ERR_INVALID, "%s is %s, not %s", object->called,
                        lki_kind_phrase(object->component->kind), lki_kind_phrase(kind));
    object->taken = true;
    *out = object->pointer;
    return LK_OK;
}

static lk_status make(lki_plan *plan, lk_given_object *given, int count, lk_component_kind kind, void **out)
{
    bool is_call = false;
    LKI_TRY(wrap(plan->tree, &is_call));
    lki_object **objects = LKI_ARENA_NEW_ARRAY(&plan->tree->arena, lki_object *, count + 1);
    if (!objects) return LK_ERR_NOMEM;
    LKI_TRY(add_all_given(plan, given, count, objects));
    LKI_TRY(lki_datasets_to_loaders(plan->tree));
    LKI_TRY(lki_plan_make(plan));
    lki_plan_note_keys(plan);
    lk_status status = lki_plan_build(plan);
    if (status == LK_OK) status = is_call ? make_call(plan) : take_object(plan, kind, out);
    for (int i = 0; i < count; i++) given[i].taken = objects[i]->taken;
    return status;
}

lk_status lk_component_make(const char *text, lk_given_object *given, int count, lk_component_kind kind,
                            void **out)
{
    lki_tree tree = {0};
    lki_plan plan = {.tree = &tree};
    *out = NULL;
    for (int i = 0; i < count; i++) given[i].taken = false;
    LKI_TRY(lki_components_offered());
    lk_status status = lki_tree_read_text(&tree, "arguments", text, strlen(text));
    if (status == LK_OK) status = make(&plan, given, count, kind, out);
    lki_plan_fini(&plan);
    lki_tree_fini(&tree);
    return status;
}

lk_module *lk_module_from_config(const char *path)
{
    lki_tree tree = {0};
    lki_plan plan = {.tree = &tree};
    void *module = NULL;
    if (!path) return lki_fail_null(LK_ERR_INVALID, "lk_module_from_config: there is no path");
    lk_status status = lki_components_offered();
    if (status == LK_OK) status = lki_tree_read_file(&tree, path);
    bool is_component = status == LK_OK && lki_node_get(tree.root, "_target_");
    if (is_component) status = make(&plan, NULL, 0, LK_KIND_MODULE, &module);
    lki_plan_fini(&plan);
    lki_tree_fini(&tree);
    if (status || is_component) return module;
    lki_config_model found;
    return lki_model_of_config(path, true, &found) == LK_OK ? found.module : NULL;
}

void lk_component_dispose(lk_component_kind kind, void *object)
{
    if (kind >= 0 && kind < LK_KIND_COUNT) lki_component_dispose(&given_components[kind], object);
}
