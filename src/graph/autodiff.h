/* Reverse-mode differentiation of a part of a graph, for lk_op_grad and for the gradients of gradients. */
#ifndef LKI_GRAPH_AUTODIFF_H
#define LKI_GRAPH_AUTODIFF_H

#include "graph/graph.h"

/* A slice's gradient that waits for those of the other slices of the same value. */
typedef struct lki_part {
    struct lki_part *next; /* the one that was found before it */
    const lk_slice_attr *slice;
    lk_value *gradient;
} lki_part;

/* Records dx[i], the gradient of sum_k(y[k] dy[k]) with respect to x[i]; NULL where no y depends on it. Each
 * x[i] counts as a variable of its own, even if it is computed from another one. A pair of which y or dy is
 * NULL counts as 0. It may be called while a gradient rule is at work. */
lk_status lki_differentiate(lk_graph *graph, lk_value *const *y, lk_value *const *dy, int y_count,
                            lk_value *const *x, int x_count, lk_value **dx);

/* Whether the results of a node change with an input that needs a gradient. */
bool lki_carries_gradient(const lki_node *node);

#endif
