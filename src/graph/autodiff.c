/* Autodiff: appends the backward half of the step to the graph.
 *
 * Nodes are visited from the last to the first. Each one's rule records what its inputs' gradients are in
 * terms of its outputs'; where a value feeds several nodes, the contributions are added. A parameter's
 * gradient is then made to lie in the parameter's own grad tensor, so that the update (and the all-reduce)
 * find it there without a copy. */
#include "graph/graph.h"

#include "base/memory.h"
#include "base/status.h"

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

static lk_status differentiate_node(lk_graph *graph, lki_node *node)
{
    lk_value *grad_out[LK_MAX_OUTPUTS] = {0}, *few[MAX_INPUTS] = {0}, **grad_in = few;
    bool any = false;
    for (int i = 0; i < node->output_count; i++) {
        grad_out[i] = node->out[i]->gradient;
        any = any || (grad_out[i] && node->out[i]->needs_grad);
    }
    if (!any || !lki_rules[node->op].backward) return LK_OK;
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

/* Only what leads to the parameters asked for is worth differentiating. */
static void restrict_to(lk_graph *graph, lk_param *const *params, int param_count)
{
    for (int i = 0; i < graph->param_count; i++) {
        bool wanted = false;
        for (int j = 0; j < param_count && !wanted; j++) wanted = graph->params[i]->param == params[j];
        graph->params[i]->needs_grad = wanted && params && graph->params[i]->param->trainable;
    }
    for (lki_node *node = graph->first; node; node = node->next) {
        if (lk_op_flags(node->op) & LK_OP_IS_LEAF) continue;
        bool needs_grad = false;
        for (int i = 0; i < node->input_count && lki_rules[node->op].backward; i++)
            needs_grad = needs_grad || (node->in[i] && node->in[i]->needs_grad);
        for (int i = 0; i < node->output_count; i++)
            node->out[i]->needs_grad = needs_grad && lk_dtype_is_float(node->out[i]->dtype);
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
        if (!value->gradient) LKI_TRY(collect_unused(graph, params[i], param_count, report));
        LKI_TRY(store_gradient(graph, value));
    }
    return graph->status;
}
