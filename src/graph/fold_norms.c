/* Fold: a batch norm that waits for memory takes along what stands right behind it, a ReLU and the addend of
 * a residual layer (with the norm that the addend comes from), and its gradient the ReLU's mask, if the
 * engine prefers LK_OP_BATCH_NORM_RELU. */
#include "graph/graph.h"

#include "base/status.h"
#include "graph/ask_engine.h"

#include <string.h>

enum { NORM_INPUTS = 5, MOST_ADDED = 5 };

/* The batch norm that computes a value, if something can still be folded into it. */
static lki_node *open_norm(const lk_value *y, lki_section section)
{
    lki_node *norm = y->node;
    bool fits = norm->op == LK_OP_BATCH_NORM && y->index == 0 && y->use_count == 1 && !y->is_output &&
                norm->section == section;
    return fits ? norm : NULL;
}

/* Makes `node` an `op` with further inputs. *done: whether the engine wants that; else nothing changes. */
static lk_status become(lk_graph *graph, lk_engine *engine, lki_node *node, lk_op op, lk_value *const *added,
                        int added_count, bool *done)
{
    lki_node folded = *node;
    folded.op = op;
    folded.input_count = NORM_INPUTS + added_count;
    folded.in = LKI_ARENA_NEW_ARRAY(&graph->arena, lk_value *, NORM_INPUTS + MOST_ADDED);
    if (!folded.in) return LK_ERR_NOMEM;
    memcpy(folded.in, node->in, sizeof *node->in * NORM_INPUTS);
    for (int i = 0; i < added_count; i++) folded.in[NORM_INPUTS + i] = added[i];
    *done = lki_ask_engine(engine, &folded) == LK_PREFERRED;
    if (*done) *node = folded;
    return LK_OK;
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

/* The norm that an addend comes from, if it can be computed where it is added: nobody else reads it. */
static lki_node *norm_of_addend(const lk_value *addend, const lki_node *norm)
{
    lki_node *other = open_norm(addend, norm->section);
    bool joins = other && other->attr.norm.training && norm->attr.norm.training &&
                 other->in[0]->layout == addend->layout && other->in[0]->dtype == addend->dtype;
    return joins ? other : NULL;
}

/* Whichever of the two comes later adds the other. */
static lk_status fold_sum(lk_graph *graph, lk_engine *engine, lki_node *sum)
{
    for (int i = 0; i < 2; i++) {
        lki_node *norm = open_norm(sum->in[i], sum->section);
        lk_value *addend = sum->in[1 - i];
        if (!norm || addend->node->order > norm->order || addend->layout != sum->in[i]->layout ||
            !lk_shape_equal(addend->shape, sum->in[i]->shape))
            continue;
        lki_node *other = norm_of_addend(addend, norm);
        lk_value *added[MOST_ADDED] = {addend};
        if (other)
            memcpy(added,
                   (lk_value *[]){other->in[0], other->out[1], other->out[2], other->in[1], other->in[2]},
                   sizeof added);
        bool done;
        LKI_TRY(become(graph, engine, norm, LK_OP_BATCH_NORM_RELU, added, other ? MOST_ADDED : 1, &done));
        if (!done) continue;
        if (other) addend->storage = LKI_STORAGE_NONE; /* only its norm's statistics are wanted */
        replace(graph, sum, norm);
        return LK_OK;
    }
    return LK_OK;
}

static lk_status fold_relu(lk_graph *graph, lk_engine *engine, lki_node *relu)
{
    lki_node *norm = open_norm(relu->in[0], relu->section);
    bool done = false;
    if (norm && relu->out[0]->dtype == norm->out[0]->dtype)
        LKI_TRY(become(graph, engine, norm, LK_OP_BATCH_NORM_RELU, NULL, 0, &done));
    if (done) replace(graph, relu, norm);
    return LK_OK;
}

/* What the ReLU let through is told by x again, if nothing was added before it. */
static lk_status fold_mask(lk_graph *graph, lk_engine *engine, lki_node *gradient)
{
    lk_value *dz = gradient->in[0];
    lki_node *mask = dz->node;
    if (mask->op != LK_OP_RELU_GRAD || dz->use_count != 1 || dz->is_output ||
        mask->section != gradient->section)
        return LK_OK;
    const lk_value *y = mask->in[1];
    const lki_node *norm = y->node;
    bool done, fits = norm->op == LK_OP_BATCH_NORM_RELU && y->index == 0 &&
                      norm->input_count == NORM_INPUTS && norm->in[0] == gradient->in[1] &&
                      norm->out[1] == gradient->in[3] && mask->in[0]->layout == y->layout &&
                      mask->in[0]->dtype == y->dtype;
    if (!fits) return LK_OK;
    LKI_TRY(become(graph, engine, gradient, LK_OP_BATCH_NORM_RELU_GRAD, &norm->in[2], 1, &done));
    if (!done) return LK_OK;
    gradient->in[0] = mask->in[0];
    mask->dead = true;
    lki_graph_remove(graph, mask);
    return LK_OK;
}

lk_status lki_pass_fold_norms(lk_graph *graph, lk_engine *engine)
{
    if (!engine->ops->preference) return LK_OK;
    lki_graph_count_uses(graph);
    lki_graph_number(graph);
    for (lki_node *node = graph->first, *next; node; node = next) {
        next = node->next;
        if (node->dead) continue;
        if (node->op == LK_OP_RELU) LKI_TRY(fold_relu(graph, engine, node));
        if (is_rectified_sum(node)) LKI_TRY(fold_sum(graph, engine, node));
        if (node->op == LK_OP_BATCH_NORM_GRAD) LKI_TRY(fold_mask(graph, engine, node));
    }
    lki_graph_count_uses(graph);
    return LK_OK;
}
