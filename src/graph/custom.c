#include "graph/custom.h"

#include "base/float_mode.h"
#include "base/status.h"
#include "base/take.h"
#include "graph/record_util.h"
#include "graph/rules.h"

enum { MAX_INPUTS = 16 };

/* What a call needs of the struct that the program gave, in the graph's memory. */
static const lk_custom_op *keep(lk_graph *graph, const lk_custom_op *given)
{
    LKI_TAKE(lk_custom_op, own, given, NULL);
    lk_custom_op *kept = LKI_ARENA_NEW(&graph->arena, lk_custom_op);
    if (!kept) return NULL;
    *kept = own;
    kept->name = lki_arena_strdup(&graph->arena, own.name ? own.name : "custom");
    return kept->name ? kept : NULL;
}

lk_value *lk_op_custom(const lk_custom_op *op, lk_value *const *inputs, int count, void *context)
{
    if (count < 1 || !inputs[0]) return NULL;
    lk_graph *graph = inputs[0]->graph;
    const lk_custom_op *kept = keep(graph, op);
    if (!kept) return lki_graph_fail(graph, lki_last_status(), "%s", lk_error());
    if (!kept->forward)
        return lki_graph_fail(graph, LK_ERR_INVALID, "%s: an op of your own needs a forward function",
                              kept->name);
    if (count > MAX_INPUTS)
        return lki_graph_fail(graph, LK_ERR_INVALID, "%s: %d inputs are too many; at most %d are allowed",
                              kept->name, count, (int)MAX_INPUTS);
    return lki_emit(LK_OP_CUSTOM, LKI_ATTR(.custom = {.op = kept, .context = context}), count, inputs);
}

lk_status lki_infer_custom(lki_node *node)
{
    const lk_custom_op *op = node->attr.custom.op;
    lk_shape shape = node->in[0]->shape, in[MAX_INPUTS];
    LKI_TRY(lki_expect_float(node, 0));
    for (int i = 0; i < node->input_count; i++) in[i] = node->in[i]->shape;
    if (op->shape) {
        lk_status status = op->shape(&shape, in, node->input_count, node->attr.custom.context);
        if (status) return lki_fail_prefix(status, "%s", op->name);
    }
    lki_set_output(node, 0, node->in[0]->dtype, shape);
    return LK_OK;
}

/* (dy, y, inputs...) -> the gradients of the first inputs; nobody reads those that have none. */
lk_status lki_infer_custom_grad(lki_node *node)
{
    for (int i = 0; i < LK_MAX_OUTPUTS; i++) {
        const lk_value *in = lki_has_input(node, i + 2) ? node->in[i + 2] : node->in[0];
        lki_set_output(node, i, lk_dtype_is_float(in->dtype) ? in->dtype : node->in[0]->dtype, in->shape);
    }
    return LK_OK;
}

lk_status lki_backward_custom(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    const lk_custom_op *op = node->attr.custom.op;
    lk_value *inputs[MAX_INPUTS + 2] = {grad_out[0], node->out[0]};
    if (!op->backward) return LK_OK;
    for (int i = 0; i < node->input_count; i++) {
        inputs[i + 2] = node->in[i];
        if (i >= LK_MAX_OUTPUTS && node->in[i]->needs_grad)
            return lki_fail(LK_ERR_UNSUPPORTED,
                            "%s: input %d needs a gradient, but only the first %d inputs can have one",
                            op->name, i, (int)LK_MAX_OUTPUTS);
    }
    lk_value *all = lki_emit(LK_OP_CUSTOM_GRAD, &node->attr, node->input_count + 2, inputs);
    for (int i = 0; i < node->input_count && i < LK_MAX_OUTPUTS; i++)
        if (node->in[i]->needs_grad) grad_in[i] = lki_output_of(all, i);
    return lki_recorded(node);
}

static lk_status name_failure(const lk_call *call, lk_status status)
{
    return status ? lki_fail_prefix(status, "%s", call->attr->custom.op->name) : LK_OK;
}

/* The program's functions see denormals, which a replay flushes. */
static lki_float_mode keep_denormals(void)
{
    lki_float_mode replay = lki_float_mode_now();
    lki_float_mode_restore((lki_float_mode){replay.control & ~(uint64_t)LKI_FLOAT_FLUSH});
    return replay;
}

static lk_status run_forward(const lk_call *call)
{
    const lk_custom_attr *attr = &call->attr->custom;
    lk_tensor out = call->out[0];
    lki_float_mode replay = keep_denormals();
    lk_status status = attr->op->forward(&out, call->in, call->input_count, attr->context);
    lki_float_mode_restore(replay);
    return name_failure(call, status);
}

static lk_status run_backward(const lk_call *call)
{
    const lk_custom_attr *attr = &call->attr->custom;
    lk_tensor gradients[MAX_INPUTS] = {{0}};
    int count = call->input_count - 2;
    for (int i = 0; i < count && i < call->output_count; i++)
        if (lk_dtype_is_float(call->in[i + 2].dtype)) gradients[i] = call->out[i];
    lki_float_mode replay = keep_denormals();
    lk_status status =
        attr->op->backward(gradients, &call->in[0], &call->in[1], &call->in[2], count, attr->context);
    lki_float_mode_restore(replay);
    return name_failure(call, status);
}

void lki_custom_prepare(lk_call *call)
{
    call->run = call->op == LK_OP_CUSTOM ? run_forward : run_backward;
}
