/* Checkpoint: what a checkpointed module computes between its inputs and its outputs is not kept for the
 * backward half, but computed again where that first needs it.
 *
 * The pass comes after all passes that choose ops, so that what is computed again is the very op that
 * computed it before, with the same bits. It copies forward nodes of a region (of one module) in front of the
 * first backward node that reads one of their results. Not everything of a region is copied:
 *
 * - What is read outside of the region, such as its output, is kept.
 * - Random numbers are never drawn twice. A dropout is computed again from its mask, of one byte per element;
 *   the results of other random ops are kept. So are those of ops between ranks and of the program's own ops,
 *   which need not do the same thing twice.
 * - The statistics of a norm and the logarithms of attention are kept, because they are small.
 * - A batch norm is computed again without its running values, which therefore move once per batch.
 *
 * A region may lie inside of another one. The outer one is copied first; the copies of the inner one then
 * count as a forward half, from which the inner one is copied once more. */
#include "graph/graph.h"

#include "base/status.h"

enum { SMALL = 8 /* a further result is small if it is so many times smaller than the first one */ };

/* What one round works on: the regions at one depth. */
typedef struct round {
    lk_graph *graph;
    int depth;
    lki_node *place; /* the backward node in front of which copies are inserted */
} round;

static const lki_region *region_of(const lki_node *node, int depth)
{
    const lki_region *region = node->region;
    while (region && region->depth > depth) region = region->outer;
    return region && region->depth == depth ? region : NULL;
}

static bool is_leaf(const lki_node *node)
{
    return lk_op_flags(node->op) & LK_OP_IS_LEAF;
}

/* A copy belongs to the forward half that the next round sees. */
static bool goes_forward(const lki_node *node)
{
    return node->section != LKI_SECTION_BACKWARD || node->is_again;
}

static bool is_batch_norm(const lki_node *node)
{
    return node->op == LK_OP_BATCH_NORM || node->op == LK_OP_BATCH_NORM_RELU;
}

static bool writes(const lki_node *node, const lk_param *param)
{
    if (node->dead || !(lk_op_flags(node->op) & LK_OP_WRITES_OPERANDS)) return false;
    for (int i = 0; i < node->input_count; i++) {
        const lk_value *root = node->in[i] ? lki_value_root(node->in[i]) : NULL;
        if (root && root->storage == LKI_STORAGE_PARAM && root->param == param) return true;
    }
    return false;
}

/* A buffer that the graph itself moves has another value by the time of the backward half. */
static bool reads_what_moves(const lki_node *node)
{
    if (is_batch_norm(node) && node->attr.norm.training) return false; /* copied without them */
    for (int i = 0; i < node->input_count; i++) {
        lk_value *root = node->in[i] ? lki_value_root(node->in[i]) : NULL;
        if (!root || root->storage != LKI_STORAGE_PARAM || !root->param->is_buffer) continue;
        for (const lki_node *at = root->graph->first; at; at = at->next)
            if (writes(at, root->param)) return true;
    }
    return false;
}

/* Whether a node's results can be had a second time, with the same bits and without a trace. */
static bool is_repeatable(const lki_node *node)
{
    unsigned flags = lk_op_flags(node->op);
    if (node->op == LK_OP_DROPOUT) return true;
    if (node->op == LK_OP_ATTENTION) return node->attr.attention.p <= 0 || node->attr.attention.p >= 1;
    if (flags & (LK_OP_IS_LEAF | LK_OP_IS_RANDOM | LK_OP_RUNS_ON_HOST)) return false;
    if (lki_is_param_cast(node)) return false; /* an engine may do all of them at once */
    if (reads_what_moves(node)) return false;
    return is_batch_norm(node) || !(flags & LK_OP_WRITES_OPERANDS);
}

static bool is_small(const lk_value *value)
{
    return value->index > 0 && lki_value_nbytes(value) * SMALL <= lki_value_nbytes(value->node->out[0]);
}

static bool is_kept(const round *r, lk_value *value)
{
    const lki_node *node = lki_value_root(value)->node;
    /* A view that the backward half has made: its own input has been replaced already. */
    if (!goes_forward(value->node)) return true;
    return value->is_kept || lki_value_root(value)->is_kept || !region_of(node, r->depth) ||
           !is_repeatable(node) || is_small(value) || (node->op == LK_OP_DROPOUT && value->index > 0);
}

static void keep(lk_value *value)
{
    value->is_kept = true;
    lki_value_root(value)->is_kept = true;
}

static void mark_kept(const round *r)
{
    for (lki_node *node = r->graph->first; node; node = node->next)
        for (int i = 0; i < node->output_count; i++) {
            node->out[i]->is_kept = false;
            node->out[i]->again = NULL;
        }
    for (lki_node *node = r->graph->first; node; node = node->next) {
        if (node->dead || !goes_forward(node)) continue;
        for (int i = 0; i < node->input_count; i++)
            if (node->in[i] && region_of(node->in[i]->node, r->depth) != region_of(node, r->depth))
                keep(node->in[i]);
    }
    for (int i = 0; i < r->graph->output_count; i++) keep(r->graph->outputs[i]);
}

static lk_status repeat(round *r, lki_node *node);

/* The value that the backward half reads instead: itself, or the same one computed again. */
static lk_status take_again(round *r, lk_value **value)
{
    if (!*value || is_kept(r, *value)) return LK_OK;
    if (!(*value)->again) LKI_TRY(repeat(r, (*value)->node));
    *value = (*value)->again;
    return LK_OK;
}

static lk_status repeat_dropout(round *r, lki_node *node, lk_value *x)
{
    lk_value *inputs[] = {x, node->out[1]};
    lki_node *copy = lki_graph_copy_node(r->graph, r->place, node, LK_OP_DROPOUT_GRAD, inputs, 2);
    if (!copy) return LK_ERR_NOMEM;
    node->out[0]->again = copy->out[0];
    return LK_OK;
}

/* Its inputs first, so that copies stand in the order in which they depend on one another. */
static lk_status repeat(round *r, lki_node *node)
{
    lk_value **inputs = LKI_ARENA_NEW_ARRAY(&r->graph->arena, lk_value *, node->input_count + 1);
    if (!inputs) return LK_ERR_NOMEM;
    for (int i = 0; i < node->input_count; i++) {
        inputs[i] = node->in[i];
        LKI_TRY(take_again(r, &inputs[i]));
    }
    if (node->op == LK_OP_DROPOUT) return repeat_dropout(r, node, inputs[0]);
    if (is_batch_norm(node) && node->attr.norm.training) inputs[3] = inputs[4] = NULL;
    lki_node *copy = lki_graph_copy_node(r->graph, r->place, node, node->op, inputs, node->input_count);
    if (!copy) return LK_ERR_NOMEM;
    for (int i = 0; i < node->output_count; i++) node->out[i]->again = copy->out[i];
    return LK_OK;
}

static lk_status repeat_regions(round *r)
{
    mark_kept(r);
    for (lki_node *node = r->graph->first; node; node = node->next) {
        if (node->dead || is_leaf(node) || goes_forward(node)) continue;
        r->place = node;
        for (int i = 0; i < node->input_count; i++) LKI_TRY(take_again(r, &node->in[i]));
    }
    return LK_OK;
}

lk_status lki_pass_checkpoint(lk_graph *graph)
{
    int deepest = 0;
    for (const lki_node *node = graph->first; node; node = node->next)
        if (node->region && node->region->depth > deepest) deepest = node->region->depth;
    if (deepest == 0) return LK_OK;
    lki_graph_count_uses(graph);
    for (int depth = 1; depth <= deepest; depth++) LKI_TRY(repeat_regions(&(round){graph, depth, NULL}));
    return LK_OK;
}
