/* Small helpers that the rules of the ops share. */
#ifndef LKI_GRAPH_RECORD_UTIL_H
#define LKI_GRAPH_RECORD_UTIL_H

#include "graph/graph.h"

/* Output i gets this dtype and shape. */
void lki_set_output(lki_node *node, int index, lk_dtype dtype, lk_shape shape);

/* The broadcast of two shapes, or LK_ERR_SHAPE with both. */
lk_status lki_broadcast(lk_shape *out, lk_shape a, lk_shape b);

/* Sums `value` over the axes that broadcasting added, so that it has `shape` again. */
lk_value *lki_sum_to(lk_value *value, lk_shape shape);

/* LK_OK where input `index` is of a float dtype (or of `dtype`), else LK_ERR_DTYPE naming the op. */
lk_status lki_expect_float(const lki_node *node, int index);
lk_status lki_expect_dtype(const lki_node *node, int index, lk_dtype dtype);
lk_status lki_expect_same_dtype(const lki_node *node, int a, int b);

/* Records `op` over the inputs with these attributes, from a backward rule. */
lk_value *lki_emit(lk_op op, const lk_attr *attr, int input_count, lk_value *const *inputs);
#define LKI_EMIT(op, attr, ...)                                                                              \
    lki_emit((op), (attr), (int)(sizeof((lk_value *[]){__VA_ARGS__}) / sizeof(lk_value *)),                  \
             (lk_value *[]){__VA_ARGS__})
/* Output `index` of the node that computes `value`. */
lk_value *lki_output_of(lk_value *value, int index);

/* The axis counted from the front; -1 where it is outside of the rank. */
int lki_normal_axis(int axis, int rank);

#endif
