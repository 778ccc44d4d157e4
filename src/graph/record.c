/* Recording: leaves, nodes, scopes, and the errors that stick to a graph. */
#include "graph/graph.h"

#include "base/memory.h"
#include "base/number_text.h"
#include "base/status.h"
#include "graph/autodiff.h"
#include "graph/home.h"
#include "graph/op_info.h"
#include "tensor/buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

lk_param *lk_param_create(const char *name, lk_tensor *value_owned, bool trainable)
{
    if (!value_owned) return NULL;
    lk_param *param = LKI_NEW(lk_param);
    if (param) param->name = lki_strdup(name);
    if (!param || !param->name) {
        lki_free(param);
        lk_tensor_free(value_owned);
        return NULL;
    }
    param->value = value_owned;
    param->trainable = trainable;
    param->is_shown = true;
    param->holder_count = 1;
    return param;
}

lk_param *lk_param_share(lk_param *param)
{
    if (param) param->holder_count++;
    return param;
}

void lk_param_free(lk_param *param)
{
    if (!param || --param->holder_count > 0) return;
    lk_tensor_free(param->value);
    lk_tensor_free(param->grad);
    lki_free(param->name);
    lki_free(param);
}

void lk_param_changed(lk_param *param)
{
    if (param) lki_param_push(param);
}

lk_graph *lk_graph_create(bool training)
{
    lk_graph *graph = LKI_NEW(lk_graph);
    if (graph) graph->training = training;
    return graph;
}

void lk_graph_free(lk_graph *graph)
{
    if (!graph) return;
    for (lki_node *node = graph->first; node; node = node->next)
        if (node->op == LK_OP_CONSTANT) lk_tensor_free(node->out[0]->constant);
    lki_free(graph->inputs);
    lki_free(graph->outputs);
    lki_free(graph->params);
    lki_free(graph->counters);
    lki_free(graph->error);
    lki_arena_fini(&graph->arena);
    lki_free(graph);
}

bool lk_graph_is_training(const lk_graph *graph)
{
    return graph->training;
}

lk_value *lki_graph_fail(lk_graph *graph, lk_status status, const char *format, ...)
{
    char sentence[800];
    va_list arguments;
    va_start(arguments, format);
    lki_vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    const char *scope = graph->scope ? graph->scope->text : NULL;
    if (scope)
        lki_fail(status, "%s: %s", scope, sentence);
    else
        lki_fail(status, "%s", sentence);
    if (graph->status == LK_OK) {
        graph->status = status;
        graph->error = lki_strdup(lk_error());
    }
    return NULL;
}

void lk_graph_push_scope(lk_graph *graph, const char *name, const char *type)
{
    lki_scope *scope = LKI_ARENA_NEW(&graph->arena, lki_scope);
    if (!scope) return;
    lki_scope *outer = graph->scope;
    scope->outer = outer;
    scope->region = outer ? outer->region : NULL;
    if (outer && outer->path[0] && name[0])
        scope->path = lki_arena_format(&graph->arena, "%s.%s", outer->path, name);
    else
        scope->path = lki_arena_strdup(&graph->arena, name[0] || !outer ? name : outer->path);
    scope->text = scope->path && scope->path[0]
                      ? lki_arena_format(&graph->arena, "layer %s (%s)", scope->path, type)
                      : lki_arena_format(&graph->arena, "%s", type);
    graph->scope = scope;
}

void lki_graph_begin_region(lk_graph *graph)
{
    lki_scope *scope = graph->scope;
    lki_region *region = scope ? LKI_ARENA_NEW(&graph->arena, lki_region) : NULL;
    if (!region) {
        lki_graph_fail(graph, LK_ERR_NOMEM, "out of memory");
        return;
    }
    region->outer = scope->region;
    region->depth = region->outer ? region->outer->depth + 1 : 1;
    scope->region = region;
}

void lk_graph_pop_scope(lk_graph *graph)
{
    if (graph->scope) graph->scope = graph->scope->outer;
}

lk_graph *lk_value_graph(const lk_value *value)
{
    return value ? value->graph : NULL;
}

lk_shape lk_value_shape(const lk_value *value)
{
    return value ? value->shape : lk_scalar_shape();
}

lk_dtype lk_value_dtype(const lk_value *value)
{
    return value ? value->dtype : LK_F32;
}

static lki_node *make_node(lk_graph *graph, lk_op op, lk_value *const *inputs, int input_count,
                           const lk_attr *attr)
{
    lki_node *node = LKI_ARENA_NEW(&graph->arena, lki_node);
    if (!node) return NULL;
    node->op = op;
    if (attr) node->attr = *attr;
    node->input_count = input_count;
    node->in = LKI_ARENA_NEW_ARRAY(&graph->arena, lk_value *, input_count + 1);
    node->output_count = lki_op_output_count(op);
    node->section = graph->section;
    node->scope = graph->scope_override ? graph->scope_override : graph->scope ? graph->scope->text : NULL;
    node->region = graph->scope ? graph->scope->region : NULL;
    if (!node->in) return NULL;
    for (int i = 0; i < input_count; i++) node->in[i] = inputs[i];
    for (int i = 0; i < node->output_count; i++) {
        lk_value *value = LKI_ARENA_NEW(&graph->arena, lk_value);
        if (!value) return NULL;
        value->graph = graph;
        value->node = node;
        value->index = i;
        node->out[i] = value;
    }
    return node;
}

static void link_before(lk_graph *graph, lki_node *node, lki_node *place)
{
    node->next = place;
    node->previous = place ? place->previous : graph->last;
    *(node->previous ? &node->previous->next : &graph->first) = node;
    *(place ? &place->previous : &graph->last) = node;
}

void lki_graph_remove(lk_graph *graph, lki_node *node)
{
    *(node->previous ? &node->previous->next : &graph->first) = node->next;
    *(node->next ? &node->next->previous : &graph->last) = node->previous;
    if (node->op == LK_OP_CONSTANT) {
        lk_tensor_free(node->out[0]->constant);
        node->out[0]->constant = NULL;
    }
}

void lki_graph_move(lk_graph *graph, lki_node *node, lki_node *place)
{
    *(node->previous ? &node->previous->next : &graph->first) = node->next;
    *(node->next ? &node->next->previous : &graph->last) = node->previous;
    link_before(graph, node, place);
}

static bool append(lk_value ***list, int *count, lk_value *value)
{
    lk_value **grown = lki_realloc(*list, sizeof *grown * (size_t)(*count + 1), "a list of values");
    if (!grown) return false;
    grown[(*count)++] = value;
    *list = grown;
    return true;
}

static lk_value *make_leaf(lk_graph *graph, lk_op op, lki_storage_kind storage, lk_dtype dtype,
                           lk_shape shape)
{
    lki_node *node = make_node(graph, op, NULL, 0, NULL);
    if (!node) return lki_graph_fail(graph, LK_ERR_NOMEM, "out of memory");
    node->out[0]->storage = storage;
    node->out[0]->dtype = dtype;
    node->out[0]->shape = shape;
    link_before(graph, node, NULL);
    return node->out[0];
}

lk_value *lk_graph_input(lk_graph *graph, const char *name, lk_dtype dtype, lk_shape shape)
{
    lk_value *value = make_leaf(graph, LK_OP_INPUT, LKI_STORAGE_INPUT, dtype, shape);
    if (!value) return NULL;
    value->name = lki_arena_strdup(&graph->arena, name);
    if (!append(&graph->inputs, &graph->input_count, value))
        return lki_graph_fail(graph, LK_ERR_NOMEM, "out of memory");
    return value;
}

lk_value *lk_graph_param(lk_graph *graph, lk_param *param)
{
    for (int i = 0; i < graph->param_count; i++)
        if (graph->params[i]->param == param) return graph->params[i];
    lk_value *value =
        make_leaf(graph, LK_OP_PARAM, LKI_STORAGE_PARAM, param->value->dtype, param->value->shape);
    if (!value) return NULL;
    value->param = param;
    value->needs_grad = param->trainable && !param->is_buffer;
    value->name = lki_arena_strdup(&graph->arena, param->name);
    if (!append(&graph->params, &graph->param_count, value))
        return lki_graph_fail(graph, LK_ERR_NOMEM, "out of memory");
    return value;
}

void lki_graph_count_batches(lk_graph *graph, lk_param *counter)
{
    size_t nbytes = sizeof *graph->counters * (size_t)(graph->counter_count + 1);
    lk_param **grown = lki_realloc(graph->counters, nbytes, "the graph");
    if (!grown) {
        lki_graph_fail(graph, LK_ERR_NOMEM, "out of memory");
        return;
    }
    graph->counters = grown;
    grown[graph->counter_count++] = counter;
}

lk_value *lk_graph_constant(lk_graph *graph, const lk_tensor *tensor)
{
    lk_tensor *copy = lk_tensor_clone(tensor);
    if (!copy) return lki_graph_fail(graph, LK_ERR_NOMEM, "out of memory for a constant");
    lk_value *value = make_leaf(graph, LK_OP_CONSTANT, LKI_STORAGE_CONSTANT, copy->dtype, copy->shape);
    if (!value) {
        lk_tensor_free(copy);
        return NULL;
    }
    value->constant = copy;
    return value;
}

lk_status lk_graph_output(lk_graph *graph, const char *name, lk_value *value)
{
    if (graph->status) return lki_fail(graph->status, "%s", graph->error ? graph->error : "out of memory");
    if (!value) return lki_fail(LK_ERR_INVALID, "output \"%s\" has no value", name);
    for (int i = 0; i < graph->output_count; i++)
        if (strcmp(graph->outputs[i]->name, name) == 0)
            return lki_fail(LK_ERR_INVALID, "there are two outputs named \"%s\"", name);
    /* One value may be wanted under two names, and a leaf is no place of its own: both get a copy. */
    if (value->is_output || (lk_op_flags(lki_value_root(value)->node->op) & LK_OP_IS_LEAF)) {
        value = lki_record(graph, LK_OP_COPY, &value, 1, 1, NULL);
        if (!value) return graph->status;
    }
    value->is_output = true;
    value->name = lki_arena_strdup(&graph->arena, name);
    if (!append(&graph->outputs, &graph->output_count, value)) return LK_ERR_NOMEM;
    return LK_OK;
}

/* Shape rule and everything that follows from the inputs. */
static lk_status complete_node(lki_node *node)
{
    if (lki_rules[node->op].infer) LKI_TRY(lki_rules[node->op].infer(node));
    bool needs_grad = lki_carries_gradient(node);
    for (int i = 0; i < node->output_count; i++) {
        LKI_TRY(lki_shape_check(node->out[i]->dtype, node->out[i]->shape));
        node->out[i]->needs_grad = needs_grad && lk_dtype_is_float(node->out[i]->dtype);
        if (lk_op_flags(node->op) & LK_OP_IS_VIEW) node->out[i]->storage = LKI_STORAGE_VIEW;
    }
    return LK_OK;
}

lk_value *lki_record(lk_graph *graph, lk_op op, lk_value *const *inputs, int input_count, int required,
                     const lk_attr *attr)
{
    for (int i = 0; i < required; i++)
        if (!inputs[i]) return NULL;
    for (int i = 0; i < input_count; i++)
        if (inputs[i] && inputs[i]->graph != graph)
            return lki_graph_fail(graph, LK_ERR_INVALID, "%s: its inputs belong to different graphs",
                                  lk_op_name(op));
    lki_node *node = make_node(graph, op, inputs, input_count, attr);
    if (!node) return lki_graph_fail(graph, LK_ERR_NOMEM, "out of memory");
    lk_status status = complete_node(node);
    if (status) return lki_graph_fail(graph, status, "%s", lk_error());
    link_before(graph, node, NULL);
    return node->output_count ? node->out[0] : NULL;
}

lki_node *lki_graph_insert(lk_graph *graph, lki_node *place, lk_op op, lk_value *const *inputs,
                           int input_count, const lk_attr *attr)
{
    lki_node *node = make_node(graph, op, inputs, input_count, attr);
    if (!node || complete_node(node)) return NULL;
    if (place) {
        node->section = place->section;
        node->scope = place->scope;
        node->region = place->region;
    }
    link_before(graph, node, place);
    return node;
}

lki_node *lki_graph_copy_node(lk_graph *graph, lki_node *place, const lki_node *node, lk_op op,
                              lk_value *const *inputs, int input_count)
{
    lki_node *copy = make_node(graph, op, inputs, input_count, &node->attr);
    if (!copy) return NULL;
    copy->section = place->section;
    copy->scope = node->scope;
    copy->region = node->region;
    copy->is_again = true;
    for (int i = 0; i < copy->output_count; i++) {
        lk_value *fresh = copy->out[i];
        const lk_value *value = node->out[i];
        fresh->dtype = value->dtype;
        fresh->shape = value->shape;
        fresh->layout = value->layout;
        fresh->storage = value->storage;
    }
    link_before(graph, copy, place);
    return copy;
}

void lki_graph_replace_uses(lk_graph *graph, lk_value *old, lk_value *fresh, lki_node *from)
{
    for (lki_node *node = from ? from : graph->first; node; node = node->next)
        for (int i = 0; i < node->input_count; i++)
            if (node->in[i] == old && node->out[0] != fresh) node->in[i] = fresh;
    for (int i = 0; i < graph->output_count; i++) {
        if (graph->outputs[i] != old) continue;
        graph->outputs[i] = fresh;
        fresh->is_output = true;
        fresh->name = old->name;
        old->is_output = false;
    }
}

lk_value *lki_value_root(lk_value *value)
{
    while (value->storage == LKI_STORAGE_VIEW) value = value->node->in[0];
    return value;
}

size_t lki_value_nbytes(const lk_value *value)
{
    return (size_t)lk_shape_count(value->shape) * lk_dtype_nbytes(value->dtype);
}

static bool is_kept(const lk_value *value)
{
    return value->is_output || value->storage == LKI_STORAGE_GRAD;
}

/* From the last node to the first, a node is alive when somebody after it reads one of its outputs, when an
 * output is kept, or when it writes to a parameter's memory. */
void lki_graph_count_uses(lk_graph *graph)
{
    for (lki_node *node = graph->first; node; node = node->next)
        for (int i = 0; i < node->output_count; i++) node->out[i]->use_count = is_kept(node->out[i]);
    for (lki_node *node = graph->last; node; node = node->previous) {
        bool leaf = lk_op_flags(node->op) & LK_OP_IS_LEAF,
             alive = leaf || (lk_op_flags(node->op) & LK_OP_WRITES_OPERANDS);
        for (int i = 0; i < node->output_count && !alive; i++) alive = node->out[i]->use_count > 0;
        node->dead = !alive;
        for (int i = 0; i < node->input_count && alive; i++)
            if (node->in[i]) node->in[i]->use_count++;
    }
}

void lki_graph_number(lk_graph *graph)
{
    int order = 0;
    for (lki_node *node = graph->first; node; node = node->next) node->order = order++;
}
