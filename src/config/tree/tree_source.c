/* What is written, with aliases and merge keys, and what it means. */
#include "config/tree/tree.h"

#include <string.h>

/* Anchors may nest deeper than a file does. */
enum { MAX_DEPTH = 1000 };

static lki_node *followed(lki_node *node)
{
    while (node->kind == LKI_NODE_ALIAS) node = node->target;
    return node;
}

/* What a merge key names; NULL where it is an implied one whose map has become something else. */
static lki_node *inherited_from(const lki_node *inherits, int index)
{
    lki_node *from = followed(inherits->entries[index].value);
    return inherits->implied && from->kind != LKI_NODE_MAP ? NULL : from;
}

/* ---- Resolving ---- */

static lki_node *resolve(lki_tree *tree, const lki_node *node, int depth);

/* An anchor may have become something else in a later file or an override: that is where the fault lies. */
static lk_status fail_no_map(lki_place place, const lki_node *value)
{
    char where[LKI_PLACE_CAPACITY];
    if (!strcmp(place.file, value->place.file))
        return lki_fail_at(place, "<<: expected a map or a list of maps");
    return lki_fail_at(value->place, "expected a map: the one that `<<` in %s takes keys from",
                       lki_place_text(place, where, sizeof where));
}

/* `<<: *base` or `<<: [*a, *b]`: the keys of the named maps, the first map's first. */
static lk_status gather(lki_tree *tree, lki_place place, const lki_node *value, lki_node *inherited)
{
    if (value->kind == LKI_NODE_LIST) {
        for (int i = 0; i < value->count; i++)
            LKI_TRY(gather(tree, place, value->entries[i].value, inherited));
        return LK_OK;
    }
    if (lki_node_is_null(value)) return LK_OK;
    if (value->kind != LKI_NODE_MAP) return fail_no_map(place, value);
    for (int i = 0; i < value->count; i++) {
        const lki_entry *entry = &value->entries[i];
        if (!lki_node_entry(inherited, entry->key))
            LKI_TRY(lki_node_add(tree, inherited, entry->key, entry->place, entry->value));
    }
    return LK_OK;
}

/* Inherited keys come first, in their order, as if they had been written there; what the map itself says
 * wins. */
static lk_status add_inherited(lki_tree *tree, const lki_node *map, int depth, lki_node *out)
{
    for (int i = 0; i < map->inherits->count; i++) {
        const lki_entry *entry = &map->inherits->entries[i];
        if (!inherited_from(map->inherits, i)) continue;
        const lki_node *value = resolve(tree, entry->value, depth);
        if (!value) return lki_last_status();
        LKI_TRY(gather(tree, entry->place, value, out));
    }
    return LK_OK;
}

static lk_status add_own(lki_tree *tree, const lki_node *node, int depth, lki_node *out)
{
    for (int i = 0; i < node->count; i++) {
        const lki_entry *entry = &node->entries[i];
        lki_node *value = resolve(tree, entry->value, depth);
        if (!value) return lki_last_status();
        lki_entry *inherited = entry->key ? (lki_entry *)lki_node_entry(out, entry->key) : NULL;
        if (!inherited) {
            LKI_TRY(lki_node_add(tree, out, entry->key, entry->place, value));
            continue;
        }
        inherited->value = value;
        inherited->place = entry->place;
    }
    return LK_OK;
}

static lki_node *resolve(lki_tree *tree, const lki_node *node, int depth)
{
    if (depth > MAX_DEPTH) {
        lki_fail_at(node->place, "nested more than %d levels deep once aliases are followed", MAX_DEPTH);
        return NULL;
    }
    if (node->kind == LKI_NODE_ALIAS) return resolve(tree, node->target, depth + 1);
    lki_node *out = lki_node_create(tree, node->kind, node->place);
    if (!out) return NULL;
    out->quoted = node->quoted;
    out->flow = node->flow;
    out->text = node->text;
    if (node->inherits && add_inherited(tree, node, depth + 1, out)) return NULL;
    return add_own(tree, node, depth + 1, out) ? NULL : out;
}

lki_node *lki_source_value(lki_tree *tree, const lki_node *node)
{
    return resolve(tree, node, 0);
}

/* What earlier changes have left in the arena does not count. */
static lki_node *resolve_all(lki_tree *tree, const lki_node *source)
{
    tree->node_count = 0;
    return resolve(tree, source, 0);
}

lk_status lki_tree_resolve(lki_tree *tree)
{
    lki_node *root = resolve_all(tree, tree->source);
    if (!root) return lki_last_status();
    tree->root = root;
    return LK_OK;
}

/* ---- Changing ---- */

static lk_status copy_node(lki_tree *tree, lki_node *node, lki_node **out);

static lk_status copy_entries(lki_tree *tree, const lki_node *node, lki_node *out)
{
    out->capacity = node->count;
    out->entries = node->count ? LKI_ARENA_NEW_ARRAY(&tree->arena, lki_entry, node->count) : NULL;
    if (node->count && !out->entries) return LK_ERR_NOMEM;
    for (int i = 0; i < node->count; i++) {
        out->entries[i] = node->entries[i];
        LKI_TRY(copy_node(tree, node->entries[i].value, &out->entries[i].value));
    }
    return LK_OK;
}

/* Nodes that several aliases stand for are copied once. */
static lk_status copy_node(lki_tree *tree, lki_node *node, lki_node **out)
{
    bool is_copied = node && node->copy_round == tree->copy_round;
    *out = is_copied ? node->copy : NULL;
    if (!node || is_copied) return LK_OK;
    lki_node *copy = LKI_ARENA_NEW(&tree->arena, lki_node);
    if (!copy) return LK_ERR_NOMEM;
    *copy = *node;
    *out = node->copy = copy;
    node->copy_round = tree->copy_round;
    LKI_TRY(copy_entries(tree, node, copy));
    LKI_TRY(copy_node(tree, node->target, &copy->target));
    return copy_node(tree, node->inherits, &copy->inherits);
}

lk_status lki_source_copy(lki_tree *tree)
{
    lki_node *copy;
    tree->copy_round++;
    LKI_TRY(copy_node(tree, tree->source, &copy));
    tree->source = copy;
    return LK_OK;
}

static lki_node *make_alias(lki_tree *tree, lki_node *target)
{
    lki_node *alias = lki_node_create(tree, LKI_NODE_ALIAS, target->place);
    if (alias) alias->target = target;
    return alias;
}

static lk_status add_alias(lki_tree *tree, lki_node *node, const char *key, lki_place place, lki_node *target)
{
    lki_node *alias = make_alias(tree, target);
    return alias ? lki_node_add(tree, node, key, place, alias) : lki_last_status();
}

lk_status lki_source_own(lki_tree *tree, lki_node *node)
{
    if (node->kind != LKI_NODE_ALIAS) return LK_OK;
    lki_node *target = followed(node);
    lki_node own = {.kind = target->kind,
                    .quoted = target->quoted,
                    .flow = target->flow,
                    .place = target->place,
                    .text = target->text};
    if (target->kind == LKI_NODE_MAP) {
        own.inherits = lki_node_create(tree, LKI_NODE_LIST, target->place);
        if (!own.inherits) return lki_last_status();
        own.inherits->implied = true;
        LKI_TRY(add_alias(tree, own.inherits, NULL, target->place, target));
    }
    for (int i = 0; target->kind == LKI_NODE_LIST && i < target->count; i++)
        LKI_TRY(add_alias(tree, &own, NULL, target->entries[i].place, target->entries[i].value));
    *node = own;
    return LK_OK;
}

/* The entry that a map has from its merge keys, wherever it is written. */
static const lki_entry *find_inherited(const lki_node *inherits, const char *key)
{
    const lki_entry *found = NULL;
    for (int i = 0; inherits && i < inherits->count && !found; i++) {
        const lki_node *from = inherited_from(inherits, i);
        if (!from) continue;
        if (from->kind == LKI_NODE_LIST) {
            found = find_inherited(from, key);
        } else {
            found = lki_node_entry(from, key);
            if (!found) found = find_inherited(from->inherits, key);
        }
    }
    return found;
}

lk_status lki_source_entry(lki_tree *tree, lki_node *map, const char *key, lki_entry **out)
{
    *out = (lki_entry *)lki_node_entry(map, key);
    const lki_entry *inherited = *out ? NULL : find_inherited(map->inherits, key);
    if (!inherited) return LK_OK;
    LKI_TRY(add_alias(tree, map, inherited->key, inherited->place, inherited->value));
    *out = &map->entries[map->count - 1];
    return LK_OK;
}

/* The value that stands in the tree is the one that overrides change: the aliases of `value` follow it. */
static lk_status put(lki_tree *tree, lki_node *old, lki_node *value)
{
    lki_node *alias = make_alias(tree, old);
    if (!alias) return lki_last_status();
    *old = *value;
    *value = *alias;
    return LK_OK;
}

static lk_status put_entry(lki_tree *tree, lki_node *map, const lki_entry *entry, lki_node *value)
{
    lki_entry *old = (lki_entry *)lki_node_entry(map, entry->key);
    if (!old) return lki_node_add(tree, map, entry->key, entry->place, value);
    old->place = entry->place;
    old->value = value;
    return LK_OK;
}

static lk_status list_entries(lki_tree *tree, const lki_node *map, bool is_alias, lki_node *out);

/* The entries of the maps that a merge key names, each from the first map that has it. */
static lk_status list_inherited(lki_tree *tree, const lki_node *inherits, lki_node *out)
{
    for (int i = 0; inherits && i < inherits->count; i++) {
        const lki_node *from = inherited_from(inherits, i);
        lki_node listed = {.kind = LKI_NODE_MAP};
        if (!from) continue;
        if (from->kind == LKI_NODE_LIST)
            LKI_TRY(list_inherited(tree, from, &listed));
        else
            LKI_TRY(list_entries(tree, from, true, &listed));
        for (int k = 0; k < listed.count; k++) {
            const lki_entry *entry = &listed.entries[k];
            if (!lki_node_entry(out, entry->key))
                LKI_TRY(lki_node_add(tree, out, entry->key, entry->place, entry->value));
        }
    }
    return LK_OK;
}

/* All entries of a map of the source, each key once and in the order that `resolve` gives them. `is_alias`:
 * the map stands elsewhere; here its values are followed, as inherited ones are. */
static lk_status list_entries(lki_tree *tree, const lki_node *map, bool is_alias, lki_node *out)
{
    LKI_TRY(list_inherited(tree, map->inherits, out));
    for (int i = 0; i < map->count; i++) {
        const lki_entry *entry = &map->entries[i];
        lki_node *value = is_alias ? make_alias(tree, entry->value) : entry->value;
        if (!value) return lki_last_status();
        LKI_TRY(put_entry(tree, out, entry, value));
    }
    return LK_OK;
}

static lk_status merge(lki_tree *tree, lki_node *base, const lki_node *over, bool is_alias);

static lk_status merge_entry(lki_tree *tree, lki_node *base, const lki_entry *entry)
{
    lki_node *value = entry->value;
    lki_entry *old;
    LKI_TRY(lki_source_entry(tree, base, entry->key, &old));
    if (!old) return lki_node_add(tree, base, entry->key, entry->place, value);
    if (followed(old->value)->kind == LKI_NODE_MAP && followed(value)->kind == LKI_NODE_MAP) {
        LKI_TRY(lki_source_own(tree, old->value));
        return merge(tree, old->value, followed(value), value->kind == LKI_NODE_ALIAS);
    }
    old->place = entry->place;
    return put(tree, old->value, value);
}

/* A key's value in `over` is one, whether inherited or its own: what it hides there is not merged. */
static lk_status merge(lki_tree *tree, lki_node *base, const lki_node *over, bool is_alias)
{
    lki_node listed = {.kind = LKI_NODE_MAP};
    LKI_TRY(list_entries(tree, over, is_alias, &listed));
    for (int i = 0; i < listed.count; i++) LKI_TRY(merge_entry(tree, base, &listed.entries[i]));
    return LK_OK;
}

static lk_status merge_into_source(lki_tree *tree, lki_node *over)
{
    if (!tree->source) {
        tree->source = over;
        return lki_tree_resolve(tree);
    }
    LKI_TRY(lki_source_copy(tree));
    LKI_TRY(merge(tree, tree->source, over, false));
    return lki_tree_resolve(tree);
}

lk_status lki_tree_merge(lki_tree *tree, lki_node *over)
{
    lki_node *before = tree->source;
    if (!resolve_all(tree, over)) return lki_last_status();
    lk_status status = merge_into_source(tree, over);
    if (status) tree->source = before;
    return status;
}
