/* A graph of named modules.
 *
 * Values are numbered: first the inputs of the graph, then the nodes in the order in which they were given.
 * The context is one block of plain bytes, so that a graph can be cloned: the counts, then for each node, in
 * the order in which they run, its value, its child and the values that it takes (-1: left out), then the
 * outputs, then the names of the outputs. */
#include "nn/module.h"
#include "nn/nodes.h"

#include "base/memory.h"
#include "base/status.h"
#include "base/suggest.h"
#include "base/take.h"
#include "graph/graph.h"

#include <stdio.h>
#include <string.h>

typedef struct graph_context {
    int input_count, node_count, output_count;
    int outputs_at, names_at; /* places in `numbers` */
    int numbers[];            /* per node: value, child, count, its inputs */
} graph_context;

/* What is known while a graph is being made. */
typedef struct maker {
    lk_node_list nodes;
    lk_node_graph_options options;
    const char *inputs, *outputs;
    int input_count, output_count;
    int *child;   /* by node */
    char *state;  /* by node: 0 not seen, 1 on the path that is being walked, 2 placed */
    int *parent;  /* by node: who asked for it, on the path */
    char *used;   /* by value */
    int *numbers; /* of the context */
    int number_count;
    int adopted; /* nodes whose modules have been handed to the graph */
} maker;

/* ---- names in a text ---- */

static const char separators[] = " ,\t\n";

/* The next name at *at, its length in *length; NULL at the end. */
static const char *next_name(const char **at, size_t *length)
{
    const char *begin = *at + strspn(*at, separators);
    *length = strcspn(begin, separators);
    *at = begin + *length;
    return *length ? begin : NULL;
}

static int count_names(const char *text)
{
    size_t length;
    int count = 0;
    while (next_name(&text, &length)) count++;
    return count;
}

static bool is_name(const char *name, const char *text, size_t length)
{
    return strlen(name) == length && !memcmp(name, text, length);
}

/* The value that a name stands for; -1: none. */
static int find_value(const maker *make, const char *name, size_t length)
{
    const char *at = make->inputs, *input;
    size_t input_length;
    for (int i = 0; (input = next_name(&at, &input_length)); i++)
        if (input_length == length && !memcmp(input, name, length)) return i;
    for (int i = 0; i < make->nodes.count; i++)
        if (is_name(make->nodes.items[i].name, name, length)) return make->input_count + i;
    return -1;
}

static lk_status fail_unknown_name(const maker *make, const char *where, const char *name, size_t length)
{
    char text[128], near[160];
    snprintf(text, sizeof text, "%.*s", (int)length, name);
    lki_suggestion suggestion = {.wanted = text};
    for (int i = 0; i < make->nodes.count; i++) lki_suggest_offer(&suggestion, make->nodes.items[i].name);
    return lki_fail(LK_ERR_INVALID, "Graph: %s: there is no node or input \"%s\"%s", where, text,
                    lki_suggest_text(&suggestion, near, sizeof near));
}

/* ---- checks ---- */

static lk_status check_node(const maker *make, int index)
{
    const lk_node *node = &make->nodes.items[index];
    if (!node->name || !*node->name || strpbrk(node->name, separators))
        return lki_fail(LK_ERR_INVALID, "Graph: node %d needs a name without spaces and commas", index);
    if (find_value(make, node->name, strlen(node->name)) != make->input_count + index)
        return lki_fail(LK_ERR_INVALID, "Graph: there are two nodes or inputs \"%s\"", node->name);
    if (!node->module && !node->same_as)
        return lki_fail(LK_ERR_INVALID, "Graph: node \"%s\" has no module", node->name);
    if (node->module && node->same_as)
        return lki_fail(LK_ERR_INVALID, "Graph: node \"%s\" has a module of its own and that of \"%s\"",
                        node->name, node->same_as);
    return LK_OK;
}

static lk_status check_names(maker *make)
{
    if (make->nodes.count < 1) return lki_fail(LK_ERR_INVALID, "Graph: expected at least one node");
    if (make->input_count < 1) return lki_fail(LK_ERR_INVALID, "Graph: expected at least one input");
    for (int i = 0; i < make->nodes.count; i++) LKI_TRY(check_node(make, i));
    const char *at = make->inputs, *name;
    size_t length;
    for (int i = 0; (name = next_name(&at, &length)); i++)
        if (find_value(make, name, length) != i)
            return lki_fail(LK_ERR_INVALID, "Graph: there are two inputs \"%.*s\"", (int)length, name);
    return LK_OK;
}

/* The modules become children; a node with same_as gets the child of the other. */
static lk_status adopt(maker *make, lk_module *graph)
{
    for (int i = 0; i < make->nodes.count; i++) {
        const lk_node *node = &make->nodes.items[i];
        make->adopted = i + 1;
        if (!node->module) continue;
        make->child[i] = graph->child_count;
        LKI_TRY(lk_module_add_child(graph, node->name, node->module));
    }
    for (int i = 0; i < make->nodes.count; i++) {
        const lk_node *node = &make->nodes.items[i];
        if (node->module) continue;
        int other = find_value(make, node->same_as, strlen(node->same_as)) - make->input_count;
        if (other < 0 || !make->nodes.items[other].module)
            return lki_fail(LK_ERR_INVALID, "Graph: node \"%s\": there is no module of a node \"%s\"",
                            node->name, node->same_as);
        make->child[i] = make->child[other];
    }
    return LK_OK;
}

/* ---- the order ---- */

/* "a" needs "b" needs "a". */
static lk_status fail_cycle(const maker *make, int index)
{
    char text[512];
    size_t used = (size_t)snprintf(text, sizeof text, "\"%s\"", make->nodes.items[index].name);
    int at = index;
    do {
        at = make->parent[at];
        if (used >= sizeof text) break;
        used += (size_t)snprintf(text + used, sizeof text - used, ", which goes into \"%s\"",
                                 make->nodes.items[at].name);
    } while (at != index);
    return lki_fail(LK_ERR_INVALID, "Graph: a cycle: %s", text);
}

static lk_status place_node(maker *make, const lk_module *graph, int index);

/* Notes that the node takes a value, and places first what the value itself needs. */
static lk_status need(maker *make, const lk_module *graph, int index, int value)
{
    make->used[value] = 1;
    int node = value - make->input_count;
    if (node < 0 || make->state[node] == 2) return LK_OK;
    make->parent[node] = index;
    if (make->state[node] == 1) return fail_cycle(make, node);
    return place_node(make, graph, node);
}

/* The place of an input that a node gives by name, "attn_mask=mask". */
static lk_status find_place(const lk_node *node, const lk_module *module, const char *name, size_t length,
                            int *place)
{
    const char *at = module->input_names ? module->input_names : "", *known;
    size_t known_length;
    for (int i = 0; (known = next_name(&at, &known_length)); i++) {
        if (known_length != length || memcmp(known, name, length) != 0) continue;
        *place = i;
        return LK_OK;
    }
    return lki_fail(LK_ERR_INVALID, "Graph: node \"%s\": %s has no input \"%.*s\"%s%s", node->name,
                    module->type, (int)length, name, module->input_names ? ": it takes " : "",
                    module->input_names ? module->input_names : "");
}

/* Where the next input of a node goes, and the name of its value. */
static lk_status place_input(const lk_node *node, const lk_module *module, const char **name, size_t *length,
                             int *taken, int *next, int *place)
{
    const char *sign = memchr(*name, '=', *length);
    *place = *next;
    if (sign) {
        LKI_TRY(find_place(node, module, *name, (size_t)(sign - *name), place));
        *length -= (size_t)(sign + 1 - *name);
        *name = sign + 1;
        *next = -1;
    } else if (*next < 0)
        return lki_fail(LK_ERR_INVALID,
                        "Graph: node \"%s\": \"%.*s\" comes after a named input and has no name", node->name,
                        (int)*length, *name);
    else if (module->call && module->input_count && *next >= module->input_count)
        return lki_fail(LK_ERR_INVALID, "Graph: node \"%s\" (%s) takes %d inputs, found %d", node->name,
                        module->type, module->input_count, count_names(node->inputs));
    else
        (*next)++;
    if (taken[*place] < 0) return LK_OK;
    return lki_fail(LK_ERR_INVALID, "Graph: node \"%s\" gets one input of %s twice", node->name,
                    module->type);
}

/* The values that a node takes, by place; -1: left out. */
static lk_status take_inputs(maker *make, const lk_module *graph, int index, int *taken, int *count)
{
    const lk_node *node = &make->nodes.items[index];
    const lk_module *module = graph->children[make->child[index]].module;
    const char *at = node->inputs, *name;
    size_t length;
    char where[160];
    int next = 0;
    *count = 0;
    if (!at) {
        taken[(*count)++] = index ? make->input_count + index - 1 : 0;
        return need(make, graph, index, taken[0]);
    }
    snprintf(where, sizeof where, "node \"%s\"", node->name);
    while ((name = next_name(&at, &length))) {
        int place;
        LKI_TRY(place_input(node, module, &name, &length, taken, &next, &place));
        int value = find_value(make, name, length);
        if (value < 0) return fail_unknown_name(make, where, name, length);
        taken[place] = value;
        if (place >= *count) *count = place + 1;
        LKI_TRY(need(make, graph, index, value));
    }
    return *count ? LK_OK : lki_fail(LK_ERR_INVALID, "Graph: %s has no input", where);
}

static lk_status check_inputs(const lk_node *node, const lk_module *module, const int *taken, int count)
{
    if (count > LKI_MAX_MODULE_VALUES)
        return lki_fail(LK_ERR_INVALID, "Graph: node \"%s\": expected at most %d inputs, found %d",
                        node->name, LKI_MAX_MODULE_VALUES, count);
    if (count > 1 && !lki_module_takes_several(module))
        return lki_fail(LK_ERR_INVALID, "Graph: node \"%s\" (%s) takes one input, found %d", node->name,
                        module->type, count);
    for (int i = 0; i < count || i < module->required_inputs; i++)
        if ((i >= count || taken[i] < 0) && (!module->required_inputs || i < module->required_inputs))
            return lki_fail(LK_ERR_INVALID, "Graph: node \"%s\": input %d of %s is missing: it takes %s",
                            node->name, i + 1, module->type, module->input_names);
    return LK_OK;
}

/* How many inputs a node may have at most. */
static int most_inputs(const lk_node *node)
{
    if (!node->inputs) return 1;
    return count_names(node->inputs) + (strchr(node->inputs, '=') ? LKI_MAX_MODULE_VALUES : 0);
}

static lk_status place_node(maker *make, const lk_module *graph, int index)
{
    const lk_node *node = &make->nodes.items[index];
    int count, room = 1 + most_inputs(node), *taken = LKI_NEW_ARRAY(int, room);
    if (!taken) return LK_ERR_NOMEM;
    for (int i = 0; i < room; i++) taken[i] = -1;
    make->state[index] = 1;
    lk_status status = take_inputs(make, graph, index, taken, &count);
    if (!status) status = check_inputs(node, graph->children[make->child[index]].module, taken, count);
    if (!status) {
        make->state[index] = 2;
        int *number = make->numbers + make->number_count;
        number[0] = make->input_count + index;
        number[1] = make->child[index];
        number[2] = count;
        memcpy(number + 3, taken, sizeof *taken * (size_t)count);
        make->number_count += 3 + count;
    }
    lki_free(taken);
    return status;
}

static lk_status place_outputs(maker *make, const lk_module *graph)
{
    const char *at = make->outputs, *name;
    size_t length;
    int outputs[64], count = 0;
    while ((name = next_name(&at, &length))) {
        int value = find_value(make, name, length);
        if (value < make->input_count) return fail_unknown_name(make, "outputs", name, length);
        if (count == 64) return lki_fail(LK_ERR_INVALID, "Graph: expected at most 64 outputs");
        outputs[count++] = value;
        make->used[value] = 1;
        int node = value - make->input_count;
        if (make->state[node] == 0) LKI_TRY(place_node(make, graph, node));
    }
    make->output_count = count;
    memcpy(make->numbers + make->number_count, outputs, sizeof *outputs * (size_t)count);
    return count ? LK_OK : lki_fail(LK_ERR_INVALID, "Graph: expected at least one output");
}

static lk_status check_used(maker *make, const lk_module *graph)
{
    /* A cycle that no output needs is a cycle first of all. */
    for (int i = 0; i < make->nodes.count; i++)
        if (make->state[i] == 0) {
            int kept = make->number_count;
            LKI_TRY(place_node(make, graph, i));
            make->number_count = kept;
            return lki_fail(LK_ERR_INVALID,
                            "Graph: nobody uses node \"%s\": name it among the inputs of a node or among the "
                            "outputs, or take it out",
                            make->nodes.items[i].name);
        }
    const char *at = make->inputs, *name;
    size_t length;
    for (int i = 0; (name = next_name(&at, &length)); i++)
        if (!make->used[i])
            return lki_fail(LK_ERR_INVALID, "Graph: no node uses the input \"%.*s\"", (int)length, name);
    return LK_OK;
}

/* ---- recording ---- */

static lk_status graph_call(lk_module *module, lk_value *const *inputs, int count, lk_value **outputs,
                            int output_count)
{
    const graph_context *own = module->context;
    int value_count = own->input_count + own->node_count;
    lk_value **values = LKI_NEW_ARRAY(lk_value *, 2 * value_count + LKI_MAX_MODULE_VALUES);
    if (!values) return LK_ERR_NOMEM;
    lk_value **taken = values + value_count;
    memcpy(values, inputs, sizeof *values * (size_t)count);
    const int *number = own->numbers;
    for (int i = 0; i < own->node_count; i++, number += 3 + number[2]) {
        bool is_whole = true;
        for (int k = 0; k < number[2]; k++) {
            taken[k] = number[3 + k] < 0 ? NULL : values[number[3 + k]];
            is_whole = is_whole && (number[3 + k] < 0 || taken[k]);
        }
        lk_module *child = module->children[number[1]].module;
        if (is_whole) lk_module_call(child, taken, number[2], &values[number[0]], 1);
    }
    lk_status status = LK_OK;
    for (int i = 0; i < output_count; i++) {
        outputs[i] = values[own->numbers[own->outputs_at + i]];
        if (!outputs[i]) status = lki_last_status() ? lki_last_status() : LK_ERR_INVALID;
    }
    lki_free(values);
    return status;
}

const char *lk_node_graph_output(const lk_module *module, int index)
{
    if (!module || module->call != graph_call) return NULL;
    const graph_context *own = module->context;
    if (index < 0 || index >= own->output_count) return NULL;
    const char *name = (const char *)(own->numbers + own->names_at);
    for (; index > 0; index--) name += strlen(name) + 1;
    return name;
}

/* ---- making ---- */

static lk_status allocate(maker *make)
{
    int count = make->nodes.count, numbers = 0;
    for (int i = 0; i < count; i++) {
        numbers += 3 + most_inputs(&make->nodes.items[i]);
    }
    make->child = LKI_NEW_ARRAY(int, count);
    make->parent = LKI_NEW_ARRAY(int, count);
    make->state = LKI_NEW_ARRAY(char, count);
    make->used = LKI_NEW_ARRAY(char, count + make->input_count);
    make->numbers = LKI_NEW_ARRAY(int, numbers + 64);
    return make->child && make->parent && make->state && make->used && make->numbers ? LK_OK : LK_ERR_NOMEM;
}

/* The context from what was found; the names of the outputs lie behind the numbers. */
static lk_status set_context(const maker *make, lk_module *graph)
{
    int numbers = make->number_count + make->output_count;
    size_t names = strlen(make->outputs) + 2;
    size_t nbytes = sizeof(graph_context) + sizeof(int) * (size_t)numbers + names;
    graph_context *own = lki_calloc(nbytes, "Graph");
    if (!own) return LK_ERR_NOMEM;
    own->input_count = make->input_count;
    own->node_count = make->nodes.count;
    own->output_count = make->output_count;
    own->outputs_at = make->number_count;
    own->names_at = numbers;
    memcpy(own->numbers, make->numbers, sizeof(int) * (size_t)numbers);
    char *name = (char *)(own->numbers + numbers);
    const char *at = make->outputs, *from;
    size_t length;
    while ((from = next_name(&at, &length))) {
        memcpy(name, from, length);
        name += length + 1;
    }
    graph->input_count = make->input_count;
    graph->output_count = make->output_count;
    graph->context = own;
    graph->context_nbytes = nbytes;
    graph->free_context = lki_free;
    return LK_OK;
}

static lk_status make_graph(maker *make, lk_module *graph)
{
    LKI_TRY(allocate(make));
    LKI_TRY(check_names(make));
    LKI_TRY(adopt(make, graph));
    LKI_TRY(place_outputs(make, graph));
    LKI_TRY(check_used(make, graph));
    return set_context(make, graph);
}

/* The nodes' modules, NULL where they have none; the caller frees the array. */
static lk_module **list_modules(lk_node_list nodes)
{
    lk_module **modules = LKI_NEW_ARRAY(lk_module *, nodes.count + 1);
    for (int i = 0; modules && i < nodes.count; i++) modules[i] = nodes.items[i].module;
    return modules;
}

lk_module *lk_node_graph_with(lk_node_list nodes, const lk_node_graph_options *given)
{
    maker make = {.nodes = nodes};
    lk_module **modules = list_modules(nodes);
    if (!modules) return NULL;
    lk_status status = lki_take(&make.options, sizeof make.options, given, "lk_node_graph_options");
    for (int i = 0; i < nodes.count && !status; i++)
        if (!nodes.items[i].module && !nodes.items[i].same_as && lki_last_status())
            status = lki_last_status(); /* its constructor failed and said why */
    lk_module *graph = status ? NULL : lki_module_create("Graph", NULL, NULL, 0);
    if (graph) {
        graph->call = graph_call;
        make.inputs = make.options.inputs ? make.options.inputs : "x";
        make.input_count = count_names(make.inputs);
        make.outputs = make.options.outputs ? make.options.outputs
                       : nodes.count        ? nodes.items[nodes.count - 1].name
                                            : "";
        if (!make.outputs) make.outputs = "";
        lki_module_note(graph, make_graph(&make, graph));
    }
    if (!graph || graph->failed) lki_free_modules(modules + make.adopted, nodes.count - make.adopted);
    lki_free(modules);
    lki_free(make.child);
    lki_free(make.parent);
    lki_free(make.state);
    lki_free(make.used);
    lki_free(make.numbers);
    return lki_module_checked(graph);
}
