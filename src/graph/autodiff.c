/* Autodiff: appends the backward half of the step to the graph.
 *
 * Nodes are visited from the last to the first. Each one's rule records what its inputs' gradients are in
 * terms of its outputs'; where a value feeds several nodes, the contributions are added. The slices of one
 * value wait for one another: one op then writes each where it belongs, so that a loop over the slices of a
 * tensor costs as much as the tensor is large. A parameter's gradient is then made to lie in the parameter's
 * own grad tensor, so that the update (and the all-reduce) find it there without a copy. */
#include "graph/autodiff.h"

#include "base/memory.h"
#include "base/status.h"
#include "graph/record_util.h"

enum { MAX_INPUTS = 64 };

static lk_status add_contribution(lk_value *value, lk_value *contribution)
{
    if (!lk_shape_equal(value->shape, contribution->shape)) {
        char expected[160], found[160];
        return lki_fail(LK_ERR_SHAPE, "the gradient of a value of shape %s has shape %s",
                        lk_shape_format(expected, sizeof expected, value->shape),
                        lk_shape_format(found, sizeof found, contribution->shape));
    }
    value->gradient = value->gradient ? lk_op_add(value->gradient, contribution) : contribution;
    return value->gradient ? LK_OK : lki_last_status();
}

static lk_status keep_part(lki_node *slice, lk_value *gradient)
{
    lki_part *part = LKI_ARENA_NEW(&gradient->graph->arena, lki_part);
    if (!part) return LK_ERR_NOMEM;
    lk_value *whole = slice->in[0];
    *part = (lki_part){whole->parts, &slice->attr.slice, gradient};
    whole->parts = part;
    return LK_OK;
}

/* dx = 0, but dy_k added at the places of slice k, the first slice first. */
static lk_value *join_parts(lk_value *value, int count)
{
    lk_graph *graph = value->graph;
    lk_slice_attr *slices = LKI_ARENA_NEW_ARRAY(&graph->arena, lk_slice_attr, count);
    lk_value **gradients = LKI_ARENA_NEW_ARRAY(&graph->arena, lk_value *, count);
    if (!slices || !gradients) return lki_graph_fail(graph, LK_ERR_NOMEM, "out of memory");
    int k = 0;
    for (const lki_part *part = value->parts; part; part = part->next) {
        slices[k] = *part->slice;
        gradients[k++] = part->gradient;
    }
    if (count > 1)
        return lki_emit(LK_OP_SLICES_GRAD, LKI_ATTR(.slices = {.parts = slices, .shape = value->shape}),
                        count, gradients);
    slices->shape = value->shape;
    return LKI_EMIT(LK_OP_SLICE_GRAD, LKI_ATTR(.slice = *slices), gradients[0]);
}

/* Adds what the slices of a value have left to its gradient, once nobody can add another one. */
static lk_status settle_parts(lk_value *value)
{
    int count = 0;
    for (const lki_part *part = value->parts; part; part = part->next) count++;
    if (!count) return LK_OK;
    lk_value *joined = join_parts(value, count);
    value->parts = NULL;
    return joined ? add_contribution(value, joined) : value->graph->status;
}

static lk_status fail_without_gradient(const lki_node *node)
{
    lk_status status =
        lki_fail(LK_ERR_UNSUPPORTED, "%s: it has no gradient, but one is asked for", lki_node_name(node));
    return node->scope ? lki_fail_prefix(status, "%s", node->scope) : status;
}

static lk_status differentiate_node(lk_graph *graph, lki_node *node)
{
    lk_value *grad_out[LK_MAX_OUTPUTS] = {0}, *few[MAX_INPUTS] = {0}, **grad_in = few;
    bool any = false;
    for (int i = 0; i < node->output_count; i++) {
        LKI_TRY(settle_parts(node->out[i]));
        grad_out[i] = node->out[i]->gradient;
        any = any || (grad_out[i] && node->out[i]->needs_grad);
    }
    if (!any || !lki_carries_gradient(node)) return LK_OK;
    if (node->op == LK_OP_SLICE) return keep_part(node, grad_out[0]);
    if (!lki_rules[node->op].backward) return fail_without_gradient(node);
    if (node->input_count > MAX_INPUTS) { /* a concat of very many values */
        grad_in = LKI_ARENA_NEW_ARRAY(&graph->arena, lk_value *, node->input_count);
        if (!grad_in) return LK_ERR_NOMEM;
    }
    graph->scope_override = node->scope;
    LKI_TRY(lki_rules[node->op].backward(node, grad_out, grad_in));
    for (int i = 0; i < node->input_count; i++)
        if (grad_in[i] && node->in[i]->needs_grad) LKI_TRY(add_contribution(node->in[i], grad_in[i]));
    return LK_OK;
}

/* The gradient may lie in the parameter's grad tensor when an ordinary node computes it, for this purpose
 * alone. */
static bool can_store_in_place(const lk_value *gradient)
{
    unsigned flags = lk_op_flags(gradient->node->op);
    return !(flags & (LK_OP_IS_LEAF | LK_OP_IS_VIEW)) && gradient->storage == LKI_STORAGE_ARENA &&
           !gradient->is_output;
}

static lk_status store_gradient(lk_graph *graph, lk_value *param_value)
{
    lk_param *param = param_value->param;
    lk_value *gradient = param_value->gradient;
    if (!param->grad) {
        param->grad = lk_tensor_create(param->value->dtype, param->value->shape);
        if (!param->grad) return LK_ERR_NOMEM;
    }
    if (!gradient) { /* unused: its gradient is zero */
        lk_attr attr = {.fill = {.value = 0, .dtype = param->value->dtype, .shape = param->value->shape}};
        gradient = lki_record(graph, LK_OP_FULL, NULL, 0, 0, &attr);
    } else if (!can_store_in_place(gradient)) {
        gradient = lki_record(graph, LK_OP_COPY, &gradient, 1, 1, NULL);
    }
    if (!gradient) return graph->status;
    gradient->storage = LKI_STORAGE_GRAD;
    gradient->param = param;
    return LK_OK;
}

/* dloss / dloss: a constant, so that no step has to write it. */
static lk_value *record_one(lk_graph *graph, const lk_value *loss)
{
    lk_tensor *one = lk_tensor_create(loss->dtype, loss->shape);
    if (!one) return lki_graph_fail(graph, LK_ERR_NOMEM, "out of memory for a constant");
    lk_tensor_set(one, 0, 1);
    lk_value *value = lk_graph_constant(graph, one);
    lk_tensor_free(one);
    return value;
}

static lk_status seed_loss(lk_graph *graph, lk_value *loss)
{
    char text[160];
    if (!loss)
        return graph->status ? lki_fail(graph->status, "%s", graph->error)
                             : lki_fail(LK_ERR_INVALID, "there is no loss");
    if (lk_shape_count(loss->shape) != 1)
        return lki_fail(LK_ERR_SHAPE, "the loss must be one number, but it has shape %s",
                        lk_shape_format(text, sizeof text, loss->shape));
    if (!loss->needs_grad)
        return lki_fail(LK_ERR_INVALID, "the loss does not depend on any trainable parameter");
    graph->section = LKI_SECTION_BACKWARD;
    loss->gradient = graph->seed ? graph->seed : record_one(graph, loss);
    return loss->gradient ? LK_OK : graph->status;
}

static lk_status collect_unused(lk_graph *graph, lk_param *param, int capacity, lki_autodiff_report *report)
{
    if (!report->unused) report->unused = LKI_ARENA_NEW_ARRAY(&graph->arena, lk_param *, capacity);
    if (!report->unused) return LK_ERR_NOMEM;
    report->unused[report->unused_count++] = param;
    return LK_OK;
}

bool lki_carries_gradient(const lki_node *node)
{
    if (lk_op_flags(node->op) & LK_OP_IS_FLAT) return false;
    for (int i = 0; i < node->input_count; i++)
        if (node->in[i] && node->in[i]->needs_grad) return true;
    return false;
}

/* `wanted`: values that need a gradient whatever they are computed from keep it. */
static void mark_outputs(lki_node *node, bool wanted)
{
    bool carries = lki_carries_gradient(node);
    for (int i = 0; i < node->output_count; i++) {
        lk_value *value = node->out[i];
        value->needs_grad = (carries || (wanted && value->needs_grad)) && lk_dtype_is_float(value->dtype);
    }
}

/* Only what leads to the parameters asked for is worth differentiating. */
static void restrict_to(lk_graph *graph, lk_param *const *params, int param_count)
{
    for (int i = 0; i < graph->param_count; i++) {
        bool wanted = false;
        for (int j = 0; j < param_count && !wanted; j++) wanted = graph->params[i]->param == params[j];
        graph->params[i]->needs_grad = wanted && params && graph->params[i]->param->trainable;
    }
    for (lki_node *node = graph->first; node; node = node->next) {
        if (!(lk_op_flags(node->op) & LK_OP_IS_LEAF)) mark_outputs(node, false);
    }
}

lk_status lki_pass_autodiff(lk_graph *graph, lk_value *loss, lk_param *const *params, int param_count,
                            lki_autodiff_report *report)
{
    *report = (lki_autodiff_report){0};
    if (graph->status) return lki_fail(graph->status, "%s", graph->error ? graph->error : "out of memory");
    restrict_to(graph, params, param_count);
    lki_node *last_forward = graph->last;
    LKI_TRY(seed_loss(graph, loss));
    for (lki_node *node = last_forward; node; node = node->previous) {
        lk_status status = differentiate_node(graph, node);
        graph->scope_override = NULL;
        if (status) return status;
    }
    for (int i = 0; i < param_count; i++) {
        lk_value *value = lk_graph_param(graph, params[i]);
        if (!value) return graph->status;
        if (!params[i]->trainable) continue;
        LKI_TRY(settle_parts(value));
        if (!value->gradient) LKI_TRY(collect_unused(graph, params[i], param_count, report));
        LKI_TRY(store_gradient(graph, value));
    }
    return graph->status;
}

/* What one value knew before a differentiation of its own began. */
typedef struct saved {
    lk_value *gradient;
    lki_part *parts;
    bool needs_grad;
} saved;

static int output_count_until(const lki_node *first, const lki_node *last)
{
    int count = 0;
    for (const lki_node *node = first; node; node = node == last ? NULL : node->next)
        count += node->output_count;
    return count;
}

static void save_and_clear(lk_graph *graph, const lki_node *last, saved *values)
{
    for (lki_node *node = graph->first; node; node = node == last ? NULL : node->next)
        for (int i = 0; i < node->output_count; i++) {
            lk_value *value = node->out[i];
            *values++ = (saved){value->gradient, value->parts, value->needs_grad};
            value->gradient = NULL;
            value->parts = NULL;
            value->needs_grad = false;
        }
}

/* And what was recorded since then finds out whether it needs a gradient by the flags of before. */
static void restore(lk_graph *graph, lki_node *last, const saved *values)
{
    for (lki_node *node = graph->first; node; node = node == last ? NULL : node->next)
        for (int i = 0; i < node->output_count; i++, values++) {
            lk_value *value = node->out[i];
            value->gradient = values->gradient;
            value->parts = values->parts;
            value->needs_grad = values->needs_grad;
        }
    for (lki_node *node = last->next; node; node = node->next) {
        mark_outputs(node, false);
        for (int i = 0; i < node->output_count; i++) {
            node->out[i]->gradient = NULL;
            node->out[i]->parts = NULL;
        }
    }
}

/* What is differentiated: x_count values, with respect to which the gradient is asked for. */
typedef struct variables {
    lk_value *const *x;
    lk_value **dx;
    int count;
    bool are_independent; /* what one of them is computed from gets nothing of its gradient */
} variables;

static lk_status take_gradients(const variables *all, const lki_node *node)
{
    for (int i = 0; i < all->count; i++) {
        lk_value *x = all->x[i];
        if (!x || x->node != node) continue;
        LKI_TRY(settle_parts(x));
        all->dx[i] = x->gradient;
        if (all->are_independent) x->gradient = NULL;
    }
    return LK_OK;
}

static lk_status differentiate_between(lk_graph *graph, lki_node *last, lk_value *const *y,
                                       lk_value *const *dy, int y_count, const variables *all)
{
    lk_value *const *x = all->x, **dx = all->dx;
    int x_count = all->count;
    for (int i = 0; i < x_count; i++)
        if (x[i]) x[i]->needs_grad = true;
    for (lki_node *node = graph->first; node; node = node == last ? NULL : node->next)
        if (!(lk_op_flags(node->op) & LK_OP_IS_LEAF)) mark_outputs(node, true);
    for (int i = 0; i < y_count; i++)
        if (y[i] && dy[i] && y[i]->needs_grad) LKI_TRY(add_contribution(y[i], dy[i]));
    for (int i = 0; i < x_count; i++) dx[i] = NULL;
    for (lki_node *node = last; node; node = node->previous) {
        LKI_TRY(take_gradients(all, node));
        LKI_TRY(differentiate_node(graph, node));
    }
    return graph->status;
}

static lk_status differentiate(lk_graph *graph, lk_value *const *y, lk_value *const *dy, int y_count,
                               const variables *all)
{
    if (graph->status) return graph->status;
    lki_node *last = graph->last;
    const char *scope = graph->scope_override;
    saved *values = LKI_NEW_ARRAY(saved, output_count_until(graph->first, last) + 1);
    if (!values) return LK_ERR_NOMEM;
    save_and_clear(graph, last, values);
    lk_status status = differentiate_between(graph, last, y, dy, y_count, all);
    restore(graph, last, values);
    graph->scope_override = scope;
    lki_free(values);
    return status;
}

lk_status lki_differentiate(lk_graph *graph, lk_value *const *y, lk_value *const *dy, int y_count,
                            lk_value *const *x, int x_count, lk_value **dx)
{
    return differentiate(graph, y, dy, y_count, &(variables){x, dx, x_count, true});
}

static bool has_gradient(lk_graph *graph, const lk_value *y, const lk_value *x)
{
    if (!x) return false;
    if (x->graph != graph) {
        lki_graph_fail(graph, LK_ERR_INVALID, "grad: its operands belong to different graphs");
        return false;
    }
    if (lk_dtype_is_float(x->dtype) && lk_dtype_is_float(y->dtype)) return true;
    lki_graph_fail(graph, LK_ERR_DTYPE, "grad: there is no gradient of %s with respect to %s",
                   lk_dtype_name(y->dtype), lk_dtype_name(x->dtype));
    return false;
}

static lk_status record_gradients(lk_value **out, lk_value *y, lk_value *const *x, int count)
{
    lk_graph *graph = y->graph;
    for (int i = 0; i < count; i++)
        if (!has_gradient(graph, y, x[i])) return graph->status ? graph->status : LK_ERR_INVALID;
    lk_value *one = lki_full_like(y, 1);
    lk_status status = differentiate(graph, &y, &one, 1, &(variables){x, out, count, false});
    if (status && !graph->status) lki_graph_fail(graph, status, "grad: %s", lk_error());
    for (int i = 0; i < count && !status; i++) {
        if (!out[i]) out[i] = lki_full_like(x[i], 0);
        if (!out[i]) status = graph->status;
    }
    return status;
}

lk_status lk_op_grads(lk_value **out, lk_value *y, lk_value *const *x, int count)
{
    lk_status status = y ? record_gradients(out, y, x, count) : LK_ERR_INVALID;
    for (int i = 0; i < count && status; i++) out[i] = NULL;
    return status;
}

lk_value *lk_op_grad(lk_value *y, lk_value *x)
{
    lk_value *gradient = NULL;
    lk_op_grads(&gradient, y, &x, 1);
    return gradient;
}
