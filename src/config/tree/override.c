/* --a/b/c=VALUE[:type] over a tree. */
#include "base/memory.h"
#include "base/suggest.h"
#include "config/registry.h"
#include "config/tree/tree.h"

#include <stdio.h>
#include <string.h>

typedef enum value_type {
    TYPE_GUESS,
    TYPE_INT,
    TYPE_FLOAT,
    TYPE_BOOL,
    TYPE_STR,
    TYPE_LIST,
    TYPE_DICT
} value_type;

static const struct {
    const char *suffix;
    value_type type;
} suffixes[] = {
    {":int", TYPE_INT}, {":float", TYPE_FLOAT}, {":bool", TYPE_BOOL},
    {":str", TYPE_STR}, {":list", TYPE_LIST},   {":dict", TYPE_DICT},
};

/* Cuts a known type off the end of the value; anything else after a colon belongs to the value (host:80). */
static value_type cut_type(char *value)
{
    size_t length = strlen(value);
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        size_t suffix_length = strlen(suffixes[i].suffix);
        if (length < suffix_length || strcmp(value + length - suffix_length, suffixes[i].suffix)) continue;
        value[length - suffix_length] = 0;
        return suffixes[i].type;
    }
    return TYPE_GUESS;
}

static lk_status make_string(lki_tree *tree, const char *name, const char *text, lki_node **out)
{
    *out = lki_node_create(tree, LKI_NODE_SCALAR, (lki_place){.file = name});
    if (!*out) return lki_last_status();
    (*out)->quoted = true;
    (*out)->text = lki_arena_strdup(&tree->arena, text);
    return (*out)->text ? LK_OK : LK_ERR_NOMEM;
}

static lk_status read_typed(lki_tree *tree, const char *name, const char *key, char *text, lki_node **out)
{
    value_type type = cut_type(text);
    int64_t whole;
    double number;
    bool flag;
    if (type == TYPE_STR) return make_string(tree, name, text, out);
    LKI_TRY(lki_tree_read_value(tree, name, text, out));
    switch (type) {
    case TYPE_INT: return lki_node_int(*out, key, &whole);
    case TYPE_FLOAT: return lki_node_float(*out, key, &number);
    case TYPE_BOOL: return lki_node_bool(*out, key, &flag);
    case TYPE_LIST:
        if ((*out)->kind != LKI_NODE_LIST) return lki_fail_at((*out)->place, "%s: expected a list", key);
        return LK_OK;
    case TYPE_DICT:
        if ((*out)->kind != LKI_NODE_MAP) return lki_fail_at((*out)->place, "%s: expected a map", key);
        return LK_OK;
    default: return LK_OK;
    }
}

static lk_status find_in_list(const char *name, const lki_node *list, const char *part, lki_entry **out)
{
    int64_t index;
    if (!lki_parse_int(part, &index) || index < 0)
        return lki_fail(LK_ERR_CONFIG, "%s: \"%s\" stands where the config has a list: give an index", name,
                        part);
    if (index >= list->count)
        return lki_fail(LK_ERR_CONFIG, "%s: index %s is beyond the list's %d items", name, part, list->count);
    *out = &list->entries[index];
    return LK_OK;
}

/* The entry that a part of the path names, made where a map lacks it. */
static lk_status find_or_make(lki_tree *tree, const char *name, lki_node *node, const char *part,
                              lki_entry **out)
{
    lki_place place = {.file = name};
    if (node->kind == LKI_NODE_LIST) return find_in_list(name, node, part, out);
    LKI_TRY(lki_source_entry(tree, node, part, out));
    if (*out) return LK_OK;
    char *key = lki_arena_strdup(&tree->arena, part);
    lki_node *empty = key ? lki_node_create(tree, LKI_NODE_MAP, place) : NULL;
    if (!empty) return lki_last_status();
    LKI_TRY(lki_node_add(tree, node, key, place, empty));
    *out = &node->entries[node->count - 1];
    return LK_OK;
}

/* A value becomes a map when a key below it is set: --runner/engine/_target_=... over `engine: null`. */
static lk_status open_node(lki_tree *tree, const char *name, lki_node *node)
{
    LKI_TRY(lki_source_own(tree, node));
    if (node->kind == LKI_NODE_SCALAR) *node = (lki_node){.kind = LKI_NODE_MAP, .place = {.file = name}};
    return LK_OK;
}

/* ---- Where a path begins ---- */

typedef bool (*key_test)(const lki_node *map, const char *key);

static bool has_key(const lki_node *map, const char *key)
{
    return lki_node_entry(map, key) != NULL;
}

/* The component of the runner or of a call; NULL where the map names none. */
static const lk_component *component_of(const lki_node *map)
{
    const lki_node *name = lki_node_get(map, "_call_");
    if (!name) name = lki_node_get(map, "_target_");
    return name && name->kind == LKI_NODE_SCALAR ? lk_component_find(name->text) : NULL;
}

static bool takes_key(const lki_node *map, const char *key)
{
    const lk_component *component = component_of(map);
    return component && lki_component_parameter_index(component, key) >= 0;
}

static lki_node *call_at(const lki_tree *tree, int index)
{
    const lki_node *calls = lki_node_get(tree->root, "run");
    bool is_there = calls && calls->kind == LKI_NODE_LIST && index < calls->count;
    return is_there ? calls->entries[index].value : NULL;
}

enum { NOWHERE = -3, AT_THE_TOP = -2, IN_THE_RUNNER = -1 }; /* or the index of a call */

/* The runner, or else the one call, that passes the test; *out stays as it is where none does. */
static lk_status find_owner(const lki_tree *tree, const char *name, const char *key, key_test test, int *out)
{
    const lki_node *call;
    int found = NOWHERE;
    if (test(lki_node_get(tree->root, "runner"), key)) return *out = IN_THE_RUNNER, LK_OK;
    for (int i = 0; (call = call_at(tree, i)); i++) {
        if (!test(call, key)) continue;
        if (found != NOWHERE)
            return lki_fail(LK_ERR_CONFIG, "%s: several calls %s \"%s\": write run/0/%s", name,
                            test == has_key ? "have" : "take", key, key);
        found = i;
    }
    *out = found;
    return LK_OK;
}

static void offer_keys(lki_suggestion *near, const lki_node *map)
{
    const lk_component *component = component_of(map);
    for (int i = 0; map && map->kind == LKI_NODE_MAP && i < map->count; i++)
        lki_suggest_offer(near, map->entries[i].key);
    for (int i = 0; component && component->parameters && component->parameters[i].name; i++)
        lki_suggest_offer(near, component->parameters[i].name);
}

static lk_status fail_unknown_start(const lki_tree *tree, const char *name, const char *key)
{
    lki_suggestion near = {.wanted = key};
    const lki_node *call;
    char hint[160];
    lki_suggest_offer(&near, "runner");
    lki_suggest_offer(&near, "run");
    offer_keys(&near, tree->root);
    offer_keys(&near, lki_node_get(tree->root, "runner"));
    for (int i = 0; (call = call_at(tree, i)); i++) offer_keys(&near, call);
    return lki_fail(LK_ERR_CONFIG, "%s: \"%.60s\" is no key of the config, its runner or its calls%s", name,
                    key, lki_suggest_text(&near, hint, sizeof hint));
}

/* A path may leave out where its first part stands, if the runner or one call has it, or would take it:
 * optimizer/lr. A key that nothing would read is a slip of the hand; only a config that has neither runner
 * nor calls yet takes any. */
static lk_status find_start(const lki_tree *tree, const char *name, const char *key, int *out)
{
    lki_node *root = tree->root;
    bool is_absolute = has_key(root, key) || !strcmp(key, "runner") || !strcmp(key, "run");
    bool is_begun = has_key(root, "runner") || has_key(root, "run");
    *out = is_absolute || !is_begun ? AT_THE_TOP : NOWHERE;
    if (*out == NOWHERE) LKI_TRY(find_owner(tree, name, key, has_key, out));
    if (*out == NOWHERE) LKI_TRY(find_owner(tree, name, key, takes_key, out));
    return *out == NOWHERE ? fail_unknown_start(tree, name, key) : LK_OK;
}

/* One part of a path further. */
static lk_status step_into(lki_tree *tree, const char *name, const char *part, lki_entry **entry)
{
    lki_node *node = *entry ? (*entry)->value : tree->source;
    LKI_TRY(open_node(tree, name, node));
    return find_or_make(tree, name, node, part, entry);
}

/* From the top to where the path begins. */
static lk_status walk_to_start(lki_tree *tree, const char *name, int start, lki_entry **entry)
{
    char index[16];
    if (start == AT_THE_TOP) return LK_OK;
    if (start == IN_THE_RUNNER) return step_into(tree, name, "runner", entry);
    snprintf(index, sizeof index, "%d", start);
    LKI_TRY(step_into(tree, name, "run", entry));
    return step_into(tree, name, index, entry);
}

/* --optimizer=SGD: a name in place of a map would silently drop the rest of it. */
static lk_status check_replaced(lki_tree *tree, const char *name, const lki_node *entry,
                                const lki_node *value)
{
    int path = (int)strcspn(name, "=");
    const lki_node *old = lki_source_value(tree, entry);
    if (!old) return lki_last_status();
    bool has_target = has_key(old, "_target_");
    if (old->kind != LKI_NODE_MAP || old->count <= has_target) return LK_OK;
    if (value->kind != LKI_NODE_SCALAR || lki_node_is_null(value)) return LK_OK;
    if (!has_target)
        return lki_fail(LK_ERR_CONFIG, "%s: the config has a map there: set a key below it, or a whole map",
                        name);
    return lki_fail(LK_ERR_CONFIG,
                    "%s: the config has a map there: %.*s/_target_=%s changes its component alone, "
                    "%.*s={_target_: %s, ...} all of it",
                    name, path, name, value->text, path, name, value->text);
}

static lk_status assign(lki_tree *tree, const char *name, char *path, char *text)
{
    char *rest = NULL;
    lki_node *value;
    lki_entry *entry = NULL;
    const char *last = NULL;
    int start;
    char *first = strtok_r(path, "/", &rest);
    if (!first) return lki_fail(LK_ERR_CONFIG, "%s: the path is empty", name);
    LKI_TRY(find_start(tree, name, first, &start));
    LKI_TRY(walk_to_start(tree, name, start, &entry));
    for (char *part = first; part; part = strtok_r(NULL, "/", &rest)) {
        LKI_TRY(step_into(tree, name, part, &entry));
        last = part;
    }
    LKI_TRY(read_typed(tree, name, last, text, &value));
    if (last == first)
        LKI_TRY(check_replaced(tree, name, entry->value, value)); /* a whole path says it all */
    *entry->value = *value; /* in its place: aliases of what stood here follow */
    entry->place = (lki_place){.file = name};
    return lki_tree_resolve(tree);
}

/* A source that the path can be opened in, and that can be dropped. */
static lk_status prepare_source(lki_tree *tree, const char *name)
{
    if (tree->source) return lki_source_copy(tree);
    tree->source = lki_node_create(tree, LKI_NODE_MAP, (lki_place){.file = name});
    return tree->source ? lki_tree_resolve(tree) : lki_last_status();
}

lk_status lki_tree_override(lki_tree *tree, const char *name, const char *assignment)
{
    const char *equals = strchr(assignment, '=');
    if (!equals) return lki_fail(LK_ERR_CONFIG, "%s: expected --path/to/key=value", name);
    if (!lki_is_utf8(assignment)) return lki_fail(LK_ERR_CONFIG, "%s: it is not UTF-8", name);
    char *kept_name = lki_arena_strdup(&tree->arena, name);
    char *path = lki_arena_strdup(&tree->arena, assignment);
    if (!kept_name || !path) return LK_ERR_NOMEM;
    path[equals - assignment] = 0;
    lki_node *source = tree->source, *root = tree->root;
    lk_status status = prepare_source(tree, kept_name);
    if (!status) status = assign(tree, kept_name, path, path + (equals - assignment) + 1);
    if (!status) return LK_OK;
    tree->source = source;
    tree->root = root;
    return status;
}
