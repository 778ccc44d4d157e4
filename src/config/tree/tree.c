#include "config/tree/tree.h"

#include "base/number_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A few kilobytes of nested aliases can stand for billions of nodes; no honest config comes near this. */
enum { MAX_NODES = 200000 };

void lki_tree_fini(lki_tree *tree)
{
    lki_arena_fini(&tree->arena);
    *tree = (lki_tree){0};
}

lki_node *lki_node_create(lki_tree *tree, lki_node_kind kind, lki_place place)
{
    if (tree->node_count >= MAX_NODES) {
        lki_fail_at(place, "the config has more than %d values once its aliases are followed", MAX_NODES);
        return NULL;
    }
    lki_node *node = LKI_ARENA_NEW(&tree->arena, lki_node);
    if (!node) return NULL;
    tree->node_count++;
    node->kind = kind;
    node->place = place;
    return node;
}

static lk_status reserve_entry(lki_tree *tree, lki_node *node)
{
    if (node->count < node->capacity) return LK_OK;
    int capacity = node->capacity ? 2 * node->capacity : 4;
    lki_entry *entries = LKI_ARENA_NEW_ARRAY(&tree->arena, lki_entry, capacity);
    if (!entries) return LK_ERR_NOMEM;
    if (node->count) memcpy(entries, node->entries, sizeof *entries * (size_t)node->count);
    node->entries = entries;
    node->capacity = capacity;
    return LK_OK;
}

lk_status lki_node_add(lki_tree *tree, lki_node *node, const char *key, lki_place place, lki_node *value)
{
    LKI_TRY(reserve_entry(tree, node));
    node->entries[node->count++] = (lki_entry){.key = key, .place = place, .value = value};
    return LK_OK;
}

const lki_entry *lki_node_entry(const lki_node *node, const char *key)
{
    if (!node || node->kind != LKI_NODE_MAP) return NULL;
    for (int i = 0; i < node->count; i++)
        if (!strcmp(node->entries[i].key, key)) return &node->entries[i];
    return NULL;
}

lki_node *lki_node_get(const lki_node *node, const char *key)
{
    const lki_entry *entry = lki_node_entry(node, key);
    return entry ? entry->value : NULL;
}

const char *lki_place_text(lki_place place, char *buffer, size_t capacity)
{
    if (place.line > 0)
        snprintf(buffer, capacity, "%s:%d", place.file, place.line);
    else
        snprintf(buffer, capacity, "%s", place.file ? place.file : "config");
    return buffer;
}

lk_status lki_fail_at(lki_place place, const char *format, ...)
{
    char where[LKI_PLACE_CAPACITY], sentence[768];
    va_list arguments;
    va_start(arguments, format);
    lki_vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    return lki_fail(LK_ERR_CONFIG, "%s: %s", lki_place_text(place, where, sizeof where), sentence);
}
