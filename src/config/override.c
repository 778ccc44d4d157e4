/* --a/b/c=VALUE[:type] over a tree. */
#include "config/tree.h"

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
    *out = (lki_entry *)lki_node_entry(node, part);
    if (*out) return LK_OK;
    char *key = lki_arena_strdup(&tree->arena, part);
    lki_node *empty = key ? lki_node_create(tree, LKI_NODE_MAP, place) : NULL;
    if (!empty) return lki_last_status();
    LKI_TRY(lki_node_add(tree, node, key, place, empty));
    *out = &node->entries[node->count - 1];
    return LK_OK;
}

/* A path may leave out where its first part stands, if that is a key of the runner or of one call:
 * optimizer/lr. */
static lk_status find_start(const lki_tree *tree, const char *name, const char *path, lki_node **out)
{
    const lki_node *calls = lki_node_get(tree->root, "run");
    char key[128];
    int found = 0;
    path += strspn(path, "/");
    *out = tree->root;
    if (strcspn(path, "/") >= sizeof key) return LK_OK;
    memcpy(key, path, strcspn(path, "/"));
    key[strcspn(path, "/")] = 0;
    if (lki_node_entry(tree->root, key)) return LK_OK;
    if (lki_node_entry(lki_node_get(tree->root, "runner"), key))
        return *out = lki_node_get(tree->root, "runner"), LK_OK;
    for (int i = 0; calls && calls->kind == LKI_NODE_LIST && i < calls->count; i++) {
        lki_node *call = calls->entries[i].value;
        if (!lki_node_entry(call, key)) continue;
        if (found++)
            return lki_fail(LK_ERR_CONFIG, "%s: several calls have \"%s\": write run/0/%s", name, key, key);
        *out = call;
    }
    return LK_OK;
}

static lk_status assign(lki_tree *tree, const char *name, char *path, char *text)
{
    char *rest = NULL;
    lki_node *node = NULL, *value;
    lki_entry *entry = NULL;
    const char *last = path;
    LKI_TRY(find_start(tree, name, path, &node));
    for (char *part = strtok_r(path, "/", &rest); part; part = strtok_r(NULL, "/", &rest)) {
        if (entry && entry->value->kind == LKI_NODE_SCALAR) {
            /* A value becomes a map when a key below it is set: --runner/engine/_target_=... over `engine:
             * null`. */
            entry->value = lki_node_create(tree, LKI_NODE_MAP, (lki_place){.file = name});
            if (!entry->value) return lki_last_status();
        }
        if (entry) node = entry->value;
        LKI_TRY(find_or_make(tree, name, node, part, &entry));
        last = part;
    }
    if (!entry) return lki_fail(LK_ERR_CONFIG, "%s: the path is empty", name);
    LKI_TRY(read_typed(tree, name, last, text, &value));
    entry->value = value;
    entry->place = (lki_place){.file = name};
    return LK_OK;
}

lk_status lki_tree_override(lki_tree *tree, const char *name, const char *assignment)
{
    const char *equals = strchr(assignment, '=');
    if (!equals) return lki_fail(LK_ERR_CONFIG, "%s: expected --path/to/key=value", name);
    char *kept_name = lki_arena_strdup(&tree->arena, name);
    char *path = lki_arena_strdup(&tree->arena, assignment);
    if (!kept_name || !path) return LK_ERR_NOMEM;
    path[equals - assignment] = 0;
    if (!tree->root) tree->root = lki_node_create(tree, LKI_NODE_MAP, (lki_place){.file = kept_name});
    if (!tree->root) return lki_last_status();
    return assign(tree, kept_name, path, path + (equals - assignment) + 1);
}
