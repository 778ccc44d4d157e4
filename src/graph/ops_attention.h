/* Attention from simple ops, for what the fused op does not give. */
#ifndef LKI_GRAPH_OPS_ATTENTION_H
#define LKI_GRAPH_OPS_ATTENTION_H

#include "graph/graph.h"

/* What LK_OP_ATTENTION gives for the operands q, k, v, mask and key_mask (NULL: absent). The scores are
 * values of the graph: masks have gradients, and so have gradients. `weights`, if it is not NULL, receives
 * them after dropout, (B, H, L, S). */
lk_value *lki_composed_attention(const lk_attention_attr *attr, lk_value *const in[5], lk_value **weights);

/* Whether attention with so many scores (B H L S) is recorded as one op. `is_written`: somebody has asked for
 * that one, not for a layer. */
bool lki_joins_attention(const lk_graph *graph, double score_count, bool is_written);

#endif
