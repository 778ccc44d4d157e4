/* A config as a tree: YAML (and JSON, which is YAML) read into scalars, lists and maps, each with the place
 * it came from.
 *
 * Every node and string lives in the tree's arena and dies with it. Scalars stay text until somebody asks for
 * a number or a boolean: `train: y` is the string "y" for one who wants a string and true for one who wants a
 * boolean.
 *
 * A tree is held twice. `source` is what was written, with its aliases and merge keys (`<<`): files are
 * merged and values overridden there, so that an alias follows its anchor, except where it was overridden
 * itself. `root` is what that means: aliases copied, merge keys applied, no two places sharing a node. It is
 * made anew after each change, and all that read a config read it. Not thread-safe. */
#ifndef LKI_CONFIG_TREE_TREE_H
#define LKI_CONFIG_TREE_TREE_H

#include "base/arena.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Only a tree's source has aliases. */
typedef enum lki_node_kind { LKI_NODE_SCALAR, LKI_NODE_LIST, LKI_NODE_MAP, LKI_NODE_ALIAS } lki_node_kind;

/* Where a node or a key stands: the file as the user named it (or an override's text), and lines from 1 (0:
 * no file). */
typedef struct lki_place {
    const char *file;
    int line, column;
} lki_place;

typedef struct lki_node lki_node;
typedef struct lki_object lki_object;

/* One item of a list (key is NULL) or one pair of a map. */
typedef struct lki_entry {
    const char *key;
    lki_place place;
    lki_node *value;
} lki_entry;

struct lki_node {
    lki_node_kind kind;
    bool quoted; /* a scalar in quotes: never a number, a boolean or null */
    bool flow;   /* a list or map written in one line: [1, 2] */
    /* Of `inherits`: nobody wrote `<<`. The map was an alias, and follows what that stood for while it is a
     * map. */
    bool implied;
    lki_place place;
    const char *text; /* scalars */
    int count, capacity;
    lki_entry *entries; /* lists and maps */

    /* Of a tree's source: what an alias stands for, and the values of a map's merge keys, as a list. */
    lki_node *target, *inherits;
    /* The node's copy in the tree's latest copy of its source, where the rounds are the same. */
    lki_node *copy;
    int copy_round;

    /* What build.c makes of the node: the object it stands for, and the attribute of it that is meant
     * ("parameters"). */
    lki_object *object;
    const char *attribute;
};

/* Zero is an empty tree. */
typedef struct lki_tree {
    lki_arena arena;
    lki_node *source, *root;
    int node_count, copy_round;
} lki_tree;

void lki_tree_fini(lki_tree *tree);

/* Reads a file (or text that is called `name` in messages) and merges it over what the tree holds: maps key
 * by key, lists and scalars replaced. The tree is unchanged where the file is wrong. */
lk_status lki_tree_read_file(lki_tree *tree, const char *path);
lk_status lki_tree_read_text(lki_tree *tree, const char *name, const char *text, size_t nbytes);

/* Applies "a/b/0=VALUE" or "a/b/0=VALUE:type" with a type of int, float, bool, str, list or dict. Missing
 * maps on the way are made; a list's index must exist. A first part that is no key at the top is meant in the
 * runner or in the one call that has it, or else would take it; a part that none of them knows is an error,
 * unless the tree has neither runner nor calls. The tree is unchanged where it fails. `name` is the text for
 * messages ("--a/b/0=1"). */
lk_status lki_tree_override(lki_tree *tree, const char *name, const char *assignment);

/* One value of the tree's arena from a line of text, for overrides; it is not put into the tree. */
lk_status lki_tree_read_value(lki_tree *tree, const char *name, const char *text, lki_node **out);

/* The tree as YAML in block style, order kept. The caller frees the text with lki_free. */
lk_status lki_tree_to_yaml(const lki_tree *tree, char **text);

/* Building blocks of the above, and for tests. Nodes are made in the tree's arena; NULL and an error where it
 * fails. */
lki_node *lki_node_create(lki_tree *tree, lki_node_kind kind, lki_place place);
lk_status lki_node_add(lki_tree *tree, lki_node *node, const char *key, lki_place place, lki_node *value);

/* tree_source.c: what the source means, into `root`. */
lk_status lki_tree_resolve(lki_tree *tree);
/* Merges another source over the tree's and resolves; the tree is unchanged where `over` is wrong. */
lk_status lki_tree_merge(lki_tree *tree, lki_node *over);
/* Puts a copy in the place of the source, aliases and all. A change that may fail half-way is made to the
 * copy; the source of before stays whole for one who puts it back. */
lk_status lki_source_copy(lki_tree *tree);
/* What a node of the source means; NULL and an error where it fails. */
lki_node *lki_source_value(lki_tree *tree, const lki_node *node);
/* An alias of the source becomes a node of its own, so that one can change what is below it: a map inherits
 * from what the alias stood for, a list's items are aliases of its items. */
lk_status lki_source_own(lki_tree *tree, lki_node *node);
/* The entry of a map of the source; an inherited one becomes an entry of the map's own, an alias. *out is
 * NULL where there is none. */
lk_status lki_source_entry(lki_tree *tree, lki_node *map, const char *key, lki_entry **out);

/* The value under a key; NULL where the node is no map or has no such key. */
lki_node *lki_node_get(const lki_node *node, const char *key);
const lki_entry *lki_node_entry(const lki_node *node, const char *key);

/* null, ~, nothing at all: as if the key were not there. A NULL node counts. */
bool lki_node_is_null(const lki_node *node);

/* Typed readers. `key` is the name in the message: `mnist.yml:14: lr: expected a number, found "fast"`. */
lk_status lki_node_int(const lki_node *node, const char *key, int64_t *out);
lk_status lki_node_float(const lki_node *node, const char *key, double *out);
lk_status lki_node_bool(const lki_node *node, const char *key, bool *out);
lk_status lki_node_string(const lki_node *node, const char *key, const char **out);

/* The same readings on text; false where it is none. */
bool lki_parse_int(const char *text, int64_t *out);
bool lki_parse_float(const char *text, double *out);
bool lki_parse_bool(const char *text, bool *out);

/* Fails with LK_ERR_CONFIG and "file:line: sentence". */
lk_status lki_fail_at(lki_place place, const char *format, ...) LKI_PRINTF(2, 3);

/* "file:line" into the buffer, which is returned. */
const char *lki_place_text(lki_place place, char *buffer, size_t capacity);

/* What a node is, for "expected ..., found ...": `"fast"`, `a list`, `a map`, `nothing`. */
const char *lki_node_describe(const lki_node *node, char *buffer, size_t capacity);

enum { LKI_PLACE_CAPACITY = 320, LKI_DESCRIBE_CAPACITY = 96 };

#endif
