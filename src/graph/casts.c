/* Casts of parameters to 16 bits: a network has one a layer, each of little work. They depend on nothing that
 * a step computes, so they can all come first. */
#include "graph/graph.h"

bool lki_is_param_cast(const lki_node *node)
{
    if (node->op != LK_OP_CAST && node->op != LK_OP_REORDER) return false;
    const lk_value *from = node->in[0], *to = node->out[0];
    return from->storage == LKI_STORAGE_PARAM && from->dtype == LK_F32 &&
           (to->dtype == LK_BF16 || to->dtype == LK_F16);
}

/* By an op of the graph: a running value. */
static bool is_written(const lk_graph *graph, const lk_value *param)
{
    for (const lki_node *node = graph->first; node; node = node->next) {
        if (node->dead || !(lk_op_flags(node->op) & LK_OP_WRITES_OPERANDS)) continue;
        for (int i = 0; i < node->input_count; i++)
            if (node->in[i] == param) return true;
    }
    return false;
}

static lki_node *next_with_work(lki_node *node)
{
    while (node && (node->dead || (lk_op_flags(node->op) & (LK_OP_IS_LEAF | LK_OP_IS_VIEW))))
        node = node->next;
    return node;
}

void lki_pass_gather_casts(lk_graph *graph)
{
    lki_node *place = next_with_work(graph->first), *next;
    for (lki_node *node = place; node; node = next) {
        next = next_with_work(node->next);
        if (node->section != LKI_SECTION_FORWARD || !lki_is_param_cast(node)) continue;
        if (is_written(graph, node->in[0])) continue;
        if (node == place) {
            place = next;
            continue;
        }
        lki_node *leaf = node->in[0]->node;
        if (leaf != graph->first) lki_graph_move(graph, leaf, graph->first);
        lki_graph_move(graph, node, place);
    }
}
