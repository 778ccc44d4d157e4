/* How passes ask an engine about a node that they could make: lk_engine_ops.preference. */
#ifndef LKI_GRAPH_ASK_ENGINE_H
#define LKI_GRAPH_ASK_ENGINE_H

#include "graph/graph.h"

/* What the engine says to this node, which need not be part of a graph. LK_IMPOSSIBLE if it answers no such
 * questions. */
lk_preference lki_ask_engine(lk_engine *engine, const lki_node *node);

#endif
