/* Nodes into libyaml's emitter. */
#include "config/tree/tree.h"

#include "base/memory.h"

#include <string.h>
#include <yaml.h>

typedef struct sink {
    char *text;
    size_t length, capacity;
} sink;

static int append(void *context, unsigned char *bytes, size_t nbytes)
{
    sink *s = context;
    if (s->length + nbytes + 1 > s->capacity) {
        size_t capacity = 2 * (s->capacity + nbytes + 1);
        char *grown = lki_realloc(s->text, capacity, "a config's text");
        if (!grown) return 0;
        s->text = grown;
        s->capacity = capacity;
    }
    memcpy(s->text + s->length, bytes, nbytes);
    s->length += nbytes;
    s->text[s->length] = 0;
    return 1;
}

static bool emit(yaml_emitter_t *emitter, yaml_event_t *event, int initialized)
{
    return initialized && yaml_emitter_emit(emitter, event);
}

/* A plain scalar is written plain again; libyaml quotes it where plain would not read back as the same text.
 */
static bool emit_scalar(yaml_emitter_t *emitter, const char *text, bool quoted)
{
    yaml_event_t event;
    yaml_scalar_style_t style = quoted ? YAML_DOUBLE_QUOTED_SCALAR_STYLE : YAML_PLAIN_SCALAR_STYLE;
    return emit(emitter, &event,
                yaml_scalar_event_initialize(&event, NULL, NULL, (yaml_char_t *)text, (int)strlen(text), 1, 1,
                                             style));
}

static bool emit_node(yaml_emitter_t *emitter, const lki_node *node);

static bool emit_list(yaml_emitter_t *emitter, const lki_node *node)
{
    yaml_event_t event;
    yaml_sequence_style_t style = node->flow ? YAML_FLOW_SEQUENCE_STYLE : YAML_BLOCK_SEQUENCE_STYLE;
    if (!emit(emitter, &event, yaml_sequence_start_event_initialize(&event, NULL, NULL, 1, style)))
        return false;
    for (int i = 0; i < node->count; i++)
        if (!emit_node(emitter, node->entries[i].value)) return false;
    return emit(emitter, &event, yaml_sequence_end_event_initialize(&event));
}

static bool emit_map(yaml_emitter_t *emitter, const lki_node *node)
{
    yaml_event_t event;
    yaml_mapping_style_t style = node->flow ? YAML_FLOW_MAPPING_STYLE : YAML_BLOCK_MAPPING_STYLE;
    if (!emit(emitter, &event, yaml_mapping_start_event_initialize(&event, NULL, NULL, 1, style)))
        return false;
    for (int i = 0; i < node->count; i++) {
        const char *key = node->entries[i].key;
        /* A plain << would be read as a merge key. */
        if (!emit_scalar(emitter, key, !strcmp(key, "<<"))) return false;
        if (!emit_node(emitter, node->entries[i].value)) return false;
    }
    return emit(emitter, &event, yaml_mapping_end_event_initialize(&event));
}

static bool emit_node(yaml_emitter_t *emitter, const lki_node *node)
{
    if (node->kind == LKI_NODE_LIST) return emit_list(emitter, node);
    if (node->kind == LKI_NODE_MAP) return emit_map(emitter, node);
    /* An empty plain scalar is null; spelled out, it stays null in every place. */
    const char *text = node->quoted || *node->text ? node->text : "null";
    return emit_scalar(emitter, text, node->quoted);
}

static bool emit_document(yaml_emitter_t *emitter, const lki_node *root)
{
    yaml_event_t event;
    return emit(emitter, &event, yaml_stream_start_event_initialize(&event, YAML_UTF8_ENCODING)) &&
           emit(emitter, &event, yaml_document_start_event_initialize(&event, NULL, NULL, NULL, 1)) &&
           emit_node(emitter, root) && emit(emitter, &event, yaml_document_end_event_initialize(&event, 1)) &&
           emit(emitter, &event, yaml_stream_end_event_initialize(&event));
}

lk_status lki_tree_to_yaml(const lki_tree *tree, char **text)
{
    sink s = {0};
    yaml_emitter_t emitter;
    if (!tree->root) return lki_fail(LK_ERR_CONFIG, "the config is empty");
    if (!yaml_emitter_initialize(&emitter))
        return lki_fail(LK_ERR_NOMEM, "out of memory for the config's text");
    yaml_emitter_set_output(&emitter, append, &s);
    yaml_emitter_set_unicode(&emitter, 1);
    yaml_emitter_set_width(&emitter, 120);
    bool done = emit_document(&emitter, tree->root);
    lk_status status = LK_OK;
    if (!done)
        status = lki_fail(LK_ERR_CONFIG, "the config could not be written: %s",
                          emitter.problem ? emitter.problem : "out of memory");
    yaml_emitter_delete(&emitter);
    if (status) {
        lki_free(s.text);
        return status;
    }
    *text = s.text;
    return LK_OK;
}
