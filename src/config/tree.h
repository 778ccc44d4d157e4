/* A config as a tree: YAML (and JSON, which is YAML) read into scalars, lists and maps, each with the place
 * it came from.
 *
 * Every node and string lives in the tree's arena and dies with it. Scalars stay text until somebody asks for
 * a number or a boolean: `train: y` is the string "y" for one who wants a string and true for one who wants a
 * boolean. Aliases are copied and merge keys (`<<`) are applied while reading, so that no two places share a
 * node and merging can work in place. Not thread-safe. */
#ifndef LKI_CONFIG_TREE_H
#define LKI_CONFIG_TREE_H

#include "base/arena.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum lki_node_kind { LKI_NODE_SCALAR, LKI_NODE_LIST, LKI_NODE_MAP } lki_node_kind;

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
    lki_place place;
    const char *text; /* scalars */
    int count, capacity;
    lki_entry *entries; /* lists and maps */

    /* What build.c makes of the node: the object it stands for, and the attribute of it that is meant
     * ("parameters"). */
    lki_object *object;
    const char *attribute;
};

/* Zero is an empty tree. */
typedef struct lki_tree {
    lki_arena arena;
    lki_node *root;
    int node_count;
} lki_tree;

void lki_tree_fini(lki_tree *tree);

/* Reads a file (or text that is called `name` in messages) and merges it over what the tree holds: maps key
 * by key, lists and scalars replaced. The tree is unchanged on failure. */
lk_status lki_tree_read_file(lki_tree *tree, const char *path);
lk_status lki_tree_read_text(lki_tree *tree, const char *name, const char *text, size_t nbytes);

/* Applies "a/b/0=VALUE" or "a/b/0=VALUE:type" with a type of int, float, bool, str, list or dict. Missing
 * maps on the way are made; a list's index must exist. A first part that is no key at the top is meant in the
 * runner or in the one call that has it, or else would take it; a part that none of them knows is an error,
 * unless the tree has neither runner nor calls. `name` is the text for messages ("--a/b/0=1"). */
lk_status lki_tree_override(lki_tree *tree, const char *name, const char *assignment);

/* One value of the tree's arena from a line of text, for overrides; it is not put into the tree. */
lk_status lki_tree_read_value(lki_tree *tree, const char *name, const char *text, lki_node **out);

/* The tree as YAML in block style, order kept. The caller frees the text with lki_free. */
lk_status lki_tree_to_yaml(const lki_tree *tree, char **text);

/* Building blocks of the above, and for tests. Nodes are made in the tree's arena; NULL and an error where it
 * fails. */
lki_node *lki_node_create(lki_tree *tree, lki_node_kind kind, lki_place place);
lki_node *lki_node_copy(lki_tree *tree, const lki_node *node);
lk_status lki_node_add(lki_tree *tree, lki_node *node, const char *key, lki_place place, lki_node *value);
lk_status lki_node_merge(lki_tree *tree, lki_node *base, const lki_node *over);

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
