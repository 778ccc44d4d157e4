#include "nn/describe.h"

#include "base/memory.h"
#include "base/status.h"
#include "graph/graph.h"
#include "nn/module.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static json_t *shape_of(lk_shape shape)
{
    json_t *dims = json_array();
    for (int i = 0; i < shape.rank; i++) json_array_append_new(dims, json_integer(shape.dim[i]));
    return dims;
}

/* ---- Layers ---- */

static void forget_recording(lk_module *module)
{
    module->was_recorded = false;
    for (int i = 0; i < module->child_count; i++) forget_recording(module->children[i].module);
}

static lk_status add_layers(json_t *layers, const lk_module *module, const char *path)
{
    json_t *layer = json_object();
    json_object_set_new(layer, "path", json_string(path));
    json_object_set_new(layer, "type", json_string(module->type));
    json_object_set_new(layer, "shape", module->was_recorded ? shape_of(module->output_shape) : json_null());
    json_object_set_new(layer, "parameters", json_integer(lk_module_param_count(module)));
    json_array_append_new(layers, layer);
    for (int i = 0; i < module->child_count; i++) {
        const char *name = module->children[i].name;
        LKI_SCOPED char *below = *path ? lki_format("%s.%s", path, name) : lki_strdup(name);
        if (!below) return LK_ERR_NOMEM;
        LKI_TRY(add_layers(layers, module->children[i].module, below));
    }
    return LK_OK;
}

/* ---- Nodes ---- */

/* "encoder.0" of "layer encoder.0 (Linear)". */
static char *layer_of(const lki_node *node)
{
    static const char before[] = "layer ";
    const char *scope = node->scope ? node->scope : "";
    if (strncmp(scope, before, sizeof before - 1) != 0) return lki_strdup(""); /* the root's own ops */
    scope += sizeof before - 1;
    const char *end = strstr(scope, " (");
    return lki_strndup(scope, end ? (size_t)(end - scope) : strlen(scope));
}

static bool is_shown(const lki_node *node)
{
    return node->op == LK_OP_INPUT || !(lk_op_flags(node->op) & LK_OP_IS_LEAF);
}

#define NAME_LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-/"

/* "encoder/0/linear", and "encoder/0/linear_1" for the next one there. `taken` counts names. */
static char *name_node(const lki_node *node, const char *layer, json_t *taken)
{
    bool is_input = node->op == LK_OP_INPUT && node->out[0]->name;
    const char *op = is_input ? node->out[0]->name : lk_op_name(node->op);
    char *base = *layer ? lki_format("%s/%s", layer, op) : lki_strdup(op);
    if (!base) return NULL;
    for (char *c = base; *c; c++)
        if (*c == '.')
            *c = '/';
        else if (!strchr(NAME_LETTERS, *c))
            *c = '_';
    json_int_t count = json_integer_value(json_object_get(taken, base));
    json_object_set_new(taken, base, json_integer(count + 1));
    if (count == 0) return base;
    char *name = lki_format("%s_%lld", base, (long long)count);
    lki_free(base);
    return name;
}

static json_t *inputs_of(const lki_node *node, char *const *names)
{
    json_t *inputs = json_array();
    for (int i = 0; i < node->input_count; i++) {
        const char *name = node->in[i] ? names[node->in[i]->node->order] : NULL;
        if (name) json_array_append_new(inputs, json_string(name));
    }
    return inputs;
}

static lk_status add_nodes(json_t *nodes, const lk_graph *graph, char **names)
{
    json_t *taken = json_object();
    lk_status status = LK_OK;
    for (const lki_node *node = graph->first; node && !status; node = node->next) {
        if (!is_shown(node)) continue;
        LKI_SCOPED char *layer = layer_of(node);
        char *name = layer ? name_node(node, layer, taken) : NULL;
        names[node->order] = name;
        if (!name) status = LK_ERR_NOMEM;
        if (status) break;
        json_t *one = json_object();
        json_object_set_new(one, "name", json_string(name));
        json_object_set_new(one, "op", json_string(lk_op_name(node->op)));
        json_object_set_new(one, "layer", json_string(layer));
        json_object_set_new(one, "inputs", inputs_of(node, names));
        json_object_set_new(one, "shape", shape_of(node->out[0]->shape));
        json_object_set_new(one, "dtype", json_string(lk_dtype_name(node->out[0]->dtype)));
        json_array_append_new(nodes, one);
    }
    json_decref(taken);
    return status;
}

static lk_status describe_graph(json_t *nodes, lk_graph *graph)
{
    int count = 0;
    lki_graph_number(graph);
    for (const lki_node *node = graph->first; node; node = node->next)
        if (node->order >= count) count = node->order + 1;
    char **names = LKI_NEW_ARRAY(char *, count + 1);
    if (!names) return LK_ERR_NOMEM;
    lk_status status = add_nodes(nodes, graph, names);
    for (int i = 0; i < count; i++) lki_free(names[i]);
    lki_free(names);
    return status;
}

lk_status lki_module_describe(lk_module *module, lk_dtype dtype, lk_shape shape, char **json)
{
    *json = NULL;
    lk_graph *graph = lk_graph_create(false);
    if (!graph) return LK_ERR_NOMEM;
    json_t *layers = json_array(), *nodes = json_array();
    forget_recording(module);
    lk_value *y = lk_module_forward(module, lk_graph_input(graph, "input", dtype, shape));
    lk_status status = LK_OK;
    if (!y) status = graph->status != LK_OK ? lki_fail(graph->status, "%s", graph->error) : LK_ERR_INVALID;
    if (!status) status = add_layers(layers, module, "");
    if (!status) status = describe_graph(nodes, graph);
    lk_graph_free(graph);
    json_t *document = json_pack("{s:o,s:o}", "layers", layers, "nodes", nodes);
    char *text = !status && document ? json_dumps(document, JSON_COMPACT) : NULL;
    json_decref(document);
    if (!status && text) *json = lki_strdup(text);
    if (!status && !*json) status = lki_fail(LK_ERR_NOMEM, "the description of the model");
    free(text);
    return status;
}
