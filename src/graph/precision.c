/* Precision: products read 16-bit operands and write f32.
 *
 * A cast is put in front of each operand of an op that gains from it, once per value: the backward half finds
 * the forward half's casts. Everything else, the parameters above all, stays f32. */
#include "graph/graph.h"

#include "base/status.h"

/* The first two operands are the factors; a third is a bias, which is added in f32. */
enum { FACTOR_COUNT = 2 };

static lk_status lower_operand(lk_graph *graph, lki_node *node, int index, lk_dtype low)
{
    lk_value *value = node->in[index];
    if (!value || value->dtype != LK_F32) return LK_OK;
    if (!value->low) {
        lk_attr attr = {.dtype = low};
        lki_node *cast = lki_graph_insert(graph, node, LK_OP_CAST, &value, 1, &attr);
        if (!cast) return lki_last_status();
        value->low = cast->out[0];
    }
    node->in[index] = value->low;
    return LK_OK;
}

lk_status lki_pass_precision(lk_graph *graph, lk_dtype low)
{
    for (lki_node *node = graph->first; node; node = node->next) {
        if (node->dead || !(lk_op_flags(node->op) & LK_OP_L)) continue;
        for (int i = 0; i < FACTOR_COUNT && i < node->input_count; i++)
            LKI_TRY(lower_operand(graph, node, i, low));
    }
    lki_graph_count_uses(graph);
    return LK_OK;
}
