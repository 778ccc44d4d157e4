/* libyaml's events into nodes. */
#include "config/tree/tree.h"

#include "base/memory.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

enum { MAX_DEPTH = 200, MAX_FILE_NBYTES = 64 << 20 };

typedef struct anchor {
    struct anchor *older;
    const char *name;
    lki_node *node;
} anchor;

typedef struct reader {
    lki_tree *tree;
    yaml_parser_t parser;
    const char *file, *text;
    anchor *anchors;
    int depth;
    bool has_lines; /* false for a value from the command line, whose one line needs no number */
} reader;

static lki_place place_of(const reader *r, yaml_mark_t mark)
{
    if (!r->has_lines) return (lki_place){.file = r->file};
    return (lki_place){.file = r->file, .line = (int)mark.line + 1, .column = (int)mark.column + 1};
}

/* libyaml tells where a byte that is no UTF-8 stands by its offset alone. */
static int line_of_offset(const reader *r, size_t offset)
{
    int line = 1;
    for (size_t i = 0; i < offset && r->text[i]; i++) line += r->text[i] == '\n';
    return line;
}

static lk_status fail_yaml(const reader *r)
{
    const yaml_parser_t *p = &r->parser;
    const char *problem = p->problem ? p->problem : "not YAML";
    if (p->error == YAML_MEMORY_ERROR) return lki_fail(LK_ERR_NOMEM, "%s: out of memory", r->file);
    if (p->error == YAML_READER_ERROR)
        return lki_fail_at((lki_place){.file = r->file, .line = line_of_offset(r, p->problem_offset)}, "%s",
                           problem);
    if (p->context && r->has_lines)
        return lki_fail_at(place_of(r, p->problem_mark), "%s %s (line %d)", problem, p->context,
                           (int)p->context_mark.line + 1);
    return lki_fail_at(place_of(r, p->problem_mark), "%s", problem);
}

static lk_status next_event(reader *r, yaml_event_t *event)
{
    return yaml_parser_parse(&r->parser, event) ? LK_OK : fail_yaml(r);
}

static lk_status remember_anchor(reader *r, const yaml_char_t *name, lki_node *node)
{
    if (!name) return LK_OK;
    anchor *fresh = LKI_ARENA_NEW(&r->tree->arena, anchor);
    if (!fresh) return LK_ERR_NOMEM;
    fresh->name = lki_arena_strdup(&r->tree->arena, (const char *)name);
    if (!fresh->name) return LK_ERR_NOMEM;
    fresh->node = node;
    fresh->older = r->anchors;
    r->anchors = fresh;
    return LK_OK;
}

static lk_status read_alias(reader *r, const yaml_event_t *event, lki_node **out)
{
    const char *name = (const char *)event->data.alias.anchor;
    for (anchor *a = r->anchors; a; a = a->older)
        if (!strcmp(a->name, name)) {
            *out = lki_node_create(r->tree, LKI_NODE_ALIAS, place_of(r, event->start_mark));
            if (!*out) return lki_last_status();
            (*out)->target = a->node;
            return LK_OK;
        }
    return lki_fail_at(place_of(r, event->start_mark), "alias *%s: there is no anchor &%s before it", name,
                       name);
}

/* The tags that mean something here are YAML's own; they decide whether a scalar is a string or is to be
 * resolved. */
static lk_status apply_tag(const reader *r, const yaml_event_t *event, const yaml_char_t *tag, lki_node *node)
{
    static const char *const known[] = {"int", "float", "bool",         "null", "seq",
                                        "map", "omap",  "python/tuple", NULL};
    const char *prefix = "tag:yaml.org,2002:", *text = (const char *)tag;
    if (!text || !strcmp(text, "!")) return LK_OK;
    if (!strncmp(text, prefix, strlen(prefix))) {
        const char *name = text + strlen(prefix);
        bool is_string = !strcmp(name, "str");
        if (is_string) node->quoted = true;
        if (is_string) return LK_OK;
        for (int i = 0; known[i]; i++)
            if (!strcmp(name, known[i])) return node->quoted = false, LK_OK;
    }
    return lki_fail_at(place_of(r, event->start_mark), "unknown tag %s", text);
}

static lk_status read_scalar(reader *r, const yaml_event_t *event, lki_node **out)
{
    const char *value = (const char *)event->data.scalar.value;
    if (strlen(value) != event->data.scalar.length)
        return lki_fail_at(place_of(r, event->start_mark), "a string contains a NUL character");
    lki_node *node = lki_node_create(r->tree, LKI_NODE_SCALAR, place_of(r, event->start_mark));
    if (!node) return lki_last_status();
    node->quoted = event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    node->text = lki_arena_strdup(&r->tree->arena, value);
    if (!node->text) return LK_ERR_NOMEM;
    *out = node;
    LKI_TRY(apply_tag(r, event, event->data.scalar.tag, node));
    return remember_anchor(r, event->data.scalar.anchor, node);
}

static lk_status read_node(reader *r, const yaml_event_t *event, lki_node **out);

static lk_status read_list(reader *r, const yaml_event_t *start, lki_node **out)
{
    lki_node *list = lki_node_create(r->tree, LKI_NODE_LIST, place_of(r, start->start_mark));
    if (!list) return lki_last_status();
    list->flow = start->data.sequence_start.style == YAML_FLOW_SEQUENCE_STYLE;
    LKI_TRY(apply_tag(r, start, start->data.sequence_start.tag, list));
    for (;;) {
        yaml_event_t event;
        lki_node *item = NULL;
        LKI_TRY(next_event(r, &event));
        bool at_end = event.type == YAML_SEQUENCE_END_EVENT;
        lki_place place = place_of(r, event.start_mark);
        lk_status status = at_end ? LK_OK : read_node(r, &event, &item);
        yaml_event_delete(&event);
        LKI_TRY(status);
        if (at_end) break;
        LKI_TRY(lki_node_add(r->tree, list, NULL, place, item));
    }
    *out = list;
    return remember_anchor(r, start->data.sequence_start.anchor, list);
}

static lk_status add_pair(reader *r, lki_node *map, const lki_node *key, lki_node *value)
{
    if (key->kind != LKI_NODE_SCALAR)
        return lki_fail_at(key->place, "a key must be a word, not a list or a map");
    if (!key->quoted && !strcmp(key->text, "<<")) {
        if (!map->inherits) map->inherits = lki_node_create(r->tree, LKI_NODE_LIST, key->place);
        if (!map->inherits) return lki_last_status();
        return lki_node_add(r->tree, map->inherits, NULL, key->place, value);
    }
    const lki_entry *same = lki_node_entry(map, key->text);
    if (same)
        return lki_fail_at(key->place, "the key \"%s\" is already given in line %d", key->text,
                           same->place.line);
    return lki_node_add(r->tree, map, key->text, key->place, value);
}

/* The next node of a map; *out stays NULL at the map's end. */
static lk_status read_in_map(reader *r, lki_node **out)
{
    yaml_event_t event;
    LKI_TRY(next_event(r, &event));
    lk_status status = event.type == YAML_MAPPING_END_EVENT ? LK_OK : read_node(r, &event, out);
    yaml_event_delete(&event);
    return status;
}

static lk_status read_map(reader *r, const yaml_event_t *start, lki_node **out)
{
    lki_node *map = lki_node_create(r->tree, LKI_NODE_MAP, place_of(r, start->start_mark));
    if (!map) return lki_last_status();
    map->flow = start->data.mapping_start.style == YAML_FLOW_MAPPING_STYLE;
    LKI_TRY(apply_tag(r, start, start->data.mapping_start.tag, map));
    for (;;) {
        lki_node *key = NULL, *value = NULL;
        LKI_TRY(read_in_map(r, &key));
        if (!key) break;
        LKI_TRY(read_in_map(r, &value));
        if (!value) return lki_fail_at(key->place, "a key without a value");
        LKI_TRY(add_pair(r, map, key, value));
    }
    *out = map;
    return remember_anchor(r, start->data.mapping_start.anchor, map);
}

static lk_status read_node(reader *r, const yaml_event_t *event, lki_node **out)
{
    if (++r->depth > MAX_DEPTH)
        return lki_fail_at(place_of(r, event->start_mark), "nested more than %d levels deep", MAX_DEPTH);
    lk_status status;
    switch (event->type) {
    case YAML_ALIAS_EVENT: status = read_alias(r, event, out); break;
    case YAML_SCALAR_EVENT: status = read_scalar(r, event, out); break;
    case YAML_SEQUENCE_START_EVENT: status = read_list(r, event, out); break;
    case YAML_MAPPING_START_EVENT: status = read_map(r, event, out); break;
    default: status = lki_fail_at(place_of(r, event->start_mark), "not a value"); break;
    }
    r->depth--;
    return status;
}

/* The stream: one document, whose root is a map. */
static lk_status read_stream(reader *r, lki_node **root)
{
    for (;;) {
        yaml_event_t event;
        LKI_TRY(next_event(r, &event));
        lk_status status = LK_OK;
        yaml_event_type_t type = event.type;
        switch (type) {
        case YAML_STREAM_START_EVENT:
        case YAML_DOCUMENT_START_EVENT:
        case YAML_DOCUMENT_END_EVENT:
        case YAML_STREAM_END_EVENT: break;
        default:
            if (*root)
                status =
                    lki_fail_at(place_of(r, event.start_mark), "a second document begins; a config is one");
            else
                status = read_node(r, &event, root);
        }
        yaml_event_delete(&event);
        LKI_TRY(status);
        if (type == YAML_STREAM_END_EVENT) return LK_OK;
    }
}

static lk_status parse(reader *r, size_t nbytes, lki_node **root)
{
    if (!yaml_parser_initialize(&r->parser)) return lki_fail(LK_ERR_NOMEM, "%s: out of memory", r->file);
    yaml_parser_set_input_string(&r->parser, (const unsigned char *)r->text, nbytes);
    lk_status status = read_stream(r, root);
    yaml_parser_delete(&r->parser);
    return status;
}

static lk_status read_value(lki_tree *tree, const char *name, bool has_lines, const char *text, size_t nbytes,
                            lki_node **out)
{
    reader r = {.tree = tree, .text = text, .has_lines = has_lines};
    *out = NULL;
    r.file = lki_arena_strdup(&tree->arena, name);
    return r.file ? parse(&r, nbytes, out) : LK_ERR_NOMEM;
}

lk_status lki_tree_read_value(lki_tree *tree, const char *name, const char *text, lki_node **out)
{
    LKI_TRY(read_value(tree, name, false, text, strlen(text), out));
    if (*out) return LK_OK;
    *out = lki_node_create(tree, LKI_NODE_SCALAR, (lki_place){.file = name});
    if (!*out) return lki_last_status();
    (*out)->text = "";
    return LK_OK;
}

lk_status lki_tree_read_text(lki_tree *tree, const char *name, const char *text, size_t nbytes)
{
    lki_node *root;
    LKI_TRY(read_value(tree, name, true, text, nbytes, &root));
    if (!root || lki_node_is_null(root)) return lki_fail(LK_ERR_CONFIG, "%s: the config is empty", name);
    if (root->kind != LKI_NODE_MAP) return lki_fail_at(root->place, "a config is a map of keys and values");
    return lki_tree_merge(tree, root);
}

static lk_status read_stream_fully(FILE *file, const char *path, char **text, size_t *nbytes)
{
    size_t capacity = 1 << 14, length = 0;
    char *buffer = lki_calloc(capacity, "a config file");
    if (!buffer) return LK_ERR_NOMEM;
    while (!feof(file) && !ferror(file)) {
        length += fread(buffer + length, 1, capacity - 1 - length, file);
        if (length + 1 < capacity) continue;
        char *grown = capacity < MAX_FILE_NBYTES ? lki_realloc(buffer, 2 * capacity, "a config file") : NULL;
        if (!grown) {
            lki_free(buffer);
            return lki_fail(LK_ERR_CONFIG, "%s: too large for a config file", path);
        }
        buffer = grown;
        capacity *= 2;
    }
    if (ferror(file)) {
        lki_free(buffer);
        return lki_fail(LK_ERR_IO, "%s: could not be read: %s", path, strerror(errno));
    }
    buffer[length] = 0;
    *text = buffer;
    *nbytes = length;
    return LK_OK;
}

lk_status lki_tree_read_file(lki_tree *tree, const char *path)
{
    char *text = NULL;
    size_t nbytes = 0;
    FILE *file = fopen(path, "rb");
    if (!file) {
        lk_status status = errno == ENOENT ? LK_ERR_NOT_FOUND : LK_ERR_IO;
        return lki_fail(status, "%s: the config could not be opened: %s", path, strerror(errno));
    }
    lk_status status = read_stream_fully(file, path, &text, &nbytes);
    fclose(file);
    LKI_TRY(status);
    status = lki_tree_read_text(tree, path, text, nbytes);
    lki_free(text);
    return status;
}
