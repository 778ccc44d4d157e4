/* Fold: a batch norm that waits for memory takes along what stands right behind it, a ReLU and the addend of
 * a residual layer (with the norm that the addend comes from), and its gradient the ReLU's mask, where the
 * engine can (lk_engine_ops.folds_norms). */
#include "graph/graph.h"

#include "base/status.h"

#include <string.h>

enum { NORM_INPUTS = 5, ADDED_INPUTS = 5 };

/* The batch norm that computes a value, where something can still be folded into it. */
static lki_node *open_norm(const lk_value *y, lki_section section)
{
    lki_node *norm = y->node;
    bool fits = norm->op == LK_OP_BATCH_NORM && y->index == 0 && y->dtype != LK_F64 &&
                y->layout == LK_LAYOUT_CHANNELS_LAST && y->use_count == 1 && !y->is_output &&
                norm->section == section && norm->input_count == NORM_INPUTS &&
                norm->attr.norm.activation == LK_ACTIVATION_NONE;
    return fits ? norm : NULL;
}

/* The norm's result is now what `node`'s was. */
static void replace(lk_graph *graph, lki_node *node, lki_node *norm)
{
    lk_value *y = norm->out[0];
    y->use_count = node->out[0]->use_count;
    lki_graph_replace_uses(graph, node->out[0], y, node->next);
    node->dead = true;
    lki_graph_remove(graph, node);
}

static lk_status append_input(lk_graph *graph, lki_node *norm, lk_value *value)
{
    lk_value **in = LKI_ARENA_NEW_ARRAY(&graph->arena, lk_value *, NORM_INPUTS + 1);
    if (!in) return LK_ERR_NOMEM;
    memcpy(in, norm->in, sizeof *in * NORM_INPUTS);
    in[NORM_INPUTS] = value;
    norm->in = in;
    norm->input_count = NORM_INPUTS + 1;
    return LK_OK;
}

/* The addend is another norm's result, and nobody else reads it: it is computed where it is added, from that
 * norm's input, statistics, weight and bias. */
static lk_status append_norm(lk_graph *graph, lki_node *norm, lki_node *other)
{
    lk_value **in = LKI_ARENA_NEW_ARRAY(&graph->arena, lk_value *, NORM_INPUTS + ADDED_INPUTS);
    lk_value *added[ADDED_INPUTS] = {other->in[0], other->out[1], other->out[2], other->in[1], other->in[2]};
    if (!in) return LK_ERR_NOMEM;
    memcpy(in, norm->in, sizeof *in * NORM_INPUTS);
    memcpy(in + NORM_INPUTS, added, sizeof added);
    norm->in = in;
    norm->input_count = NORM_INPUTS + ADDED_INPUTS;
    other->attr.norm.statistics_only = true;
    return LK_OK;
}

/* relu(a + b). */
static bool is_rectified_sum(const lki_node *node)
{
    if (node->op != LK_OP_FUSED || node->input_count != 2) return false;
    const lk_fused *program = node->attr.fused.chain;
    return program->step_count == 2 && program->step[0].op == LK_OP_ADD &&
           program->step[0].operand[0] != program->step[0].operand[1] && program->step[0].operand[0] < 2 &&
           program->step[0].operand[1] < 2 && program->step[1].op == LK_OP_RELU &&
           program->step[1].operand[0] == 2;
}

/* Whichever of the two comes later adds the other. */
static lk_status fold_sum(lk_graph *graph, lki_node *sum)
{
    for (int i = 0; i < 2; i++) {
        lki_node *norm = open_norm(sum->in[i], sum->section);
        lk_value *addend = sum->in[1 - i];
        if (!norm || addend->node->order > norm->order || addend->layout != sum->in[i]->layout ||
            !lk_shape_equal(addend->shape, sum->in[i]->shape))
            continue;
        lki_node *other = open_norm(addend, sum->section);
        bool joins = other && other->attr.norm.training && norm->attr.norm.training &&
                     other->in[0]->layout == addend->layout && other->in[0]->dtype == addend->dtype;
        LKI_TRY(joins ? append_norm(graph, norm, other) : append_input(graph, norm, addend));
        norm->attr.norm.activation = LK_ACTIVATION_RELU;
        replace(graph, sum, norm);
        return LK_OK;
    }
    return LK_OK;
}

static void fold_relu(lk_graph *graph, lki_node *relu)
{
    lki_node *norm = open_norm(relu->in[0], relu->section);
    if (!norm || relu->out[0]->dtype != norm->out[0]->dtype) return;
    norm->attr.norm.activation = LK_ACTIVATION_RELU;
    replace(graph, relu, norm);
}

/* What the ReLU let through is told by x again, where nothing was added before it. */
static lk_status fold_mask(lk_graph *graph, lki_node *gradient)
{
    lk_value *dz = gradient->in[0];
    lki_node *mask = dz->node;
    if (mask->op != LK_OP_RELU_GRAD || dz->use_count != 1 || dz->is_output ||
        gradient->input_count != NORM_INPUTS || mask->section != gradient->section)
        return LK_OK;
    const lk_value *y = mask->in[1];
    const lki_node *norm = y->node;
    bool fits = norm->op == LK_OP_BATCH_NORM && y->index == 0 && norm->input_count == NORM_INPUTS &&
                norm->attr.norm.activation == LK_ACTIVATION_RELU && norm->in[0] == gradient->in[1] &&
                norm->out[1] == gradient->in[3] && mask->in[0]->layout == y->layout &&
                mask->in[0]->dtype == y->dtype;
    if (!fits) return LK_OK;
    LKI_TRY(append_input(graph, gradient, norm->in[2]));
    gradient->attr.norm.activation = LK_ACTIVATION_RELU;
    gradient->in[0] = mask->in[0];
    mask->dead = true;
    lki_graph_remove(graph, mask);
    return LK_OK;
}

lk_status lki_pass_fold_norms(lk_graph *graph)
{
    lki_graph_count_uses(graph);
    lki_graph_number(graph);
    for (lki_node *node = graph->first, *next; node; node = next) {
        next = node->next;
        if (node->dead) continue;
        if (node->op == LK_OP_RELU) fold_relu(graph, node);
        if (is_rectified_sum(node)) LKI_TRY(fold_sum(graph, node));
        if (node->op == LK_OP_BATCH_NORM_GRAD) LKI_TRY(fold_mask(graph, node));
    }
    lki_graph_count_uses(graph);
    return LK_OK;
}
